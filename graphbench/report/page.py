"""Render everything known of some runs as one HTML page that loads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from graphbench.report.comparison import across_section, comparison_section, score_panels
from graphbench.report.curves import gap_section, learning_curves, looked_at_test
from graphbench.report.diagnostics import diagnostic_sections, picture_section
from graphbench.report.external import expectations, external_section
from graphbench.report.figures import Panel, Section
from graphbench.report.formats import as_csv, as_latex, as_markdown
from graphbench.report.groups import differences, flatten, split_sizes
from graphbench.report.loading import Run
from graphbench.report.predictions import confusion_section, reliability_section, worst_section
from graphbench.report.residuals import prediction_section, residual_section
from graphbench.report.scores import ResultTable
from graphbench.report.verdict import verdict

_TEMPLATES = Path(__file__).parent / "templates"
#: Number of models that figures show, best first; more would be neither legible nor small.
_DRAWN = 40
#: Facts of an environment that affect times and memory.
_HARDWARE = ("processor", "cores", "torch_threads", "gpus")


@dataclass(frozen=True)
class Part:
    """Everything shown for one benchmark."""

    name: str  # anchor in the page
    table: ResultTable  # its results
    verdict: list[str]  # sentences for the top of the page
    scores: list[Panel]  # panels next to the table
    notes: list[str]  # sentences below the table
    sections: list[Section]  # figures
    expected: list[list[str]]  # rows of scores and expected ones, header first
    differences: dict[str, list[str]]  # options that differ between groups, with one value per group


@dataclass(frozen=True)
class Surroundings:
    """Hardware and software that some runs share: names of the runs, and dotted name -> value."""

    runs: list[str]
    facts: dict[str, str]

    @property
    def summary(self) -> str:
        """Return processor, GPUs and the two versions that matter most."""
        unknown = dict.fromkeys(("cores", "python", "packages.torch"), "unknown")
        facts = {"processor": "unknown processor", **unknown, **self.facts}
        gpus = ", ".join(value for name, value in facts.items() if name.startswith("gpus.")) or "no GPU"
        machine = f"{facts['processor']}, {facts['cores']} cores; {gpus}"
        return f"{machine}; Python {facts['python']}; torch {facts['packages.torch']}"


def render(tables: Sequence[ResultTable], first: Sequence[Section] = ()) -> str:
    """Render the page of some result tables and the runs behind them, with `first` sections before all others."""
    runs = [run for table in tables for run in _runs(table)]
    parts = [_part(table, f"p{number}") for number, table in enumerate(tables)]
    across = across_section(tables)
    parts[0].sections[:0] = [*first, *([across] if across is not None else [])]
    return template("page.html.jinja").render(
        title=_title(tables),
        lead=describe_runs(runs),
        problems=[(run.name, sentence) for run in runs for sentence in run.problems],
        parts=parts,
        surroundings=surroundings(runs),
        texts={"Markdown": as_markdown(tables), "CSV": as_csv(tables), "LaTeX": as_latex(tables)},
        css=css(),
    )


def css() -> str:
    """Return the style of all pages."""
    return (_TEMPLATES / "page.css").read_text(encoding="utf-8")


@cache
def template(name: str) -> Template:
    """Load the template of a page, which escapes all values except our own figures."""
    # Escaped: names of runs, options and molecules come from users.
    options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    return Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=True, **options).get_template(name)


def _part(table: ResultTable, name: str) -> Part:
    hidden = table.models[_DRAWN:]
    drawn = replace(table, rows=tuple(row for row in table.rows if row not in hidden))
    sections = [
        comparison_section(drawn, f"{name}-differences"),
        learning_curves(drawn, f"{name}-curves"),
        prediction_section(drawn, f"{name}-predictions"),
        residual_section(drawn, f"{name}-residuals"),
        confusion_section(drawn, f"{name}-confusion"),
        reliability_section(drawn, f"{name}-reliability"),
        worst_section(drawn, f"{name}-worst"),
        *diagnostic_sections(drawn, f"{name}-layers"),
        gap_section(drawn, f"{name}-gap"),
        external_section(_runs(table), f"{name}-external"),
        picture_section(_runs(drawn), f"{name}-pictures"),
    ]
    return Part(
        name=name,
        table=table,
        verdict=verdict(table),
        scores=score_panels(drawn, f"{name}-scores"),
        notes=_notes(table),
        sections=[section for section in sections if section is not None],
        expected=expectations(table.groups),
        differences=differences(table.groups),
    )


def _runs(table: ResultTable) -> list[Run]:
    return [run for group in table.groups for run in group.runs]


def _title(tables: Sequence[ResultTable]) -> str:
    models = list(dict.fromkeys(group.label for table in tables for group in table.groups))
    benchmarks = list(dict.fromkeys(group.benchmark for table in tables for group in table.groups))
    model = models[0] if len(models) == 1 else f"{len(models)} models"
    benchmark = benchmarks[0] if len(benchmarks) == 1 else f"{len(benchmarks)} benchmarks"
    return f"{model} on {benchmark}"


def describe_runs(runs: Sequence[Run]) -> str:
    """Describe how many runs there are, when they started, and the version that wrote the page."""
    count = "One run" if len(runs) == 1 else f"{len(runs)} runs"
    seeds = list(dict.fromkeys(run.seed for run in runs))
    seed = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(seeds)}"
    days = sorted({day for run in runs if (day := _day(run.environment))})
    when = f", started on {' to '.join(dict.fromkeys([days[0], days[-1]]))}" if days else ""
    return f"{count}, {seed}{when}. Written by graphbench-lightning {_version()} from the run folders only."


def _day(environment: Mapping[str, Any]) -> str:
    try:
        return datetime.fromisoformat(str(environment.get("started"))).date().isoformat()
    except ValueError:
        return ""


def _version() -> str:
    try:
        return metadata.version("graphbench-lightning")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _notes(table: ResultTable) -> list[str]:
    """List caveats for comparing the rows."""
    runs = _runs(table)
    sizes = split_sizes(runs)
    notes = [sizes] if sizes else []
    if len(table.models) > _DRAWN:
        count = len(table.models)
        notes.append(f"Figures, and sentences about differences, are of the first {_DRAWN} of {count} models.")
    notes += [f"{label}: its checkpoint was chosen by validation {one}." for label, one in table.other_choices.items()]
    for group in table.groups:
        if group.repeated_seeds:
            seeds = " and ".join(group.repeated_seeds)
            notes.append(f"{group.label}: seed {seeds} was run more than once; ± is over runs, not seeds.")
    notes += [
        f"{group.label}: the test split was looked at during training, so its score is no longer that of unseen graphs."
        for group in table.groups
        if looked_at_test(group)
    ]
    if any(row.kind == "baseline" for row in table.rows):
        notes.append(
            "Baselines are simple methods that the benchmark fits on the same splits; they have no seed. Their fit "
            "time includes their features and predictions."
        )
    notes += dict.fromkeys(f"{name}: {note}." for run in runs for name, note in run.baseline_notes.items())
    machines = {tuple(str(run.environment.get(fact)) for fact in _HARDWARE) for run in runs if run.environment}
    if len(machines) > 1:
        notes.append("These runs had different hardware: times, speeds and memory are not comparable between them.")
    return notes


def surroundings(runs: Sequence[Run]) -> list[Surroundings]:
    """Group runs by hardware and software, whenever they started."""
    names: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for run in runs:
        facts = flatten({key: value for key, value in run.environment.items() if key != "started"})
        if run.environment:
            names.setdefault(tuple(facts.items()), []).append(run.name)
    return [Surroundings(shared, dict(facts)) for facts, shared in names.items()]
