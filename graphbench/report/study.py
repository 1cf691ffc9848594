"""Render a study as one page: a section for each question, with a table, figures and tests on every benchmark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.ticker import MaxNLocator

from graphbench.data.files.cells import markdown_text
from graphbench.data.files.writing import write_text, writing_together
from graphbench.report.comparison import score_panels
from graphbench.report.diagnostics import diagnostic_sections, over_seeds
from graphbench.report.figures import Panel, Section, Style, panel_axes, svg
from graphbench.report.formats import pipe_table
from graphbench.report.groups import Group
from graphbench.report.loading import Run, load_runs
from graphbench.report.page import css, describe_runs, surroundings, template
from graphbench.report.scores import ResultTable, Row, result_table
from graphbench.report.significance import Comparison, compare, holm, show_p
from graphbench.runs import RunFolder

#: Question -> title, and how to read the answer.
QUESTIONS = {
    "control": (
        "What does each part carry?",
        "Four models of equally many parameters, with widths chosen to match (arXiv 2510.05583): only message passing, "
        "with encodings, with global attention, and fused, the model itself. Rates and schedules are those of the "
        "model in all rows.",
    ),
    "depth": (
        "What happens with depth?",
        "The model with more layers and unchanged width, rates and schedule. Capacity says how much attention can "
        "still change in the last layer, effective rank how many directions the model's output tokens span, range "
        "the mean distance, in edges, to what they depend on; all in the last epoch, on fixed graphs.",
    ),
    "budget": (
        "Is it better than others of its size?",
        "Rivals with the width that comes closest to the model's number of parameters, on the same graphs, batches, "
        "optimizer, schedule and epochs. Options that both classes have (layers, heads, dropout, encodings) are those "
        "of the model, others the rival's defaults; nothing is tuned for a rival.",
    ),
    "cost": (
        "What does a step cost?",
        "A training step was timed in turns with the bare matrix products in it: 1 would be a step that only "
        "multiplies. Memory is that of a step on the same batch, counted from the shapes of its tensors. Times are "
        "for the machine named below; a note says if other programs were running there.",
    ),
}
#: Table of a diagnostic, its measure, and the heading of its last layer.
_DEEP = (
    ("attention_capacity", "capacity", "capacity, last layer"),
    ("rank_progression", "effective_rank", "effective rank, output"),
    ("range", "range", "range, output [edges]"),
)
_COST: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "parameters": ("parameters", "{:,}".format),
    "step_ms": ("step [ms]", "{:.2f}".format),
    "products_ms": ("its products [ms]", "{:.2f}".format),
    "ratio": ("step / products", "{:.2f}".format),
    "gflop": ("products [GFLOP]", "{:.3f}".format),
    "memory_mb": ("memory [MB]", "{:,.0f}".format),
    "activations_mb": ("activations [MB]", "{:,.0f}".format),
    "graphs_per_s": ("training speed [graphs/s]", "{:,.0f}".format),
}
#: Processes per core above which a machine counts as busy.
_BUSY = 1.5
#: p-value above which a difference may be chance.
_SURE = 0.05


@dataclass(frozen=True)
class Line:
    """A model of one question."""

    label: str  # of its row
    parameters: int | None = None  # trainable ones; None if it cannot be built
    runs: tuple[RunFolder, ...] = ()  # finished ones
    missing: tuple[str, ...] = ()  # sentences on what is missing, and why
    is_model: bool = False  # whether the others are compared with it
    depth: int | None = None  # layers, for the question of depth
    cost: Mapping[str, Any] | None = None  # numbers of `graphbench profile --output`, for the question of cost


@dataclass(frozen=True)
class Answer:
    """The rows of one question on one benchmark."""

    question: str
    benchmark: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class _Part:
    """Sentence, table, figures, other sections and runs of an answer."""

    answer: Answer
    sentence: str
    section: Section
    further: tuple[Section, ...] = ()
    runs: tuple[tuple[str, tuple[Run, ...]], ...] = ()


def write_study(model: str, answers: Sequence[Answer], folder: Path) -> list[Path]:
    """Write the page as study.html and its tables as study.md: questions in order, each on every benchmark."""
    parts = [_part(answer, f"q{number}") for number, answer in enumerate(answers)]
    runs = list({run.folder.path: run for part in parts for _, each in part.runs for run in each}.values())
    benchmarks = list(dict.fromkeys(answer.benchmark for answer in answers))
    markdown = _markdown(parts)
    page = template("study.html.jinja").render(
        title=f"{model} on {' and '.join(benchmarks)}: a study",
        lead=describe_runs(runs) if runs else "Nothing has been trained yet.",
        parts=parts,
        questions={name: texts for name, texts in QUESTIONS.items() if any(one.question == name for one in answers)},
        several=len(benchmarks) > 1,
        surroundings=surroundings(runs),
        markdown=markdown,
        css=css(),
    )
    with writing_together(folder) as staged:
        write_text(staged / "study.html", page)
        write_text(staged / "study.md", f"# {model}\n\n{markdown}")
    return [folder / "study.html", folder / "study.md"]


def _part(answer: Answer, name: str) -> _Part:
    if answer.question == "cost":
        return _cost(answer, name)
    section = Section(name, answer.benchmark, "")
    section.notes += _missing(answer)
    trained = [line for line in answer.lines if line.runs]
    if not trained:
        section.lines = [["model", "parameters"], *([line.label, _count(line)] for line in answer.lines)]
        return _Part(answer, "No row has been trained yet.", section)
    groups = {line.label: Group(line.label, tuple(load_runs(line.runs))) for line in trained}
    table = result_table(list(groups.values()), answer.benchmark)
    tests = _compared(answer, groups, table)
    section.lines = _table(answer, table, tests)
    in_order = replace(table, rows=tuple(sorted(table.models, key=lambda row: [*groups].index(row.label))))
    further: tuple[Section, ...] = ()
    if answer.question == "depth":
        section.panels += _by_depth(answer, groups, table, name)
        further = tuple(diagnostic_sections(in_order, f"{name}-layers"))
    else:
        section.panels += score_panels(in_order, f"{name}-scores")
    if len(tests) > 1:
        section.notes.append(f"p is that of a paired t test over seeds, after Holm for {len(tests)} comparisons.")
    if any(test.pairs == 2 for test in tests.values()):
        section.notes.append("Two seeds show very little; readers expect at least three.")
    runs = tuple((label, group.runs) for label, group in groups.items())
    return _Part(answer, _sentence(answer, table, tests), section, further, runs)


def _missing(answer: Answer) -> list[str]:
    return [f"{line.label}: {text.rstrip('.')}." for line in answer.lines for text in line.missing]


def _count(line: Line) -> str:
    return "–" if line.parameters is None else f"{line.parameters:,}"


def _compared(answer: Answer, groups: Mapping[str, Group], table: ResultTable) -> dict[str, Comparison]:
    """Test every row against the model on the test score, with Holm's correction."""
    model = next((line.label for line in answer.lines if line.is_model), None)
    if model is None or model not in groups:
        return {}
    pairs = {label: compare(groups[model], group, f"test/{table.metric}") for label, group in groups.items()}
    tests = {label: test for label, test in pairs.items() if test is not None and label != model}
    corrected = holm([test.p for test in tests.values()])
    return {label: replace(test, holm=p) for (label, test), p in zip(tests.items(), corrected, strict=True)}


