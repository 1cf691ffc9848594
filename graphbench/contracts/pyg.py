"""Convert between PyG's graphs and a `GraphBatch`; let PyG's loaders batch graphs with encodings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, Dataset

from graphbench.contracts.spec import BenchmarkSpec, Features
from graphbench.contracts.table import Column, GraphBatch, GraphTable, pointer
from graphbench.errors import BadInput

#: Field of an `EncodedData` with the layout of its encodings.
_LAYOUT = "encoding_layout"
#: Fields that PyG batches correctly by their names.
_FIELDS = {"edge_index", "x", "x_dense", "pos", "edge_attr", "edge_dense", "y", "weight"}


class EncodedData(Data):
    """A single PyG graph with the fields of encodings, which PyG's loaders batch like a `GraphTable`.

    PyG chooses the offset of a field by its name, and so adds none to edges of an expander or members of a
    substructure. This class uses the layout of the encodings instead. It is stored as a string in the field
    `encoding_layout`, so that it survives loaders, workers, `to_data_list` and saved data sets.

    Examples:
        >>> from torch_geometric.data import Batch
        >>> from graphbench.encodings import ExpanderEdges
        >>> path = ExpanderEdges()(Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2))
        >>> Batch.from_data_list([path, path]).expander_edges.tolist()
        [[0, 1], [1, 0], [2, 3], [3, 2]]
    """

    @property
    def encoding_columns(self) -> dict[str, Column]:
        """Return the layout of the fields of encodings, by name."""
        text = self.get(_LAYOUT)  # in a batch, PyG stores strings as a list
        return _parse_layout(text if isinstance(text, str) else text[0]) if text else {}

    def hold_columns(self, columns: Mapping[str, Column]) -> None:
        """Add the layout of further fields."""
        merged = self.encoding_columns | dict(columns)
        self[_LAYOUT] = json.dumps({name: [column.axis, column.index_of] for name, column in merged.items()})

    def _is_pointer(self, key: str) -> bool:
        return key.endswith("_ptr") and any(column.axis == key[:-4] for column in self.encoding_columns.values())

    def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        """Concatenate the rows of encodings; stack the pointers of an axis to `[num_graphs, 2]`."""
        if self._is_pointer(key):
            return None
        return 0 if key in self.encoding_columns else super().__cat_dim__(key, value, *args, **kwargs)

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the offset of the rows that a field numbers, as `GraphTable.batch` adds it."""
        columns = self.encoding_columns
        if self._is_pointer(key):
            return 0
        if key.endswith("_batch") and any(column.axis == key[:-6] for column in columns.values()):
            return 1
        if key not in columns:
            return super().__inc__(key, value, *args, **kwargs)
        match columns[key].index_of:
            case None:
                return 0
            case "node":
                return self.num_nodes
            case "edge":
                return self.num_edges
            case axis:
                return int(self[f"{axis}_ptr"][-1])


torch.serialization.add_safe_globals([EncodedData])  # plain data: saved PyG data sets stay loadable with weights_only


@lru_cache(maxsize=64)  # PyG needs the layout once for each field of each graph
def _parse_layout(text: str) -> dict[str, Column]:
    return {name: Column(axis, index_of) for name, (axis, index_of) in json.loads(text).items()}


def check_single(graph: Data, what: str) -> None:
    """Refuse a batch where a single graph is expected, since it would be read as one; `what` names it in the message.

    Examples:
        >>> check_single(Data(num_nodes=3), "input 0")
        >>> check_single(Batch.from_data_list([Data(num_nodes=3), Data(num_nodes=1)]), "input 0")
        Traceback (most recent call last):
        graphbench.errors.BadInput: input 0 is a batch of 2 graphs: give each by itself, as its to_data_list() does.
    """
    ptr, vector = graph.get("ptr"), graph.get("batch")
    if isinstance(ptr, Tensor) and ptr.dim() == 1:
        count = len(ptr) - 1
    elif isinstance(vector, Tensor) and vector.dim() == 1 and len(vector) == graph.num_nodes:
        count = len(vector.unique())
    else:
        return
    if count > 1:
        raise BadInput(f"{what} is a batch of {count} graphs: give each by itself, as its to_data_list() does.")


