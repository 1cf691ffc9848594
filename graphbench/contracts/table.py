"""Store many graphs as one ragged table of columns, and gather batches from it.

A benchmark is not a list of graph objects but a few long arrays, one per column, which can be memory-mapped.
A batch is gathered from them with a few vectorised copies, whatever the number of graphs.

Legend: G graphs; an axis is a way of counting rows: "graph" (one row per graph), "node", "edge" (directed), "pair"
(n * n rows per graph, row-major), or any axis an encoding adds ("substructure", ...).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphbench.errors import BadInput

GRAPH, NODE, EDGE, PAIR = "graph", "node", "edge", "pair"
AXES = (GRAPH, NODE, EDGE, PAIR)
#: Names of the two ends of an edge in tables of predictions, where `target` is the truth.
ENDS = ("source", "destination")
#: Column with the weight of each row of `y` in the loss.
WEIGHT = "weight"
#: Columns in the shape of `y` with bounds of targets that are not known exactly (`>10`), NaN elsewhere.
BOUNDS = ("y_lower", "y_upper")
#: Column with numbers that describe each graph `[graphs, F]`, see `BenchmarkSpec.graph`.
GRAPH_DENSE = "graph_dense"


@dataclass(frozen=True)
class Column:
    """Layout of one tensor, which determines how it is batched.

    Args:
        axis: what its rows count.
        index_of: its values are row numbers of this axis *within their graph* ("node" for `edge_index`); a batch
            adds the offset of the graph. None for ordinary values.

    Examples:
        >>> Column("edge", index_of="node")  # as edge_index: one row per edge, its values number nodes
        Column(axis='edge', index_of='node')
    """

    axis: str
    index_of: str | None = None


EDGE_INDEX = Column(EDGE, index_of=NODE)


class GraphBatch(Data):
    """A batch of graphs in PyG's layout: node tensors of all graphs one after the other.

    Always present: `edge_index [2, num_edges]`, `batch [num_nodes]` (graph of each node), `ptr [num_graphs + 1]`,
    `num_graphs`, `max_nodes` (Python integers, so that padding never waits for the device) and `graph_id [num_graphs]`
    (row in the table). Depending on the specification: `x`, `x_dense`, `edge_attr`, `edge_dense`, `pos`, `y`; `weight`,
    float32 with one number per row of `y`, if the rows have weights in the loss; `y_lower` and `y_upper`, in the
    shape of `y`, if targets that are NaN in `y` are known to be above or below a bound; and the fields of the
    encodings under their names. For an axis that an encoding adds, `{axis}_batch` and `{axis}_ptr` give the
    graph of each of its rows; "pair" has only `pair_ptr`.

    Examples:
        >>> path = {"num_nodes": 3, "edge_index": torch.tensor([[0, 1], [1, 2]])}
        >>> batch = GraphTable.from_graphs([path, path]).batch([0, 1])
        >>> batch.edge_index  # nodes are numbered through the whole batch
        tensor([[0, 1, 3, 4],
                [1, 2, 4, 5]])
        >>> batch.batch, batch.ptr
        (tensor([0, 0, 0, 1, 1, 1]), tensor([0, 3, 6]))
    """

    num_graphs: int
    max_nodes: int

    @property
    def num_nodes(self) -> Any:
        """Number of nodes, read from a shape: torch.compile cannot trace PyG's search through all fields."""
        return super().num_nodes if self.batch is None else self.batch.shape[0]

    @num_nodes.setter
    def num_nodes(self, nodes: Any) -> None:
        self._store.num_nodes = nodes

    @contextlib.contextmanager
    def noted_reads(self) -> Iterator[set[str]]:
        """Collect the names of the fields that are read within the block.

        Examples:
            >>> batch = GraphBatch(x=torch.ones(2, 1), pos=torch.ones(2, 3))
            >>> with batch.noted_reads() as names:
            ...     total = batch.x.sum()
            >>> names
            {'x'}
        """
        fields = self._store._mapping
        noted = _NotedFields(fields)
        self._store._mapping = noted
        try:
            yield noted.read
        finally:
            self._store._mapping = fields

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:  # pragma: no cover - PyG protocol
        raise TypeError("a GraphBatch is already a batch: cut a larger one from the GraphTable instead")