def _table(answer: Answer, table: ResultTable, tests: Mapping[str, Comparison]) -> list[list[str]]:
    """Return the rows in the order of the question, header first."""
    rows = {row.label: row for row in table.models}
    shown = [one for one in table.main if one.key.startswith(("val/", "test/"))]
    deep = _DEEP if answer.question == "depth" else ()
    model = next((line.label for line in answer.lines if line.is_model), "the model")
    header = ["model", "parameters", "seeds", "best epoch", *(one.heading for one in shown)]
    header += [f"test less {model}", "pairs", "p (Holm)"] if tests else []
    lines = [[*header, *(heading for *_, heading in deep)]]
    for line in answer.lines:
        row = rows.get(line.label)
        if row is None:
            lines.append([line.label, _count(line), *["–"] * (len(lines[0]) - 2)])
            continue
        cells = [line.label, _count(line), row.seeds, row.best_epochs, *(row.show(one) for one in shown)]
        if tests:
            test = tests.get(line.label)
            shown_test = test and (f"{test.difference:+.4g} ± {test.sd:.2g}", str(test.pairs), show_p(test.holm))
            cells += shown_test or ("–", "–", "–")
        lines.append([*cells, *(_show(_last(row, stem, measure)) for stem, measure, _ in deep)])
    return lines


def _last(row: Row, stem: str, measure: str) -> tuple[float, float] | None:
    """Return mean and standard deviation of a measure of the last layer, over the seeds of a row."""
    assert row.group is not None
    means = over_seeds(row.group, stem).get(measure)
    if means is None or not len(means.last):
        return None
    last = means.last.iloc[-1]
    return float(last["mean"]), float(last["std"])


def _show(value: tuple[float, float] | None) -> str:
    if value is None:
        return "–"
    mean, sd = value
    return f"{mean:.3g}" if math.isnan(sd) else f"{mean:.3g} ± {sd:.2g}"