def graphs_of_nodes(batch: Data | Tensor) -> tuple[Tensor, Tensor]:
    """Return the graph of each node `[num_nodes]` and the first node of each graph `[num_graphs + 1]`.

    Args:
        batch: a `GraphBatch`; a PyG `Batch`; a single `Data`, which is one graph; or the vector `batch` itself,
            whose largest entry is the last graph.

    Raises:
        BadInput: nodes are not sorted by graph; or it is something else, such as a list of graphs.

    Examples:
        >>> graphs_of_nodes(torch.tensor([0, 0, 0, 1, 1]))[1]
        tensor([0, 3, 5])
        >>> graphs_of_nodes(Data(num_nodes=3))
        (tensor([0, 0, 0]), tensor([0, 3]))
    """
    if isinstance(batch, GraphBatch):
        return batch.batch, batch.ptr
    if not isinstance(batch, (Data, Tensor)):
        raise no_graphs(batch)
    vector = batch if isinstance(batch, Tensor) else batch.get("batch")
    if vector is None:
        assert isinstance(batch, Data)
        vector = torch.zeros(int(batch.num_nodes or 0), dtype=torch.int64, device=device_of(batch))
        return vector, torch.tensor([0, len(vector)], device=vector.device)
    if vector.dim() != 1 or vector.is_floating_point() or bool((vector.diff() < 0).any()):
        raise BadInput(
            "batch must give the graph of every node, ascending, as PyG's Batch.from_data_list does; got "
            f"{vector.dtype} {list(vector.shape)} that does not."
        )
    ptr = None if isinstance(batch, Tensor) else batch.get("ptr")
    # Without PyG's `ptr` an empty graph is a gap in the numbering, and one at the end is lost.
    return vector, pointer(torch.bincount(vector)) if ptr is None else ptr


def to_graph_batch(graphs: Data, spec: BenchmarkSpec | None = None) -> GraphBatch:
    """Convert a PyG `Batch` or a single `Data` to a `GraphBatch`; return a `GraphBatch` unchanged.

    Args:
        graphs: nodes of all graphs one after the other, with the fields of `add_encodings` if a model needs them.
        spec: names of features: real-valued `x` and `edge_attr` become `x_dense` and `edge_dense`, and `y` of a
            task on whole graphs gets a row per graph.

    Raises:
        BadInput: a feature of the specification is missing or has the wrong number of rows, or nodes are out of order;
            or `graphs` is something else, such as a list of graphs.

    Examples:
        >>> batch = to_graph_batch(Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2))
        >>> batch.num_graphs, batch.max_nodes, batch.ptr
        (1, 2, tensor([0, 2]))
    """
    if isinstance(graphs, GraphBatch):
        return graphs
    if not isinstance(graphs, Data):
        raise no_graphs(graphs)
    graph_of, ptr = graphs_of_nodes(graphs)
    out = GraphBatch.from_dict({name: value for name, value in graphs.to_dict().items() if name != _LAYOUT})
    if "edge_index" not in out:
        out.edge_index = torch.empty(2, 0, dtype=torch.int64, device=graph_of.device)
    for name, value in out.to_dict().items():
        if name.endswith("_ptr") and isinstance(value, Tensor) and value.dim() == 2:  # stacked by an EncodedData
            out[name] = pointer(value[:, 1])
    out.batch, out.ptr, out.num_nodes, out.num_graphs = graph_of, ptr, len(graph_of), len(ptr) - 1
    # A Python integer, so that padding forces no host-device sync in every layer.
    out.max_nodes = int(ptr.diff().max()) if len(ptr) > 1 else 0
    out.graph_id = torch.arange(len(ptr) - 1, device=graph_of.device)
    if spec is not None:
        for name, value in named_features(out, spec, len(graph_of), out.edge_index.shape[1]).items():
            out[name] = value
        if isinstance(out.get("y"), Tensor) and spec.level == "graph":
            out.y = out.y.reshape(out.num_graphs, -1)
    return out


def batch_of(graphs: object) -> Batch:
    """Batch an iterable of PyG graphs.

    Raises:
        BadInput: it is empty, or an item is not a PyG graph.

    Examples:
        >>> batch_of([Data(num_nodes=2), Data(num_nodes=1)]).batch
        tensor([0, 0, 1])
    """
    items = list(graphs) if isinstance(graphs, Iterable) and not isinstance(graphs, (str, Tensor)) else [graphs]
    others = [item for item in items if not isinstance(item, Data) or isinstance(item, GraphBatch)]
    if others or not items:
        got = type(others[0]).__name__ if others else "an empty list"
        raise BadInput(
            f"expected a batch, or a list of Data of PyG, but got {got}. Give inputs of a benchmark, such as SMILES, "
            "to graphbench.load(RUN).predict."
        )
    return Batch.from_data_list(items)


