"""Define encodings: tensors that are computed once per graph and kept in the store."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphbench.contracts.pyg import EncodedData, device_of, graphs_of_nodes, no_graphs
from graphbench.contracts.table import EDGE, EDGE_INDEX, GRAPH, NODE, PAIR, Column, GraphTable, pointer
from graphbench.errors import BadInput

Graphs = TypeVar("Graphs", bound=Data)

#: Fields that encodings may read in addition to edges, if a batch has them -> their axes.
_READ = {"x": NODE, "x_dense": NODE, "pos": NODE, "edge_attr": EDGE, "edge_dense": EDGE}


@dataclass
class Encoded:
    """Result of `Encoding.compute`.

    Args:
        columns: field name -> tensor with the rows of its axis, graph after graph.
        ptr: `[G + 1]` first rows for every axis that the encoding adds.

    Examples:
        >>> import torch
        >>> Encoded({"degree": torch.tensor([1, 2, 1])}).columns["degree"].shape  # one row per node
        torch.Size([3])
    """

    columns: dict[str, Tensor]
    ptr: dict[str, Tensor] = field(default_factory=dict)


class Encoding(ABC):
    """Precomputed features of graphs.

    Subclasses are small objects with options in `__init__`. Their name, `parameters()` and `version` are the key in the
    store, so two encodings with equal names, versions and parameters must compute equal tensors.

    Examples:
        >>> import torch
        >>> from graphbench.contracts import GraphTable
        >>> class OutDegree(Encoding):
        ...     layout = {"out_degree": Column("node")}
        ...     def compute(self, graphs):
        ...         tail = graphs.batch(range(len(graphs))).edge_index[0]
        ...         return Encoded({"out_degree": tail.bincount(minlength=int(graphs.num_nodes.sum()))})
        >>> path = {"num_nodes": 3, "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])}
        >>> OutDegree(), OutDegree().compute(GraphTable.from_graphs([path])).columns["out_degree"]
        (OutDegree(), tensor([1, 2, 1]))
    """

    #: Registered name; the class name unless set.
    name: ClassVar[str]
    #: Increase it when `compute` changes its result.
    version: ClassVar[int] = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def parameters(self) -> dict[str, Any]:
        """Return the options that change the result, as JSON values: by default all, from attributes of these names.

        Raises:
            BadInput: an option is not an attribute, so that the class must define this method.
        """
        options = inspect.signature(type(self)).parameters
        attributes = vars(self)  # without the class's `name` and `layout`
        if missing := [name for name in options if name not in attributes]:
            raise BadInput(f"{self.name} must define parameters(): its option {missing[0]} is not an attribute.")
        return {name: attributes[name] for name in options}

    @property
    @abstractmethod
    def layout(self) -> Mapping[str, Column]:
        """Return the layout of this encoding's fields by name, which determines how they are batched."""

    @abstractmethod
    def compute(self, graphs: GraphTable) -> Encoded:
        """Encode many graphs at once; the result must not depend on how the graphs are divided into chunks."""

    def memory(self, num_nodes: int, num_edges: int) -> int:
        """Estimate the memory in bytes that `compute` needs for one graph; 0 if that is little.

        The default is eight bytes per pair of nodes and column of pairs, which the store and batches contain.

        Args:
            num_nodes: nodes of the graph.
            num_edges: directed edges of the graph.
        """
        return 8 * num_nodes**2 * sum(column.axis == PAIR for column in self.layout.values())

    def __call__(self, graphs: Graphs) -> Graphs:
        """Return the graphs with the fields of this encoding, as a PyG transform, see `add_encodings`."""
        return add_encodings(graphs, self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoding) and (self.name, self.version, self.parameters()) == (
            other.name,
            other.version,
            other.parameters(),
        )

    def __hash__(self) -> int:
        # Parameters may contain lists, which are not hashable; `__eq__` compares them.
        return hash((self.name, self.version))

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.parameters().items())})"


def merge_encodings(encodings: Iterable[Encoding]) -> tuple[Encoding, ...]:
    """Return each encoding once; raise `BadInput` if two of one kind have different parameters."""
    merged: dict[str, Encoding] = {}
    for encoding in encodings:
        first = merged.setdefault(encoding.name, encoding)
        if first.parameters() != encoding.parameters():
            raise BadInput(
                f"Two parts of the model need {encoding.name} with different parameters: {first.parameters()} and "
                f"{encoding.parameters()}. A batch holds one {encoding.name}: give both parts the same options."
            )
    return tuple(merged.values())


def declared_encodings(module: nn.Module) -> Iterator[Encoding]:
    """Yield the `encodings` of a module and its parts, in order and possibly with repetitions."""
    for part in module.modules():
        yield from getattr(part, "encodings", ())


