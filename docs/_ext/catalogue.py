"""Catalogues of what is installed, written when the site is built: from the registry, with links to `api`'s pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import api
import command_help
import speed_tables
import thumbnails
import zoo

from graphbench import registry
from graphbench.registry import configurations
from graphbench.registry.expected import Expected
from graphbench.training.tasks import TASKS

Rows = Iterable[tuple[str, ...]]
REPOSITORY = "https://github.com/graphbench-lightning/graphbench/blob/main"


def cell(text: object) -> str:
    """Escape text for one cell of a Markdown table."""
    return str(text).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def table(head: tuple[str, ...], rows: Rows) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell(word) for word in line) + " |" for line in lines)


def entry(record: registry.Record) -> str:
    """Return a registered name as a link to its description among the public names, if it has one."""
    home = api.described()[1].get((record.name, id(registry.load(record.group, record.name))))
    return f"{{py:obj}}`~{home}.{record.name}`" if home else f"`{record.name}`"


@cache
def recipes() -> list[tuple[configurations.Configuration, configurations.Facts]]:
    """Return every configuration except overlays, with its facts."""
    found = {name: several[0] for name, several in configurations.configurations().items()}
    return [(one, configurations.facts(one, found)) for one in found.values() if not one.is_overlay]


def benchmarks(drawn: Collection[str] = ()) -> str:
    """Return a table of benchmarks: a graph, task, best expected score, licence, whether it needs a network.

    Args:
        drawn: names of those that have a picture.
    """
    rows = []
    reached = best_scores()
    numbers = Counter(facts.benchmark for _, facts in recipes())
    for name, record in sorted(registry.benchmarks().items()):
        spec = record.spec
        facts = ("-", "-", "-", "-", "-")
        if spec is not None:
            graphs = "your own" if spec.num_graphs is None else f"{spec.num_graphs:,}"
            facts = (spec.task, spec.metric, graphs, "no" if spec.offline else "yes", spec.licence or "-")
        without = "not drawn here" if spec is None or spec.offline else "no picture offline"
        picture = f"![a graph of {name}](pictures/{name}.png)" if name in drawn else without
        number = f"[{numbers[name]}](configurations.md#{name.lower()})" if name in numbers else "-"
        told = (picture, record.summary, *facts[:3], number, reached.get(name, "-"), *facts[3:])
        rows.append((entry(record), *told))
    head = (
        "name", "a graph", "description", "task", "metric", "graphs", "recipes", "expected", "needs a network",
        "licence",
    )  # fmt: skip
    return table(head, rows)


def best_scores() -> dict[str, str]:
    """Map each benchmark to the best score by its metric that a recipe expects, and the name of that recipe."""
    found: dict[str, tuple[float, str]] = {}
    for configuration, facts in recipes():
        spec = record.spec if (record := registry.benchmarks().get(facts.benchmark)) else None
        value = facts.expected.value
        if spec is None or value is None:
            continue
        if (facts.expected.metric or "").partition("/")[2] != spec.metric:
            continue
        better = value if spec.higher_is_better else -value
        if facts.benchmark not in found or better > found[facts.benchmark][0]:
            found[facts.benchmark] = (better, f"{score(facts.expected)} (`{configuration.name}`)")
    return {benchmark: told for benchmark, (_, told) in found.items()}


def classes(group: registry.Group) -> str:
    """Return a table of the classes of a group, with the package that registers each."""
    records = sorted(registry.records(group).items())
    return table(
        ("name", "description", "package"),
        [(entry(record), record.summary, f"`{record.distribution}`") for _, record in records],
    )


def architectures() -> str:
    """Return a table of architectures, and the benchmarks for which there is a recipe."""
    rows = []
    for name, record in sorted(registry.architectures().items()):
        found = sorted({facts.benchmark for _, facts in recipes() if facts.model == name and facts.benchmark})
        links = ", ".join(f"[{benchmark}](configurations.md#{benchmark.lower()})" for benchmark in found)
        rows.append((entry(record), record.summary, links or "-", f"`{record.distribution}`"))
    return table(("name", "description", "recipes for", "package"), rows)


def tasks() -> str:
    """Return a table of the core's tasks, which specifications name, and of those that packages register."""
    rows = [
        (f"`{name}`", (task.__doc__ or "").partition("\n")[0], ", ".join(task.losses), "`graphbench-lightning`")
        for name, task in TASKS.items()
    ]
    own = sorted(registry.records("tasks").items())
    rows += [(entry(record), record.summary, "-", f"`{record.distribution}`") for _, record in own]
    return table(("name", "description", "losses", "package"), rows)


