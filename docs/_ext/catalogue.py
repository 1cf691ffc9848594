"""Catalogues of what is installed, written when the site is built, from the registry and without importing classes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from graphbench import registry
from graphbench.registry import configurations
from graphbench.registry.expected import Expected

Rows = Iterable[tuple[str, ...]]


def cell(text: object) -> str:
    """Text as one cell of a Markdown table."""
    return str(text).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def table(head: tuple[str, ...], rows: Rows) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell(word) for word in line) + " |" for line in lines)


def benchmarks() -> str:
    """Every benchmark: what is predicted, how many graphs, licence, whether it needs a network."""
    rows = []
    for name, record in sorted(registry.benchmarks().items()):
        spec = record.spec
        facts = ("-", "-", "-", "-", "-")
        if spec is not None:
            graphs = "your own" if spec.num_graphs is None else f"{spec.num_graphs:,}"
            facts = (spec.task, spec.metric, graphs, "no" if spec.offline else "yes", spec.licence or "-")
        rows.append((f"`{name}`", record.summary, *facts))
    return table(("name", "what it is", "task", "metric", "graphs", "needs a network", "licence"), rows)


def classes(group: registry.Group) -> str:
    """Every class of a group, with the package that registers it."""
    records = sorted(registry.records(group).items())
    return table(
        ("name", "what it is", "package"),
        [(f"`{name}`", record.summary, f"`{record.distribution}`") for name, record in records],
    )


def score(expected: Expected) -> str:
    """The score that a run should reach, by whose word; a dash where nothing is expected."""
    if expected.value is None:
        return "-"
    spread = f" ± {expected.sd:g}" if expected.sd is not None else ""
    return f"{expected.metric} {expected.value:g}{spread}, {expected.source or 'no source'}"


def configuration_table() -> str:
    """Every configuration that is no overlay, with the score to expect."""
    rows = []
    found = {name: several[0] for name, several in configurations.configurations().items()}
    for name, configuration in found.items():
        if configuration.is_overlay:
            continue
        facts = configurations.facts(configuration, found)
        rows.append((f"`{name}`", configuration.summary, facts.model, facts.benchmark, score(facts.expected)))
    return table(("name", "what it is", "architecture", "benchmark", "expected"), rows)


#: What stands above a table of classes of a group; others have their own pages below.
ABOVE: dict[str, str] = {
    "architectures": "`graphbench fit --model.architecture NAME` takes one; `--model.architecture.help NAME` helps.",
    "encodings": "What is computed once for every graph, and the encoders that learn from it.",
    "callbacks": "`graphbench fit --trainer.callbacks+=NAME` adds one; those of Lightning are taken by name, too.",
    "tasks": "A benchmark names one; it gives a model its head, loss and metrics.",
}
PAGES: dict[str, tuple[str, str, Any]] = {
    "benchmarks": (
        "Benchmarks",
        "`graphbench fit --data NAME` takes one; `--data.help NAME` lists its options.",
        benchmarks,
    ),
    "configurations": (
        "Configurations",
        "`graphbench fit --config NAME` trains one, `graphbench config NAME` prints it.",
        configuration_table,
    ),
}


def write(app: Any) -> None:
    """Writes the pages beside the sources; a page that says the same is left alone."""
    folder = Path(app.srcdir) / "reference" / "catalogue"
    folder.mkdir(parents=True, exist_ok=True)
    groups = {group: (group.capitalize(), ABOVE.get(group, ""), partial(classes, group)) for group in registry.GROUPS}
    for name, (title, introduction, content) in (groups | PAGES).items():
        page, text = folder / f"{name}.md", f"# {title}\n\n{introduction}\n\n{content()}\n"
        if not page.is_file() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("builder-inited", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
