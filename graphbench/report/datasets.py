"""Which runs were trained on the same data and split, so that their scores may stand in one table."""

from __future__ import annotations

from collections.abc import Sequence

from graphbench.report.groups import SPLIT_OPTIONS, Group, alike, data_options, flatten, replicate, short_value
from graphbench.report.loading import Run

#: Options of data that a name of a table shows.
_NAMED = 2


def on_same_data(groups: Sequence[Group]) -> list[list[Group]]:
    """Groups of one benchmark, those together that share a split, in the order of the first of each.

    Runs are held against each other on the splits (fold and seed of the split) that both groups have. Groups without
    such a split belong together only where nobody knows their data.

    Args:
        groups: none of which has two kinds of data in one split, see `graphbench.report.groups.group_runs`.
    """
    tables: list[list[Group]] = []
    for group in groups:
        fitting = (table for table in tables if _related(table, group))
        found = next(fitting, None)
        if found is None:
            tables.append([group])
        else:
            found.append(group)
    return tables


def _related(table: Sequence[Group], group: Group) -> bool:
    verdicts = [_verdict(one, group) for one in table]
    return False not in verdicts and True in verdicts


def _verdict(one: Group, other: Group) -> bool | None:
    """Whether two groups share a split; None where the data of one are not known."""
    pairs = [(a, b) for a in one.runs for b in other.runs if replicate(a)[1:] == replicate(b)[1:]]
    if pairs:
        return all(alike(a.data, b.data) for a, b in pairs)
    return None if all(run.data for run in (*one.runs, *other.runs)) else True


def table_names(benchmark: str, tables: Sequence[Sequence[Group]]) -> list[str]:
    """A name for each table of a benchmark: with the options of data in which they differ, where there are several.

    Args:
        benchmark: its name.
        tables: see `on_same_data`.
    """
    if len(tables) == 1:
        return [benchmark]
    options = [flatten(data_options(table[0].runs[0].config)) for table in tables]
    names = list(dict.fromkeys(name for found in options for name in found))
    differing = [
        name
        for name in names
        if name and name not in SPLIT_OPTIONS and len({found.get(name, "none") for found in options}) > 1
    ]
    told = [
        ", ".join(f"{name} {short_value(name, found.get(name, 'none'))}" for name in differing[:_NAMED])
        for found in options
    ]
    if len(set(told)) < len(told):
        told = [f"{text}{', ' if text else ''}data {number}" for number, text in enumerate(told, 1)]
    return [f"{benchmark} ({text})" for text in told]


def split_sizes(runs: Sequence[Run]) -> str:
    """How many graphs each split has, and how many rows of the file were left out, as a sentence; "" where unknown.

    Args:
        runs: on the same data, maybe in several splits.
    """
    known = [run.data for run in runs if run.data]
    if not known:
        return ""
    parts = []
    for split, title in (("train", "training"), ("val", "validation"), ("test", "test")):
        sizes = sorted({int(data["splits"][split]["graphs"]) for data in known if split in data["splits"]})
        if sizes:
            shown = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
            parts.append(f"{shown} {title}")
    left_out = max(int(data.get("left_out", 0)) for data in known)
    rows = f" {left_out:,} rows of the file could not be used and were left out." if left_out else ""
    return f"Graphs: {', '.join(parts)}.{rows}" if parts else rows.strip()
