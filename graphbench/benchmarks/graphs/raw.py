"""Represent the graphs of a source as named columns of nodes, edges and graphs, before anything is inferred.

Legend: G graphs, and in all of them N nodes, E directed edges, and L pairs to rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphbench.contracts import GraphTable
from graphbench.contracts.table import EDGE, EDGE_INDEX, GRAPH, NODE, Column, pointer, ranges
from graphbench.errors import BadInput, UnknownName

Level = Literal["graph", "node", "edge"]
LEVELS: tuple[Level, ...] = ("graph", "node", "edge")
#: Kinds of pairs: pairs to rank, and pairs labelled as wrong.
LINK, NEGATIVE = "link", "negative"
#: Maps the kind of pairs to axis and column of a table, as read by the link task.
_PAIR_COLUMNS = {LINK: ("contact", "contact_index"), NEGATIVE: ("negative", "negative_index")}


class Pairs(NamedTuple):
    """Pairs of nodes: `ends [L, 2]`, and their number in each graph, `counts [G]`."""

    ends: np.ndarray
    counts: np.ndarray


@dataclass
class OneGraph:
    """One graph of a source that is read graph by graph.

    Args:
        place: file and line, for messages.
        name: name of the graph in predictions.
        num_nodes: number of nodes.
        edges: `[2, edges]`, integers.
        node, edge, graph: columns by name; one row per node or edge, and one value (or row of values) for the graph.
        pairs: kind -> `[2, pairs]`.
        node_names: names of the nodes; None if the source numbers them.
        faults: `(level, name)` -> message, as in `RawGraphs`.
    """

    place: str
    name: str
    num_nodes: int
    edges: np.ndarray
    node: dict[str, np.ndarray] = field(default_factory=dict)
    edge: dict[str, np.ndarray] = field(default_factory=dict)
    graph: dict[str, np.ndarray] = field(default_factory=dict)
    pairs: dict[str, np.ndarray] = field(default_factory=dict)
    node_names: Sequence[str] | None = None
    faults: dict[tuple[str, str], str] = field(default_factory=dict)

    def as_raw(self) -> RawGraphs:
        """Return this one graph, with the same arrays."""
        ends = {kind: pairs.T.reshape(-1, 2).astype(np.int64) for kind, pairs in self.pairs.items()}
        return RawGraphs(
            origin=self.place,
            num_nodes=np.array([self.num_nodes]),
            num_edges=np.array([self.edges.shape[1]]),
            edges=self.edges.T.reshape(-1, 2),
            columns={GRAPH: {name: row[None] for name, row in self.graph.items()}, NODE: self.node, EDGE: self.edge},
            names=[self.name],
            place=lambda level, row: self.place if level == GRAPH else f"{self.place}, {level} {row}",
            pairs={kind: Pairs(rows, np.array([len(rows)])) for kind, rows in ends.items()},
            faults=self.faults,
            node_names=None if self.node_names is None else np.array(self.node_names, dtype=object),
        )


@dataclass(frozen=True)
class RawPart:
    """Some graphs of a source, before they are built.

    Args:
        size: number of graphs.
        join: builds some of them, given their positions in ascending order.
        name_of: returns the name of a graph that cannot be built; None if graphs have no names.
        names_nodes: whether the graphs have `node_names`.
        one_by_one: whether graphs are parsed one by one, so that columns are those of a first graph.
    """

    size: int
    join: Callable[[Sequence[int]], RawGraphs]
    name_of: Callable[[int], str] | None
    names_nodes: bool = False
    one_by_one: bool = False


@dataclass
class RawGraphs:
    """Many graphs.

    Args:
        origin: origin of the graphs, for messages.
        num_nodes, num_edges: sizes of each graph `[G]`.
        edges: node numbers within their graph `[E, 2]`.
        columns: level -> name -> `[rows]` or `[rows, width]`; text has dtype object.
        names: names of the graphs in predictions.
        place: `(level, row)` -> file and line of that row.
        pairs: kind -> pairs, if the source has any.
        splits: rows of "train", "val" and "test" if the source gives them.
        faults: `(level, name)` -> error message when an unusable column is used.
        features: level -> columns that are features by default; None for all columns without another use.
        hints: `task`, `metric` and `split` if the source determines them; `links` if the links of one graph are split:
            by `column` or by `fractions`.
        node_names: names of the nodes `[N]`; None if the source numbers them.
    """

    origin: str
    num_nodes: np.ndarray
    num_edges: np.ndarray
    edges: np.ndarray
    columns: dict[str, dict[str, np.ndarray]]
    names: list[str]
    place: Callable[[str, int], str]
    pairs: dict[str, Pairs] = field(default_factory=dict)
    splits: dict[str, np.ndarray] | None = None
    faults: dict[tuple[str, str], str] = field(default_factory=dict)
    features: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    node_names: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.num_nodes)

    def column(self, level: str, name: str) -> np.ndarray:
        """Return a column.

        Raises:
            BadInput: some graphs lack it, or have it in another shape.
            UnknownName: there is no column of that name; suggests similar names.
        """
        if (level, name) in self.faults:
            raise BadInput(self.faults[level, name])
        if name not in self.columns[level]:
            raise UnknownName(f"column of {level}s in {self.origin}", name, self.columns[level])
        return self.columns[level][name]

    def check(self) -> None:
        """Refuse invalid graphs.

        Raises:
            BadInput: there are no graphs, a graph has no nodes, or an edge or pair has a node out of range.
        """
        if not len(self):
            raise BadInput(f"{self.origin} holds no graph.")
        if (empty := np.flatnonzero(self.num_nodes < 1)).size:
            raise BadInput(f"{self.place(GRAPH, int(empty[0]))} has no node.")
        for level, (ends, counts) in {EDGE: Pairs(self.edges, self.num_edges), **self.pairs}.items():
            if not ends.size or (ends.min() >= 0 and ends.max() < self.num_nodes.min()):
                continue  # valid in every graph; skips the array of limits for each row
            limit = np.repeat(self.num_nodes, counts)[:, None]
            wrong = np.flatnonzero(((ends < 0) | (ends >= limit)).any(1))
            if wrong.size:
                row = int(wrong[0])
                raise BadInput(
                    f"{self.place(level, row)}: joins the nodes {ends[row, 0]} and {ends[row, 1]}, but its graph has "
                    f"{limit[row, 0]} nodes, numbered from 0."
                )

    def numbered(self, ends: np.ndarray) -> np.ndarray:
        """Return a number for each edge with other ends `[E, 2]`, in the order of graph, first and second end `[E]`.

        Numbers are sorted many times faster than rows.
        """
        start = np.repeat(np.cumsum(self.num_nodes) - self.num_nodes, self.num_edges)
        keys: np.ndarray = (start + ends[:, 0]) * int(self.num_nodes.sum()) + start + ends[:, 1]
        return keys

    def copy(self) -> RawGraphs:
        """Return the graphs with copies of all arrays."""
        columns = {level: {name: rows.copy() for name, rows in named.items()} for level, named in self.columns.items()}
        return replace(self, edges=self.edges.copy(), columns=columns)

    def select(self, graphs: Sequence[int]) -> RawGraphs:
        """Return some graphs, in ascending order; messages still name their place in the source."""
        chosen = np.asarray(graphs, dtype=np.int64)
        counts = {GRAPH: np.ones(len(self), dtype=np.int64), NODE: self.num_nodes, EDGE: self.num_edges}
        counts |= {kind: pairs.counts for kind, pairs in self.pairs.items()}
        rows = {level: _rows_of(count, chosen) for level, count in counts.items()}
        return replace(
            self,
            num_nodes=self.num_nodes[chosen],
            num_edges=self.num_edges[chosen],
            edges=self.edges[rows[EDGE]],
            columns={
                level: {name: values[rows[level]] for name, values in named.items()}
                for level, named in self.columns.items()
            },
            names=[self.names[number] for number in rows[GRAPH]],
            place=lambda level, row: self.place(level, int(rows[level][row])),
            pairs={kind: Pairs(ends[rows[kind]], count[chosen]) for kind, (ends, count) in self.pairs.items()},
            splits=None,
            node_names=None if self.node_names is None else self.node_names[rows[NODE]],
        )

    def names_of_nodes(self) -> list[Sequence[str]] | None:
        """Return the names of the nodes of each graph; None if the source numbers them."""
        if self.node_names is None:
            return None
        return [part.tolist() for part in np.split(self.node_names, np.cumsum(self.num_nodes)[:-1])]

    def table(self, columns: Mapping[str, tuple[str, np.ndarray]]) -> GraphTable:
        """Return all graphs with their pairs and these columns, name -> (level, values)."""
        layout = {"edge_index": EDGE_INDEX} | {name: Column(level) for name, (level, _) in columns.items()}
        tensors = {"edge_index": torch.from_numpy(self.edges)}
        tensors |= {name: torch.from_numpy(values) for name, (_, values) in columns.items()}
        ptr = {NODE: pointer(torch.from_numpy(self.num_nodes)), EDGE: pointer(torch.from_numpy(self.num_edges))}
        for kind, (ends, counts) in self.pairs.items():
            axis, name = _PAIR_COLUMNS[kind]
            tensors[name], layout[name] = torch.from_numpy(ends), Column(axis, index_of=NODE)
            ptr[axis] = pointer(torch.from_numpy(counts))
        return GraphTable(tensors, layout, ptr)


def _rows_of(counts: np.ndarray, graphs: np.ndarray) -> np.ndarray:
    """Return the rows of some graphs, given how many rows each graph has."""
    rows: np.ndarray = ranges(*map(torch.from_numpy, ((np.cumsum(counts) - counts)[graphs], counts[graphs]))).numpy()
    return rows


def parts_of_raw(raw: RawGraphs, size: int) -> Iterator[RawPart]:
    """Split graphs in memory into parts of `size`."""
    for start in range(0, len(raw), size):
        names = raw.names[start : start + size]
        part = cache(partial(raw.select, range(start, start + len(names))))

        def join(rows: Sequence[int], part: Callable[[], RawGraphs] = part) -> RawGraphs:
            return part().select(rows)

        yield RawPart(len(names), join, names.__getitem__, raw.node_names is not None)


def as_array(value: Any) -> np.ndarray | None:
    """Convert numbers or texts to an array (dtype object for text); return None for anything else."""
    if value is None:
        return None
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_complex():
            return None
        value = value.detach().cpu()
        # NumPy has no bfloat16, and sums of its float16 overflow at 65,504.
        return np.asarray((value.float() if value.dtype in (torch.float16, torch.bfloat16) else value).numpy())
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        return None
    if array.dtype.kind in "US":
        return array.astype(object)
    if array.dtype.kind == "O":
        return array if all(isinstance(item, str) or item is None for item in array.reshape(-1)) else None
    return array if array.dtype.kind in "biuf" else None


def unreadable_fault(place: str, name: str, value: Any) -> str:
    """Return the message for a value that `as_array` does not convert."""
    kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
    return f"{place}: {name} is {kind}, which is neither real numbers nor text."


def as_rows(values: np.ndarray) -> np.ndarray:
    """Return a column as `[rows, width]`, even without rows."""
    return values.reshape(len(values), int(np.prod(values.shape[1:], dtype=np.int64)))  # -1 fails without a row


def stack(graphs: Sequence[OneGraph], origin: str) -> RawGraphs:
    """Join single graphs like `concatenate`; the result of a single graph shares its arrays."""
    if not graphs:
        raise BadInput(f"{origin} holds no graph.")
    return concatenate([graph.as_raw() for graph in graphs], origin)


def concatenate(parts: Sequence[RawGraphs], origin: str) -> RawGraphs:
    """Join graphs in order; columns that are missing or differ in shape in some graphs become faults."""
    faults = {key: fault for part in parts for key, fault in part.faults.items()}
    columns: dict[str, dict[str, np.ndarray]] = {level: {} for level in LEVELS}
    for level in LEVELS:
        per_part = [part.columns[level] for part in parts]
        if level == EDGE:
            per_part = _with_empty_columns(per_part, parts)
        for name in dict.fromkeys(name for named in per_part for name in named):
            if (level, name) in faults:
                continue
            if fault := _mismatch(name, per_part, parts):
                faults[level, name] = fault
            else:
                columns[level][name] = _concatenated([named[name] for named in per_part])
    pairs = {kind: _joined_pairs(parts, kind) for kind in _PAIR_COLUMNS if any(kind in part.pairs for part in parts)}
    num_nodes = np.concatenate([part.num_nodes for part in parts])
    starts = {GRAPH: np.cumsum([0, *map(len, parts)]), EDGE: np.cumsum([0, *(len(part.edges) for part in parts)])}
    starts[NODE] = np.concatenate([[0], np.cumsum(num_nodes)])[starts[GRAPH]]  # a part may have no node columns
    for kind in pairs:
        counts = [len(part.pairs[kind].ends) if kind in part.pairs else 0 for part in parts]
        starts[kind] = np.cumsum([0, *counts])

    def place(level: str, row: int) -> str:
        number = int(np.searchsorted(starts[level], row, side="right")) - 1
        return parts[number].place(level, row - int(starts[level][number]))

    node_names = [part.node_names for part in parts if part.node_names is not None]
    return RawGraphs(
        origin=origin,
        num_nodes=num_nodes,
        num_edges=np.concatenate([part.num_edges for part in parts]),
        edges=_concatenated([part.edges for part in parts]).astype(np.int64, order="C", copy=False),
        columns=columns,
        names=[name for part in parts for name in part.names],
        place=place,
        pairs=pairs,
        faults=faults,
        features=dict(parts[0].features),
        hints=dict(parts[0].hints),
        node_names=np.concatenate(node_names) if len(node_names) == len(parts) else None,
    )


def _joined_pairs(parts: Sequence[RawGraphs], kind: str) -> Pairs:
    pairs = [
        part.pairs.get(kind, Pairs(np.empty((0, 2), dtype=np.int64), np.zeros(len(part), dtype=np.int64)))
        for part in parts
    ]
    return Pairs(np.concatenate([ends for ends, _ in pairs]), np.concatenate([counts for _, counts in pairs]))


def _with_empty_columns(
    columns: Sequence[dict[str, np.ndarray]], parts: Sequence[RawGraphs]
) -> list[dict[str, np.ndarray]]:
    """Add to graphs without edges every edge column of the other graphs, without rows."""
    empty: dict[str, np.ndarray] = {}
    for named, part in zip(columns, parts, strict=True):
        for name in named if part.edges.size else ():
            empty.setdefault(name, named[name][:0])
    return [named if part.edges.size else {**named, **empty} for named, part in zip(columns, parts, strict=True)]


def _mismatch(name: str, columns: Sequence[Mapping[str, np.ndarray]], parts: Sequence[RawGraphs]) -> str:
    """Return why a column cannot be joined; "" if it can."""
    lacking = next((number for number, named in enumerate(columns) if name not in named), None)
    if lacking is not None:
        owner = next(number for number, named in enumerate(columns) if name in named)
        return f"{parts[lacking].origin} has no {name}, but {parts[owner].origin} has."
    first = columns[0][name]
    for named, part in zip(columns, parts, strict=True):
        values = named[name]
        if values.shape[1:] != first.shape[1:]:
            widths = [max(1, int(np.prod(shape[1:]))) for shape in (values.shape, first.shape)]
            return f"{part.origin}: {name} has {widths[0]} columns, but {widths[1]} in {parts[0].origin}."
        if (values.dtype == object) != (first.dtype == object):
            kinds = ["text" if rows.dtype == object else "numbers" for rows in (values, first)]
            return f"{part.origin}: {name} is {kinds[0]}, but {kinds[1]} in {parts[0].origin}."
    return ""


def _concatenated(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Join rows; a single part is not copied, since it may take gigabytes for a large graph."""
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def both_ways(ends: np.ndarray, graph: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Add the reverse of every edge, except for loops and edges whose reverse is also listed.

    Edges `[E, 2]` are sorted by graph `[E]`. Returns all directed edges, their number in each of `count` graphs, and
    the row that each comes from. Within a graph, the listed edges come first in their order, then the reverse ones.
    """
    width = int(ends.max(initial=0)) + 1
    # Number nodes consecutively, so that products of two numbers fit into 64 bits.
    numbers = np.unique(graph[:, None] * width + ends, return_inverse=True)[1].reshape(-1, 2)
    total = int(numbers.max(initial=0)) + 1
    one_way = ~np.isin(numbers[:, 1] * total + numbers[:, 0], numbers[:, 0] * total + numbers[:, 1])
    row = np.concatenate([np.arange(len(ends)), np.flatnonzero(one_way)])
    all_ends = np.concatenate([ends, ends[one_way][:, ::-1]])
    order = np.argsort(graph[row], kind="stable")
    return all_ends[order], np.bincount(graph[row], minlength=count), row[order]


def undirected(raw: RawGraphs) -> RawGraphs:
    """Add the reverse of every edge that has none, with the same features."""
    graph = np.repeat(np.arange(len(raw)), raw.num_edges)
    edges, counts, rows = both_ways(raw.edges, graph, len(raw))
    columns = raw.columns | {EDGE: {name: values[rows] for name, values in raw.columns[EDGE].items()}}

    def place(level: str, row: int) -> str:
        return raw.place(level, int(rows[row]) if level == EDGE else row)

    return replace(raw, edges=edges, num_edges=counts, columns=columns, place=place)
