"""The site's model zoo: every recorded training, with its score, length, size and speed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean, median, stdev

import graphbench
from graphbench.experiments.records import Record, read_records

ROOT = Path(graphbench.__file__).parents[1]
#: The page that the records are printed on.
RESULTS = "https://github.com/graphbench-lightning/graphbench/blob/main/RESULTS.md"
HEAD = (
    "model", "benchmark", "metric", "test", "±", "seeds", "epochs", "whole length", "parameters", "steps/s", "recipe",
    "table",
)  # fmt: skip


def page(table: Callable[[tuple[str, ...], Iterable[tuple[str, ...]]], str]) -> str:
    """Write the table of all trainings that have a score; `table` makes Markdown of a header and rows."""
    folders = [ROOT / "experiments" / "records", *sorted(ROOT.glob("plugins/*/results/records"))]
    return table(HEAD, rows(read_records([folder for folder in folders if folder.is_dir()])))


def rows(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """Return one row for runs that differ only in their seed; omit records that are not trainings of a recipe."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for one in records:
        if one.recipe and one.test is not None and one.steps:
            key = (one.experiment, one.name, one.column, one.recipe, one.options, one.altered)
            groups.setdefault(key, []).append(one)
    return [_row(runs) for runs in groups.values()]


def _row(runs: Sequence[Record]) -> tuple[str, ...]:
    first = runs[0]
    scores = [one.test for one in runs if one.test is not None]
    epochs = sorted({one.epochs for one in runs if one.epochs is not None})
    speeds = [one.steps / one.seconds for one in runs if one.steps and one.seconds]
    return (
        f"{first.name}, {first.column}" if first.column else first.name,
        first.benchmark or "-",
        first.metric,
        f"{fmean(scores):.4f}",
        f"{stdev(scores):.4f}" if len(scores) > 1 else "-",
        str(len(scores)),
        " to ".join(map(str, dict.fromkeys([epochs[0], epochs[-1]]))) if epochs else "-",
        "yes" if all(one.full for one in runs) else "no",
        "-" if first.parameters is None else f"{first.parameters:,}",
        f"{median(speeds):.1f}" if speeds else "-",
        " + ".join(f"`{name}`" for name in first.recipe),
        f"[table]({RESULTS}#{anchor(first.experiment)})",
    )


def anchor(heading: str) -> str:
    """Return the name that GitHub gives a heading.

    Examples:
        >>> anchor("Electric flow, figure 1, reduced recipe")
        'electric-flow-figure-1-reduced-recipe'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