def _sentence(answer: Answer, table: ResultTable, tests: Mapping[str, Comparison]) -> str:
    """Describe what the tests distinguish, and what they do not."""
    models = [line.label for line in answer.lines if line.is_model]
    model = next((row for row in table.models if row.label in models), None)
    quantity = table.quantity(f"test/{table.metric}")
    if model is None or quantity is None:
        return "The model has no test score yet, so there is no comparison."
    text = f"{model.label}: {quantity.heading} {model.show(quantity)}."
    if not tests:
        return f"{text} Testing differences needs at least two seeds."
    groups: dict[str, list[str]] = {"better": [], "worse": [], "not distinguished": []}
    for label, test in tests.items():
        sure = test.holm < _SURE
        worse = (test.difference > 0) != bool(table.higher_is_better)
        groups[("worse" if worse else "better") if sure else "not distinguished"].append(label)
    words = "; ".join(f"{what}: {', '.join(labels)}" for what, labels in groups.items() if labels)
    counts = sorted({test.pairs for test in tests.values()})
    pairs = f"n = {counts[0]}" + (f" to {counts[-1]}, see its row" if len(counts) > 1 else "")
    return f"{text} Compared with it (p < {_SURE} after Holm, {pairs}), {words}."


def _by_depth(answer: Answer, groups: Mapping[str, Group], table: ResultTable, name: str) -> list[Panel]:
    """Draw the test score and the last layer's capacity, rank and range over the number of layers."""
    rows, key = {row.label: row for row in table.models}, f"test/{table.metric}"
    title = "" if (quantity := table.quantity(key)) is None else quantity.heading
    score = {title: (lambda row: (row.scores[key].mean, row.scores[key].sd) if key in row.scores else None)}
    deep = {
        heading.capitalize(): (lambda row, stem=stem, measure=measure: _last(row, stem, measure))
        for stem, measure, heading in _DEEP
    }
    panels = []
    for number, (heading, value) in enumerate((score | deep).items()):
        points = [(line.depth, value(rows[line.label])) for line in answer.lines if line.label in groups]
        drawn = [(depth, *point) for depth, point in points if point is not None and math.isfinite(point[0])]
        if not drawn:
            continue
        depths, means, sds = zip(*drawn, strict=True)
        with panel_axes(heading, "layers") as (figure, axes):
            style = Style(number)
            errors = [0.0 if math.isnan(sd) else sd for sd in sds]
            axes.errorbar(depths, means, yerr=errors, capsize=2.5, color=style.colour, marker=style.marker)
            axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
            panels.append(Panel(svg(figure, f"{heading} over the number of layers", f"{name}-depth-{number}")))
    return panels


def _cost(answer: Answer, name: str) -> _Part:
    """Show the measurements of a step."""
    section = Section(name, answer.benchmark, "")
    measured = [(line, line.cost) for line in answer.lines if line.cost is not None]
    section.lines = [["model", *(heading for heading, _ in _COST.values())]]
    for line in answer.lines:
        cost = line.cost or {"parameters": line.parameters}
        cells = ("–" if cost.get(key) is None else show(cost[key]) for key, (_, show) in _COST.items())
        section.lines.append([line.label, *cells])
    section.notes += _missing(answer)
    section.notes += [
        f"{line.label}: memory is not counted: {cost['no_memory']}" for line, cost in measured if cost["no_memory"]
    ]
    places = dict.fromkeys(
        f"{cost['hardware']}, {cost['graphs']} graphs with {cost['nodes']:,} nodes" for _, cost in measured
    )
    section.notes += [f"Measured on {place}." for place in places]
    busy = [f"{line.label} {cost['load']:.1f}" for line, cost in measured if (cost.get("load") or 0) > _BUSY]
    if busy:
        section.notes.append(
            f"Other programs were running (processes per core: {', '.join(busy)}): do not quote these times."
        )
    model = next((cost for line, cost in measured if line.is_model), None)
    if model is None:
        return _Part(answer, "Nothing has been measured yet.", section)
    others = ", ".join(f"{line.label} {cost['ratio']:.2f}" for line, cost in measured if not line.is_model)
    beside = f"; {others}" if others else ""
    return _Part(answer, f"A step takes {model['ratio']:.2f} times as long as its products{beside}.", section)


def _markdown(parts: Sequence[_Part]) -> str:
    """Write a pipe table for every question and benchmark."""
    texts = []
    for part in parts:
        lines = pipe_table(part.section.lines)
        title = f"## {QUESTIONS[part.answer.question][0]} ({markdown_text(part.answer.benchmark)})"
        notes = [f"- {markdown_text(note)}" for note in part.section.notes]
        texts.append("\n".join([title, "", markdown_text(part.sentence), "", *lines, *([""] if notes else []), *notes]))
    return "\n\n".join(texts) + "\n"