def score(expected: Expected) -> str:
    """Return the score that a run should reach, with its source; a dash if nothing is expected."""
    if expected.value is None:
        return "-"
    spread = f" ± {expected.sd:g}" if expected.sd is not None else ""
    return f"{expected.metric} {expected.value:g}{spread}, {expected.source or 'no source'}"


def configuration_tables() -> str:
    """Return a section per benchmark: its recipes with the expected score; settings without data come last."""
    sections = []
    for benchmark in sorted({facts.benchmark for _, facts in recipes()}, key=lambda name: (not name, name)):
        rows = [
            (source(one), one.summary, facts.model or "-", score(facts.expected))
            for one, facts in recipes()
            if facts.benchmark == benchmark
        ]
        head = ("name", "description", "architecture", "expected")
        sections.append(f"## {benchmark or 'Settings without data'}\n\n{table(head, rows)}")
    return "\n\n".join(sections)


def source(configuration: configurations.Configuration) -> str:
    """Return the name of a configuration as a link to its file."""
    if not configuration.path.is_relative_to(zoo.ROOT):
        return f"`{configuration.name}`"
    return f"[`{configuration.name}`]({REPOSITORY}/{configuration.path.relative_to(zoo.ROOT).as_posix()})"


#: What stands above a table of classes of a group; others have their own pages below.
ABOVE: dict[str, str] = {
    "encodings": "Encodings are computed once for every graph; positional encoders learn from them.",
    "callbacks": "`graphbench fit --trainer.callbacks+=NAME` adds one; Lightning's callbacks also work by name.",
}
PAGES: dict[str, tuple[str, str, Any]] = {
    "architectures": (
        "Architectures",
        "`graphbench fit --model.architecture NAME` selects one; `--model.architecture.help NAME` lists its options.",
        architectures,
    ),
    "benchmarks": (
        "Benchmarks",
        "`graphbench fit --data NAME` selects one; `--data.help NAME` lists its options. A graph is drawn if it can be "
        "generated quickly, with some of the edges if it is dense; `expected` is the best score that a recipe names, "
        "with its source.",
        partial(benchmarks, thumbnails.names()),
    ),
    "tasks": ("Tasks", "A benchmark names one; it gives a model its head, loss and metrics.", tasks),
    "configurations": (
        "Configurations",
        "`graphbench fit --config NAME` trains one, `graphbench config NAME` prints it. Each benchmark has a table.",
        configuration_tables,
    ),
    "zoo": (
        "Model zoo",
        "Every recorded training: test score over its seeds, length, size, and optimizer steps per second on the CPU "
        "that it ran on. `whole length` says whether it was as long as in its source. Click on a heading to sort. "
        "`graphbench fit --config RECIPE` trains one; recipes without a record are among the "
        "[configurations](configurations.md).",
        partial(zoo.page, table),
    ),
    "commands": (
        "Options of the commands",
        "The output of `graphbench COMMAND --help`; [](../commands.md) shows the commands in use.",
        command_help.page,
    ),
    "speed": (
        "Speed",
        "`make speed` measures these rows again; `python speed/compare.py BEFORE.json NOW.json` shows what got slower. "
        "Both sides of a row alternate on one machine. A ratio is the median over rounds of the contender's seconds "
        "divided by the other's: below 1 the contender is faster. Seconds are medians and apply only to that machine.",
        partial(speed_tables.page, table),
    ),
}


def write(app: Any) -> None:
    """Write the pages beside the sources, except unchanged ones."""
    folder = Path(app.srcdir) / "reference" / "catalogue"
    folder.mkdir(parents=True, exist_ok=True)
    groups = {group: (group.capitalize(), ABOVE.get(group, ""), partial(classes, group)) for group in registry.GROUPS}
    for name, (title, introduction, content) in (groups | PAGES).items():
        page, text = folder / f"{name}.md", f"# {title}\n\n{introduction}\n\n{content()}\n"
        if not page.is_file() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def draw(app: Any) -> None:
    """Draw the pictures if any is missing; a fresh clone has none."""
    folder = Path(app.srcdir) / "reference" / "catalogue" / "pictures"
    if all((folder / f"{name}.png").is_file() for name in thumbnails.names()):
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in thumbnails.pictures().items():
        (folder / f"{name}.png").write_bytes(content)


def without_source(app: Any, name: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Remove the edit link from pages that are written when the site is built."""
    if name.startswith(("reference/catalogue/", "reference/api/")):
        context["page_source_suffix"] = ""


def setup(app: Any) -> dict[str, Any]:
    """Set up the extension; Sphinx calls this."""
    app.connect("html-page-context", without_source)
    app.connect("builder-inited", draw)
    app.connect("builder-inited", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