class _NotedFields(dict[str, Any]):
    """Fields of a batch, with the names of those that have been read."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


def ranges(starts: Tensor, lengths: Tensor) -> Tensor:
    """Concatenate the row numbers `start, start + 1, ...` of all ranges: `[sum(lengths)]`."""
    ends = lengths.cumsum(0)
    total = int(ends[-1]) if len(ends) else 0
    # With `output_size` torch need not sum the lengths again.
    shift = torch.repeat_interleave(starts - (ends - lengths), lengths, output_size=total)
    return torch.arange(total, dtype=torch.int64) + shift


def pointer(lengths: Tensor) -> Tensor:
    """Return the first row of each ragged part, given `lengths [G]`, and the end: `[G + 1]`, on the same device."""
    ptr = lengths.new_zeros(len(lengths) + 1, dtype=torch.int64)
    torch.cumsum(lengths, 0, out=ptr[1:])
    return ptr


@dataclass
class GraphTable:
    """G graphs as columns.

    Args:
        columns: name -> tensor with the rows of its axis, graph after graph. `edge_index` is `[edges, 2]`
            with node numbers that start at 0 in every graph.
        layout: name -> `Column`, for the same names.
        ptr: axis -> `[G + 1]` first row of each graph, for every axis except "graph".

    Examples:
        >>> path = {"num_nodes": 3, "edge_index": torch.tensor([[0, 1], [1, 2]])}
        >>> point = {"num_nodes": 1, "edge_index": torch.empty(2, 0, dtype=torch.int64)}
        >>> table = GraphTable.from_graphs([path, point])
        >>> len(table), table.num_nodes, table.num_edges
        (2, tensor([3, 1]), tensor([2, 0]))
        >>> table
        GraphTable(2 graphs, edge_index=int64 [2, 2])
    """

    columns: dict[str, Tensor]
    layout: dict[str, Column]
    ptr: dict[str, Tensor]
    graph_ids: Tensor | None = None

    def __repr__(self) -> str:
        """Show the shapes of the columns, whose values would fill pages of a notebook."""
        shapes = (f"{name}={str(t.dtype)[6:]} {list(t.shape)}" for name, t in self.columns.items())
        return f"GraphTable({', '.join((f'{len(self):,} graphs', *shapes))})"

    @classmethod
    def from_graphs(cls, graphs: Iterable[Mapping[str, Any]], layout: Mapping[str, Column] | None = None) -> GraphTable:
        """Stack single graphs: mappings with `num_nodes`, `edge_index [2, edges]` and any further tensors.

        The usual names (`x`, `x_dense`, `pos`: node; `edge_attr`, `edge_dense`: edge; `y`: graph, or node if it has
        one row per node) need no `layout`; other names must be in it.

        Raises:
            BadInput: a graph has another number of rows in a column than nodes, edges or whatever its axis counts.
        """
        graphs = list(graphs)
        axes = {"x": NODE, "x_dense": NODE, "pos": NODE, "edge_attr": EDGE, "edge_dense": EDGE, GRAPH_DENSE: GRAPH}
        layouts: dict[str, Column] = {"edge_index": EDGE_INDEX, **{k: Column(a) for k, a in axes.items()}}
        node_level = bool(graphs) and all(
            "y" in g and torch.as_tensor(g["y"]).dim() > 0 and len(g["y"]) == g["num_nodes"] for g in graphs
        )
        layouts["y"] = Column(NODE if node_level else GRAPH)
        layouts.update(layout or {})
        nodes = torch.tensor([int(g["num_nodes"]) for g in graphs], dtype=torch.int64)
        edges = torch.tensor([g["edge_index"].shape[1] for g in graphs], dtype=torch.int64)
        ptr = {NODE: pointer(nodes), EDGE: pointer(edges)}
        rows = {GRAPH: torch.ones_like(nodes), NODE: nodes, EDGE: edges, PAIR: nodes**2}
        columns: dict[str, Tensor] = {}
        used: dict[str, Column] = {}
        for name in graphs[0] if graphs else ():
            if name == "num_nodes":
                continue
            column = used[name] = layouts[name]
            # Edges are rows here, `[edges, 2]`, so that all columns are split into graphs the same way.
            parts = [g[name].t() if name == "edge_index" else torch.as_tensor(g[name]) for g in graphs]
            if column.axis == GRAPH:
                parts = [part.reshape(1, -1) if part.dim() < 2 else part for part in parts]
            counted = torch.tensor([len(part) for part in parts])
            expected = rows.setdefault(column.axis, counted)
            # A sum may hide it: all graphs between one with a row too few and one with a row too many would shift.
            if not torch.equal(counted, expected):
                graph = int((counted != expected).nonzero()[0])
                raise BadInput(
                    f"graph {graph} has {int(counted[graph])} rows in {name!r}, but {int(expected[graph])} of its axis "
                    f"{column.axis!r}."
                )
            if column.axis not in (GRAPH, *ptr):
                ptr[column.axis] = pointer(counted)
            columns[name] = torch.cat(parts)
        return cls(columns, used, ptr)

    def __len__(self) -> int:
        return len(self.ptr[NODE]) - 1

    @property
    def num_nodes(self) -> Tensor:
        """Nodes of each graph `[G]`."""
        return self.ptr[NODE].diff()

    @property
    def num_edges(self) -> Tensor:
        """Directed edges of each graph `[G]`."""
        return self.ptr[EDGE].diff()

    def lengths(self, axis: str) -> Tensor:
        """Rows of each graph along `axis` `[G]`."""
        if axis == GRAPH:
            return torch.ones(len(self), dtype=torch.int64)
        if axis == PAIR and PAIR not in self.ptr:
            return self.num_nodes**2
        return self.ptr[axis].diff()

    def with_columns(
        self, columns: Mapping[str, Tensor], layout: Mapping[str, Column], ptr: Mapping[str, Tensor] | None = None
    ) -> GraphTable:
        """Add columns to a copy of the table; the arrays themselves are shared, not copied."""
        joined = dict(self.ptr) | dict(ptr or {})
        if PAIR not in joined and any(column.axis == PAIR for column in layout.values()):
            joined[PAIR] = pointer(self.num_nodes**2)
        return GraphTable(self.columns | dict(columns), self.layout | dict(layout), joined, self.graph_ids)

    def slice(self, start: int, stop: int) -> GraphTable:
        """Return graphs `start .. stop - 1` as views into the same arrays."""
        ptr = {axis: p[start : stop + 1] - p[start] for axis, p in self.ptr.items()}
        columns = {}
        for name, column in self.layout.items():
            bounds = (start, stop) if column.axis == GRAPH else self.ptr[column.axis][[start, stop]].tolist()
            columns[name] = self.columns[name][bounds[0] : bounds[1]]
        ids = torch.arange(start, stop) if self.graph_ids is None else self.graph_ids[start:stop]
        return GraphTable(columns, dict(self.layout), ptr, ids)

    def select(self, indices: Tensor) -> GraphTable:
        """Copy the chosen graphs to a new table, in the given order.

        Raises:
            BadInput: the indices are a mask or real numbers.
        """
        indices = torch.as_tensor(indices)
        if len(indices) and (indices.is_floating_point() or indices.dtype == torch.bool):
            raise BadInput(f"expected numbers of graphs, got {indices.dtype}. For a mask, use mask.nonzero()[:, 0].")
        indices = indices.to(torch.int64)
        rows = {axis: ranges(p[indices], p[indices + 1] - p[indices]) for axis, p in self.ptr.items()}
        rows[GRAPH] = indices
        columns = {name: self.columns[name][rows[column.axis]] for name, column in self.layout.items()}
        ptr = {axis: pointer(p[indices + 1] - p[indices]) for axis, p in self.ptr.items()}
        ids = indices if self.graph_ids is None else self.graph_ids[indices]
        return GraphTable(columns, dict(self.layout), ptr, ids)

    def batch(self, indices: Sequence[int] | Tensor) -> GraphBatch:
        """Gather the chosen graphs into one `GraphBatch`."""
        part = self.select(torch.as_tensor(indices))
        batch = GraphBatch()
        graph_of: dict[str, Tensor] = {}
        indexed = {column.axis for column in part.layout.values() if column.index_of}
        for axis, ptr in part.ptr.items():
            # Pairs are n^2 rows per graph, and hardly any column needs the graph of each.
            if axis != PAIR or axis in indexed:
                graph_of[axis] = torch.repeat_interleave(torch.arange(len(part)), ptr.diff(), output_size=int(ptr[-1]))
            if axis not in (NODE, EDGE):
                batch[f"{axis}_ptr"] = ptr
            if axis not in AXES:
                batch[f"{axis}_batch"] = graph_of[axis]
        for name, column in part.layout.items():
            value = part.columns[name]
            if column.index_of is not None:
                offset = part.ptr[column.index_of][:-1]
                offset = offset if column.axis == GRAPH else offset[graph_of[column.axis]]
                value = value.to(torch.int64) + offset.reshape(-1, *[1] * (value.dim() - 1))
            # The store uses small integers and half precision, which embeddings and losses do not accept.
            elif not value.is_floating_point() and value.dtype != torch.bool:
                value = value.to(torch.int64)
            elif value.dtype == torch.float16:
                value = value.float()
            batch[name] = value.t().contiguous() if name == "edge_index" else value
        batch.batch, batch.ptr = graph_of[NODE], part.ptr[NODE]
        batch.graph_id = part.graph_ids
        batch.num_nodes = int(part.ptr[NODE][-1])
        batch.num_graphs, batch.max_nodes = len(part), int(part.num_nodes.max()) if len(part) else 0
        return batch
