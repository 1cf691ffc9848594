"""Graphs as a source gives them: named columns of nodes, edges and graphs, before anything is inferred from them.

Legend: G graphs, N nodes, E directed edges, L pairs to be ranked, each of all graphs together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphbench.contracts import GraphTable
from graphbench.contracts.table import EDGE, EDGE_INDEX, GRAPH, NODE, Column, pointer
from graphbench.errors import BadInput, UnknownName

Level = Literal["graph", "node", "edge"]
LEVELS: tuple[Level, ...] = ("graph", "node", "edge")
LINK, LINKS = "contact", "contact_index"  # the names under which the task of links reads its pairs
WRONG, NEGATIVES = "negative", "negative_index"  # and pairs that are known to be wrong


@dataclass
class OneGraph:
    """One graph of a source that gives them one by one.

    Args:
        place: where it stands, for messages.
        name: what predictions call it.
        num_nodes: its nodes.
        edges: `[2, edges]`, integers.
        node, edge, graph: columns by name; one row per node or edge, and one value (or row of values) of the graph.
        links: pairs to be ranked `[2, links]`, or None.
        negatives: pairs that are wrong `[2, negatives]`, or None.
        node_names: what the source calls the nodes; None where it numbers them.
    """

    place: str
    name: str
    num_nodes: int
    edges: np.ndarray
    node: dict[str, np.ndarray] = field(default_factory=dict)
    edge: dict[str, np.ndarray] = field(default_factory=dict)
    graph: dict[str, np.ndarray] = field(default_factory=dict)
    links: np.ndarray | None = None
    node_names: Sequence[str] | None = None
    negatives: np.ndarray | None = None


@dataclass(frozen=True)
class Unread:
    """A graph of a source that can be read one by one, before it is read.

    Args:
        name: what predictions call it where it cannot be read and says no name of its own.
        read: reads it.
        names_nodes: whether the graph has `node_names`.
        own_name: finds the name that a graph gives itself though it cannot be read; None where it gives none.
    """

    name: str
    read: Callable[[], OneGraph]
    names_nodes: bool = False
    own_name: Callable[[], str | None] | None = None

    def name_in_vain(self) -> str:
        """What to call the graph once reading it has failed."""
        own = None if self.own_name is None else self.own_name()
        return self.name if own is None else own


@dataclass(frozen=True)
class RawPart:
    """Graphs of a source that can be read in parts, before they are made.

    Args:
        names: what predictions call them.
        join: makes some of them, by their places in `names` in ascending order.
        names_nodes: whether they have `node_names`.
    """

    names: list[str]
    join: Callable[[Sequence[int]], RawGraphs]
    names_nodes: bool = False


@dataclass
class RawGraphs:
    """Many graphs.

    Args:
        origin: what they were read from, for messages.
        num_nodes, num_edges: of each graph `[G]`.
        edges: node numbers within their graph `[E, 2]`.
        columns: level -> name -> `[rows]` or `[rows, width]`; text is of dtype object.
        names: what predictions call the graphs.
        place: `(level, row)` -> where that row stands.
        links, num_links: pairs `[L, 2]` and their number in each graph `[G]`; None where there are none.
        negatives, num_negatives: the same for pairs that the source calls wrong.
        splits: rows of "train", "val" and "test" where the source says so.
        faults: `(level, name)` -> why a column cannot be used; said when it is asked for.
        features: level -> columns that are features unless others are named; None means all that are left over.
        hints: what the source knows of its task: `task`, `metric`.
        node_names: what the source calls the nodes `[N]`; None where it numbers them.
    """

    origin: str
    num_nodes: np.ndarray
    num_edges: np.ndarray
    edges: np.ndarray
    columns: dict[str, dict[str, np.ndarray]]
    names: list[str]
    place: Callable[[str, int], str]
    links: np.ndarray | None = None
    num_links: np.ndarray | None = None
    splits: dict[str, np.ndarray] | None = None
    faults: dict[tuple[str, str], str] = field(default_factory=dict)
    features: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    node_names: np.ndarray | None = None
    negatives: np.ndarray | None = None
    num_negatives: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.num_nodes)

    def column(self, level: str, name: str) -> np.ndarray:
        """A column that is there and whole.

        Raises:
            BadInput: some graphs lack it, or have it in another shape.
            UnknownName: there is none of that name; names near matches.
        """
        if (level, name) in self.faults:
            raise BadInput(self.faults[level, name])
        if name not in self.columns[level]:
            raise UnknownName(f"column of {level}s in {self.origin}", name, self.columns[level])
        return self.columns[level][name]

    def check(self) -> None:
        """Refuse what is no set of graphs.

        Raises:
            BadInput: there is no graph, one has no node, or an edge or pair leads to a node that is not there.
        """
        if not len(self):
            raise BadInput(f"{self.origin} holds no graph.")
        if (empty := np.flatnonzero(self.num_nodes < 1)).size:
            raise BadInput(f"{self.place(GRAPH, int(empty[0]))} has no node.")
        self._check_ends(self.edges, self.num_edges, EDGE)
        if self.links is not None and self.num_links is not None:
            self._check_ends(self.links, self.num_links, "link")
        if self.negatives is not None and self.num_negatives is not None:
            self._check_ends(self.negatives, self.num_negatives, WRONG)

    def without_links(self) -> RawGraphs:
        """The graphs without pairs."""
        return replace(self, links=None, num_links=None, negatives=None, num_negatives=None)

    def _check_ends(self, pairs: np.ndarray, counts: np.ndarray, level: str) -> None:
        if not pairs.size or (pairs.min() >= 0 and pairs.max() < self.num_nodes.min()):
            return  # true of every row, which a single large graph need not be asked one by one
        limit = np.repeat(self.num_nodes, counts)[:, None]
        wrong = np.flatnonzero(((pairs < 0) | (pairs >= limit)).any(1))
        if wrong.size:
            row = int(wrong[0])
            raise BadInput(
                f"{self.place(level, row)}: joins the nodes {pairs[row, 0]} and {pairs[row, 1]}, but its graph has "
                f"{limit[row, 0]} nodes, numbered from 0."
            )

    def copied(self) -> RawGraphs:
        """The graphs in arrays of their own, which nobody else can change."""
        columns = {
            level: {name: values.copy() for name, values in found.items()} for level, found in self.columns.items()
        }
        return replace(self, edges=self.edges.copy(), columns=columns)

    def select(self, graphs: Sequence[int]) -> RawGraphs:
        """Some graphs, in ascending order; messages still name where they stand in the source."""
        chosen = np.zeros(len(self), dtype=bool)
        chosen[list(graphs)] = True
        of_level = {GRAPH: np.ones(len(self), dtype=np.int64), NODE: self.num_nodes, EDGE: self.num_edges}
        rows = {level: np.flatnonzero(np.repeat(chosen, counts)) for level, counts in of_level.items()}
        if self.links is not None and self.num_links is not None:
            rows["link"] = np.flatnonzero(np.repeat(chosen, self.num_links))
        if self.negatives is not None and self.num_negatives is not None:
            rows[WRONG] = np.flatnonzero(np.repeat(chosen, self.num_negatives))
        return replace(
            self,
            num_nodes=self.num_nodes[chosen],
            num_edges=self.num_edges[chosen],
            edges=self.edges[rows[EDGE]],
            columns={
                level: {name: values[rows[level]] for name, values in found.items()}
                for level, found in self.columns.items()
            },
            names=[name for name, kept in zip(self.names, chosen.tolist(), strict=True) if kept],
            place=lambda level, row: self.place(level, int(rows[level][row])),
            links=None if self.links is None else self.links[rows["link"]],
            num_links=None if self.num_links is None else self.num_links[chosen],
            negatives=None if self.negatives is None else self.negatives[rows[WRONG]],
            num_negatives=None if self.num_negatives is None else self.num_negatives[chosen],
            splits=None,
            node_names=None if self.node_names is None else self.node_names[rows[NODE]],
        )

    def names_of_nodes(self) -> list[Sequence[str]] | None:
        """What the source calls the nodes of each graph; None where it numbers them."""
        if self.node_names is None:
            return None
        return [part.tolist() for part in np.split(self.node_names, np.cumsum(self.num_nodes)[:-1])]

    def table(self, columns: Mapping[str, tuple[str, np.ndarray]]) -> GraphTable:
        """All graphs with these columns, name -> (level, values), and the pairs where there are some."""
        layout = {"edge_index": EDGE_INDEX} | {name: Column(level) for name, (level, _) in columns.items()}
        tensors = {"edge_index": torch.from_numpy(self.edges)}
        tensors |= {name: torch.from_numpy(values) for name, (_, values) in columns.items()}
        ptr = {NODE: pointer(torch.from_numpy(self.num_nodes)), EDGE: pointer(torch.from_numpy(self.num_edges))}
        if self.links is not None and self.num_links is not None:
            tensors[LINKS], layout[LINKS] = torch.from_numpy(self.links), Column(LINK, index_of=NODE)
            ptr[LINK] = pointer(torch.from_numpy(self.num_links))
        if self.negatives is not None and self.num_negatives is not None:
            tensors[NEGATIVES], layout[NEGATIVES] = torch.from_numpy(self.negatives), Column(WRONG, index_of=NODE)
            ptr[WRONG] = pointer(torch.from_numpy(self.num_negatives))
        return GraphTable(tensors, layout, ptr)


def parts_of_raw(raw: RawGraphs, size: int) -> Iterator[RawPart]:
    """Graphs that are in memory, so many at a time."""
    for start in range(0, len(raw), size):
        select = lambda rows, start=start: raw.select([start + row for row in rows])  # noqa: E731
        yield RawPart(raw.names[start : start + size], select, raw.node_names is not None)


def as_array(value: Any) -> np.ndarray | None:
    """Numbers or texts as an array; None for anything else. Text becomes dtype object."""
    if value is None:
        return None
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_complex():
            return None
        value = value.detach().cpu()
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


def as_rows(values: np.ndarray) -> np.ndarray:
    """A column as `[rows, width]`, also where there is no row."""
    return values.reshape(len(values), int(np.prod(values.shape[1:], dtype=np.int64)))


def stack(graphs: Sequence[OneGraph], origin: str) -> RawGraphs:
    """Join single graphs; columns that do not fit together are noted as faults. A graph alone shares its arrays.

    Raises:
        BadInput: there is no graph.
    """
    if not graphs:
        raise BadInput(f"{origin} holds no graph.")
    faults: dict[tuple[str, str], str] = {}
    columns: dict[str, dict[str, np.ndarray]] = {}
    for level in LEVELS:
        per_graph = [getattr(graph, level) for graph in graphs]
        if level == EDGE:
            per_graph = _with_no_rows(per_graph, graphs)
        columns[level] = {}
        for name in dict.fromkeys(name for found in per_graph for name in found):
            fault = _misfit(name, level, per_graph, graphs)
            if fault:
                faults[level, name] = fault
            else:
                parts = [found[name] for found in per_graph]
                columns[level][name] = np.stack(parts) if level == GRAPH else _concatenated(parts)
    edges = [graph.edges.T.reshape(-1, 2) for graph in graphs]
    starts = {
        NODE: np.cumsum([0, *(graph.num_nodes for graph in graphs)]),
        EDGE: np.cumsum([0, *map(len, edges)]),
    }
    links, starts["link"] = _pairs([graph.links for graph in graphs])
    negatives, starts[WRONG] = _pairs([graph.negatives for graph in graphs])

    def place(level: str, row: int) -> str:
        if level == GRAPH:
            return graphs[row].place
        number = int(np.searchsorted(starts[level], row, side="right")) - 1
        return f"{graphs[number].place}, {level} {row - int(starts[level][number])}"

    return RawGraphs(
        origin=origin,
        num_nodes=np.diff(starts[NODE]),
        num_edges=np.diff(starts[EDGE]),
        edges=_concatenated(edges).astype(np.int64, order="C", copy=False),
        columns=columns,
        names=[graph.name for graph in graphs],
        place=place,
        links=links,
        num_links=None if links is None else np.diff(starts["link"]),
        negatives=negatives,
        num_negatives=None if negatives is None else np.diff(starts[WRONG]),
        faults=faults,
        node_names=_joined_names(graphs),
    )


def _pairs(parts: Sequence[np.ndarray | None]) -> tuple[np.ndarray | None, np.ndarray]:
    """Pairs of all graphs `[L, 2]`, None where no graph has any, and where those of each graph begin and end."""
    none = np.empty((0, 2), dtype=np.int64)
    rows = [none if part is None else part.T.reshape(-1, 2).astype(np.int64) for part in parts]
    joined = None if all(part is None for part in parts) else np.concatenate(rows)
    return joined, np.cumsum([0, *map(len, rows)])


def _with_no_rows(
    columns: Sequence[Mapping[str, np.ndarray]], graphs: Sequence[OneGraph]
) -> list[dict[str, np.ndarray]]:
    """Columns of edges, of which a graph without edges has all that others have, with no row."""
    first: dict[str, np.ndarray] = {}
    for found, graph in zip(columns, graphs, strict=True):
        for name in found if graph.edges.size else ():
            first.setdefault(name, found[name])
    none = {name: values[:0] for name, values in first.items()}
    return [
        dict(found) if graph.edges.size else {**found, **none} for found, graph in zip(columns, graphs, strict=True)
    ]


def _concatenated(parts: Sequence[np.ndarray]) -> np.ndarray:
    """All rows; a large graph's may be gigabytes, so one part is not copied."""
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def both_ways(ends: np.ndarray, graph: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every edge with its reverse beside it; one whose reverse is listed too, and a loop, stay as they are.

    Args:
        ends: `[E, 2]`.
        graph: of each edge, ascending `[E]`.
        count: graphs there are.

    Returns:
        Ends of all directed edges, their number in each graph, and the row that each is from; within a graph first
        the listed edges in their order, then the reverse ones.
    """
    width = int(ends.max(initial=0)) + 1
    numbers = np.unique(graph[:, None] * width + ends, return_inverse=True)[1].reshape(-1, 2)  # small: squares fit
    total = int(numbers.max(initial=0)) + 1
    lonely = ~np.isin(numbers[:, 1] * total + numbers[:, 0], numbers[:, 0] * total + numbers[:, 1])
    row = np.concatenate([np.arange(len(ends)), np.flatnonzero(lonely)])
    every = np.concatenate([ends, ends[lonely][:, ::-1]])
    order = np.argsort(graph[row], kind="stable")
    return every[order], np.bincount(graph[row], minlength=count), row[order]


def undirected(raw: RawGraphs) -> RawGraphs:
    """The graphs with the reverse of every edge that has none, which has the features of that edge."""
    graph = np.repeat(np.arange(len(raw)), raw.num_edges)
    edges, counts, rows = both_ways(raw.edges, graph, len(raw))
    columns = raw.columns | {EDGE: {name: values[rows] for name, values in raw.columns[EDGE].items()}}
    place = lambda level, row: raw.place(level, int(rows[row]) if level == EDGE else row)  # noqa: E731
    return replace(raw, edges=edges, num_edges=counts, columns=columns, place=place)


def _joined_names(graphs: Sequence[OneGraph]) -> np.ndarray | None:
    names = [graph.node_names for graph in graphs if graph.node_names is not None]
    return np.array([name for part in names for name in part], dtype=object) if len(names) == len(graphs) else None


def _misfit(name: str, level: str, per_graph: Sequence[Mapping[str, np.ndarray]], graphs: Sequence[OneGraph]) -> str:
    """Why a column cannot be joined; empty where it can."""
    lacking = next((number for number, found in enumerate(per_graph) if name not in found), None)
    if lacking is not None:
        owner = next(number for number, found in enumerate(per_graph) if name in found)
        return f"{graphs[lacking].place} has no {name}, but {graphs[owner].place} has."
    first, skip = per_graph[0][name], 0 if level == GRAPH else 1
    for number, found in enumerate(per_graph):
        values = found[name]
        if values.shape[skip:] != first.shape[skip:]:
            widths = [max(1, int(np.prod(shape[skip:]))) for shape in (values.shape, first.shape)]
            return f"{graphs[number].place}: {name} has {widths[0]} columns, but {widths[1]} in {graphs[0].place}."
        if (values.dtype == object) != (first.dtype == object):
            return f"{graphs[number].place}: {name} is {_kind(values)}, but {_kind(first)} in {graphs[0].place}."
    return ""


def _kind(values: np.ndarray) -> str:
    return "text" if values.dtype == object else "numbers"