def add_encodings(batch: Graphs, *parts: Encoding | nn.Module) -> Graphs:
    """Return the same graphs with the fields of encodings, computed on the CPU.

    Benchmarks compute encodings once and store them; this is for other graphs. A single `Data` becomes an
    `EncodedData`, which PyG's `Batch` and `DataLoader` batch correctly. An encoding is itself a PyG transform:
    `T.Compose([LapPE(3), RWSE(8)])`.

    Args:
        batch: a PyG `Batch` or `Data`, on any device. Encodings read its `edge_index`; those that read features
            use `x`, `x_dense`, `pos`, `edge_attr` and `edge_dense`.
        parts: encodings, or modules (positional encoders, whole models) that need some.

    Returns:
        A shallow copy with the fields; `batch` is unchanged.

    Raises:
        BadInput: `batch` is something else, such as a list; two parts need one encoding with different parameters;
            nodes or edges are not sorted by graph; or the fields would be added to a custom subclass, which PyG would
            batch incorrectly.

    Examples:
        >>> from torch_geometric.data import Batch
        >>> from graphbench.encodings import RWSE
        >>> ring = Data(edge_index=torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]]), num_nodes=3)
        >>> add_encodings(Batch.from_data_list([ring, ring]), RWSE(4)).rwse[0]
        tensor([0.0000, 0.5000, 0.2500, 0.3750])
    """
    named = [(part,) if isinstance(part, Encoding) else declared_encodings(part) for part in parts]
    encodings = merge_encodings(chain.from_iterable(named))
    table = encode(graph_table(batch), encodings)
    layout = {name: column for encoding in encodings for name, column in encoding.layout.items()}
    gathered, device, out = table.batch(range(len(table))), device_of(batch), _encodable(batch, layout)
    axes = {column.axis for column in layout.values()} - {NODE, EDGE}
    names = layout.keys() | ({f"{axis}_{what}" for axis in axes for what in ("ptr", "batch")} & set(gathered.keys()))
    # Sorted, since sets have no order: equal graphs get the same fields in the same order.
    for name in sorted(names):
        out[name] = gathered[name].to(device)
    return out


def _encodable(graphs: Graphs, layout: Mapping[str, Column]) -> Graphs:
    """Return a shallow copy to which these columns can be added; for a single graph, with their layout."""
    # A Batch is not batched again, so it needs no layout.
    if "batch" in graphs:
        return copy.copy(graphs)
    if type(graphs) not in (Data, EncodedData):
        special = [name for name, column in layout.items() if column.index_of or column.axis not in (NODE, EDGE, GRAPH)]
        if special:
            raise BadInput(
                f"add_encodings cannot add {', '.join(special)} to a {type(graphs).__name__}, whose __inc__ and "
                "__cat_dim__ do not know them. Give it a torch_geometric.data.Data, or a Batch of them."
            )
        return copy.copy(graphs)
    out = EncodedData.from_dict(graphs.to_dict())
    out.hold_columns(layout)
    return out  # type: ignore[return-value]


def encode(table: GraphTable, encodings: Iterable[Encoding]) -> GraphTable:
    """Return the table with the fields of these encodings."""
    for encoding in encodings:
        encoded = encoding.compute(table)
        table = table.with_columns(encoded.columns, encoding.layout, encoded.ptr)
    return table


def check_encoded(batch: Data, module: nn.Module) -> None:
    """Refuse graphs without the encodings that a module reads, and name the call that adds them."""
    for encoding in merge_encodings(declared_encodings(module)):
        missing = [name for name in encoding.layout if name not in batch]
        if missing:
            raise BadInput(
                f"The graphs have no {', '.join(missing)}, which {encoding} computes. Add what the model needs: "
                "graphbench.nn.add_encodings(graphs, model); or request it from a benchmark before data.setup(): "
                "data.require(model.required_encodings())."
            )


def graph_table(batch: Data) -> GraphTable:
    """Convert graphs to a table of the fields that encodings may read."""
    if not isinstance(batch, Data):
        raise no_graphs(batch)
    graph_of, ptr = (tensor.cpu() for tensor in graphs_of_nodes(batch))
    if batch.edge_index is None:
        raise BadInput("add_encodings needs graphs with an edge_index, but the batch has none.")
    edges = batch.edge_index.cpu()
    graph_of_edge = graph_of[edges[0]]
    if bool((graph_of_edge.diff() < 0).any()) or not torch.equal(graph_of_edge, graph_of[edges[1]]):
        raise BadInput("edge_index must list edges graph after graph, without edges between two graphs.")
    columns, layout = {"edge_index": (edges - ptr[graph_of_edge]).t().contiguous()}, {"edge_index": EDGE_INDEX}
    for name, axis in _READ.items():
        value = batch.get(name)
        if value is not None:
            columns[name], layout[name] = value.cpu(), Column(axis)
    of_edges = pointer(torch.bincount(graph_of_edge, minlength=len(ptr) - 1))
    return GraphTable(columns, layout, {NODE: ptr, EDGE: of_edges})
