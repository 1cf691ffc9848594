"""Sources for each split as one: graphs of a file that trains, and of others that validate and test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from graphbench.benchmarks.graphs.raw import LEVELS, WRONG, RawGraphs
from graphbench.benchmarks.graphs.readers.sources import Source
from graphbench.contracts import SPLITS
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.errors import BadInput

_LINK = "link"


def source_by_split(sources: Mapping[str, Source]) -> Source:
    """Return sources of splits as one source.

    Args:
        sources: of "train", and of "val" or "test" or both.
    """
    ordered: dict[str, Source] = {name: sources[name] for name in SPLITS if name in sources}
    return replace(
        sources["train"],
        key=lambda: {"files": {name: source.key() for name, source in ordered.items()}},
        read=partial(_read, ordered),
        local=all(source.local for source in ordered.values()),
        unread=None,
        parts=None,
    )


def _read(sources: Mapping[str, Source]) -> RawGraphs:
    parts = {name: source.read() for name, source in sources.items()}
    for name, part in parts.items():
        if part.splits is not None:
            raise BadInput(f"{part.origin} gives a split of its own, but it is the {name} part; leave one of both out.")
    joined = join(list(parts.values()))
    ends = np.cumsum([0, *(len(part) for part in parts.values())])
    joined.splits = {name: np.arange(ends[number], ends[number + 1]) for number, name in enumerate(parts)}
    joined.hints["split"] = ", ".join(f"{name} from {Path(part.origin).name}" for name, part in parts.items())
    return joined


def join(parts: Sequence[RawGraphs]) -> RawGraphs:
    """Return the graphs of several sources, one source after the other.

    Columns that do not fit together, or that a source lacks, are noted as faults.
    """
    first = parts[0]
    columns: dict[str, dict[str, np.ndarray]] = {level: {} for level in LEVELS}
    faults = {key: why for part in parts for key, why in part.faults.items()}
    for level in LEVELS:
        for name in dict.fromkeys(name for part in parts for name in part.columns[level]):
            if (level, name) in faults:
                continue
            if why := _misfit(parts, level, name):
                faults[level, name] = why
            else:
                columns[level][name] = np.concatenate([part.columns[level][name] for part in parts])
    for what in ("links", "negatives"):
        having = [getattr(part, what) is not None for part in parts]
        if any(having) and not all(having):
            without, owner = parts[having.index(False)], parts[having.index(True)]
            raise BadInput(f"{without.origin} has no {what}, but {owner.origin} has.")
    starts = {
        GRAPH: np.cumsum([0, *map(len, parts)]),
        NODE: np.cumsum([0, *(int(part.num_nodes.sum()) for part in parts)]),
        EDGE: np.cumsum([0, *(len(part.edges) for part in parts)]),
        _LINK: np.cumsum([0, *(0 if part.links is None else len(part.links) for part in parts)]),
        WRONG: np.cumsum([0, *(0 if part.negatives is None else len(part.negatives) for part in parts)]),
    }

    def place(level: str, row: int) -> str:
        number = int(np.searchsorted(starts[level], row, side="right")) - 1
        return parts[number].place(level, row - int(starts[level][number]))

    named = all(part.node_names is not None for part in parts)
    return replace(
        first,
        num_nodes=np.concatenate([part.num_nodes for part in parts]),
        num_edges=np.concatenate([part.num_edges for part in parts]),
        edges=np.concatenate([part.edges for part in parts]),
        columns=columns,
        names=_names(parts),
        place=place,
        links=_pairs([part.links for part in parts]),
        num_links=_pairs([part.num_links for part in parts]),
        negatives=_pairs([part.negatives for part in parts]),
        num_negatives=_pairs([part.num_negatives for part in parts]),
        splits=None,
        faults=faults,
        hints=dict(first.hints),
        node_names=_pairs([part.node_names for part in parts]) if named else None,
    )


def _misfit(parts: Sequence[RawGraphs], level: str, name: str) -> str:
    """Say why a column cannot be joined; empty where it can."""
    lacking = next((part for part in parts if name not in part.columns[level]), None)
    owner = next(part for part in parts if name in part.columns[level])
    if lacking is not None:
        return f"{lacking.origin} has no {name}, but {owner.origin} has."
    values = owner.columns[level][name]
    for part in parts:
        other = part.columns[level][name]
        if other.shape[1:] != values.shape[1:]:
            widths = [max(1, int(np.prod(shape[1:]))) for shape in (other.shape, values.shape)]
            return f"{part.origin}: {name} has {widths[0]} columns, but {widths[1]} in {owner.origin}."
        if (other.dtype == object) != (values.dtype == object):
            return f"{part.origin}: {name} is text or numbers, and the other in {owner.origin}."
    return ""


def _pairs(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    found = [part for part in parts if part is not None]
    return np.concatenate(found) if found else None


def _names(parts: Sequence[RawGraphs]) -> list[str]:
    """Names of all graphs; those of a file that has names of another file say which file they are of."""
    taken: set[str] = set()
    names: list[str] = []
    for part in parts:
        again = bool(taken & set(part.names))
        here = [f"{Path(part.origin).name}:{name}" if again else name for name in part.names]
        taken |= set(here)
        names += here
    return names