def no_graphs(thing: object) -> BadInput:
    """Return the error for an object that is neither a batch nor a graph in PyG's classes."""
    hint = "; Batch.from_data_list(graphs) converts a list of Data" if isinstance(thing, (list, tuple)) else ""
    return BadInput(f"expected a Batch or Data of PyG, but got {type(thing).__name__}{hint}.")


class GraphDataset(Dataset):
    """The graphs of a table as a PyG data set: `dataset[3]`, `dataset[:10]`, `len(dataset)`, transforms.

    Real numbers are in `x` and `edge_attr` if the specification has no categories, as usual in PyG. `transform` is
    applied whenever a graph is read.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> spec = tiny_spec(kind="dense")
        >>> graphs = GraphDataset(tiny_table(spec, sizes=[3, 5]), spec)
        >>> len(graphs), graphs[1].num_nodes, graphs[1].x.dtype
        (2, 5, torch.float32)
    """

    def __init__(self, table: GraphTable, spec: BenchmarkSpec, transform: Callable[[Data], Data] | None = None) -> None:
        super().__init__(None, transform)
        self.table, self.spec = table, spec

    def len(self) -> int:
        """Return the number of graphs."""
        return len(self.table)

    def get(self, idx: int) -> Data:
        """Return one graph, with the fields of its encodings."""
        gathered, layout = self.table.batch([idx]), self.table.layout
        out = EncodedData(num_nodes=gathered.num_nodes)
        for name in layout:
            out[self._name(name)] = gathered[name]
        added = {name: column for name, column in layout.items() if name not in _FIELDS}
        for axis in {column.axis for column in added.values()} - {"graph", "node", "edge"}:
            for what in ("ptr", "batch"):
                if f"{axis}_{what}" in gathered:
                    out[f"{axis}_{what}"] = gathered[f"{axis}_{what}"]
        out.hold_columns(added)
        return out

    def _name(self, name: str) -> str:
        dense = {"x_dense": ("x", self.spec.node), "edge_dense": ("edge_attr", self.spec.edge)}
        usual, features = dense.get(name, (name, None))
        return name if features is None or features.vocabularies else usual


def named_features(data: Data, spec: BenchmarkSpec, num_nodes: int, num_edges: int) -> dict[str, Tensor]:
    """Return the features of a specification under its names, read from fields with PyG's usual names.

    Args:
        data: with `x`, `x_dense`, `pos`, `edge_attr`, `edge_dense`; real-valued `x` and `edge_attr` are dense.
        spec: names the features.
        num_nodes: rows of node features.
        num_edges: rows of edge features.

    Raises:
        BadInput: one is missing, has the wrong number of rows, or has real numbers where categories are expected.
    """
    features = _features(data, spec.node, "x", "x_dense", num_nodes)
    features |= _features(data, spec.edge, "edge_attr", "edge_dense", num_edges)
    if spec.coordinates:
        features["pos"] = _rows(data, "pos", num_nodes, spec.coordinates).float()
    return features


def _features(data: Data, features: Features, categorical: str, dense: str, rows: int) -> dict[str, Tensor]:
    named = {}
    if features.vocabularies:
        values = _rows(data, categorical, rows, len(features.vocabularies))
        # Many PyG data sets store categories as floats.
        if values.is_floating_point() and not bool((values == values.round()).all()):
            raise BadInput(f"{categorical} must contain category numbers, not real numbers")
        named[categorical] = values.to(torch.int64)
    if features.dense:
        name = dense if dense in data or features.vocabularies else categorical
        named[dense] = _rows(data, name, rows, features.dense).float()
    return named


def _rows(data: Data, name: str, rows: int, width: int) -> Tensor:
    """Return a field as `[rows, width]`; an absent one without rows is empty."""
    if name not in data or data[name] is None:
        if not rows:  # as in networkx, where only edges have attributes of edges
            return torch.zeros(0, width, device=device_of(data))
        raise BadInput(f"the graph has no field {name!r}; it has {', '.join(map(str, data.keys())) or 'none'}")
    values = torch.as_tensor(data[name])
    if values.dim() == 0 or len(values) != rows:
        raise BadInput(f"{name!r} has {len(values) if values.dim() else 0} rows instead of {rows}")
    return values[:, None] if values.dim() == 1 else values.flatten(1)


def device_of(batch: Data) -> torch.device:
    """Return the device of the edges; the CPU without edges."""
    edges = batch.get("edge_index")
    return torch.device("cpu") if edges is None else edges.device
