"""Convert PyG's `Data` objects, mappings of tensors and networkx graphs to raw graphs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.utils import to_edge_index

from graphbench.benchmarks.graphs.raw import (
    LINK,
    NEGATIVE,
    OneGraph,
    RawGraphs,
    as_array,
    as_rows,
    stack,
    unreadable_fault,
)
from graphbench.benchmarks.graphs.splits.masks import masks_from_indices
from graphbench.contracts import SPLITS
from graphbench.contracts.pyg import check_single
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.data.progress import track
from graphbench.data.splits import SPLIT_WORDS
from graphbench.errors import BadInput

#: Attributes of a `Data` object that are structure, not columns.
STRUCTURE = (
    "edge_index", "num_nodes", "batch", "ptr", "edge_label_index", "edge_label", "pos_edge_label_index",
    "pos_edge_label", "neg_edge_label_index", "neg_edge_label",
)  # fmt: skip
EXPECTED = "expected PyG's Data objects, mappings with an edge_index, or networkx graphs"
#: Attributes with the type numbers of `HeteroData.to_homogeneous()`; the type names are in private attributes.
TYPES = {"node": "node_type", "edge": "edge_type"}
_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


def flatten(content: Any, origin: str) -> tuple[list[Any], dict[str, np.ndarray] | None]:
    """Return all graphs from a graph, a list, or lists by split; for the latter, also the rows of each split."""
    if isinstance(content, Batch):
        return content.to_data_list(), None
    if isinstance(content, HeteroData):
        raise hetero_refusal(origin)
    is_mapping = isinstance(content, Mapping)
    if isinstance(content, Data) or _is_networkx(content) or (is_mapping and {"edge_index", "adj_t"} & content.keys()):
        return [content], None
    if is_mapping:
        return _by_split(content, origin)
    if isinstance(content, str | bytes) or not isinstance(content, Sequence | Iterable):
        raise BadInput(f"{origin} holds {type(content).__name__}; {EXPECTED}, or a list of such.")
    graphs = list(content)
    # Three graphs from PyG's `RandomLinkSplit` are one graph in three splits, each with its own pairs.
    pairs = (isinstance(g, Data) and ("edge_label_index" in g or "pos_edge_label_index" in g) for g in graphs)
    if len(graphs) == len(SPLITS) and (all(map(_is_list, graphs)) or all(pairs)):
        return _by_split(dict(zip(SPLITS, graphs, strict=True)), origin)
    if len(graphs) == 2 and all(map(_is_list, graphs)):
        return _by_split({"train": graphs[0], "test": graphs[1]}, origin)
    return graphs, None


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | torch.utils.data.Dataset)


def _by_split(content: Mapping[Any, Any], origin: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    """Join lists by split; `train` is one of them, and missing splits are cut from it later."""
    named = {SPLIT_WORDS.get(str(name).lower(), str(name)): part for name, part in content.items()}
    if "train" not in named or len(named) < 2 or len(named) != len(content) or not named.keys() <= set(SPLITS):
        raise BadInput(
            f"{origin} holds a mapping with the names {', '.join(map(str, content)) or 'none'}; expected lists of "
            "graphs named train, val and test, or one graph with edge_index."
        )
    parts = {name: flatten(named[name], origin)[0] for name in SPLITS if name in named}
    ends = np.cumsum([0, *map(len, parts.values())])
    rows: dict[str, np.ndarray] = {name: np.arange(ends[number], ends[number + 1]) for number, name in enumerate(parts)}
    return [graph for part in parts.values() for graph in part], rows


def raw_from_objects(
    content: Any, origin: str, directed: bool = False, names: Sequence[str] | None = None
) -> RawGraphs:
    """Convert graphs that exist as objects.

    Args:
        content: a graph, a list of them, or lists by split.
        origin: origin of the graphs, for messages.
        directed: whether edges of undirected networkx graphs lead one way only; other graphs stay unchanged.
        names: names of the graphs; by default their numbers.
    """
    objects, splits = flatten(content, origin)
    if names is None:
        names = [str(number) for number in range(len(objects))]
    places = [f"{origin}, graph {number}" for number in range(len(objects))]
    each = zip(track(objects, f"Reading {origin}", unit="graphs"), places, names, strict=True)
    if objects and all(map(_is_networkx, objects)):
        # networkx is not needed for anything else
        from graphbench.benchmarks.graphs.readers.networkx_files import convert

        raw = stack([convert(graph, place, name, directed) for graph, place, name in each], origin)
        raw.splits = splits
        return raw
    attributes = [attributes_of(graph, place) for graph, place, _ in each]
    raw = stack(_by_level(attributes, places, names), origin)
    raw.splits = splits
    default = {NODE: ("x", TYPES[NODE]), EDGE: ("edge_attr", TYPES[EDGE])}
    raw.features = {
        level: tuple(name for name in names if name in raw.columns[level] or (level, name) in raw.faults)
        for level, names in default.items()
    }
    return raw


def _by_level(attributes: Sequence[Mapping[str, Any]], places: Sequence[str], names: Sequence[str]) -> list[OneGraph]:
    """Assign every attribute to the nodes, the edges or the graph, the same way in all graphs."""
    arrays: list[dict[str, np.ndarray]] = []
    unreadable: list[dict[str, str]] = []
    for graph, place in zip(attributes, places, strict=True):
        label = "edge_label" if "edge_label_index" not in graph else None  # without pairs, it labels the edges
        read = {key: as_array(value) for key, value in graph.items() if key not in STRUCTURE or key == label}
        arrays.append({key: value for key, value in read.items() if value is not None})
        unreadable.append({key: unreadable_fault(place, key, graph[key]) for key in read.keys() - arrays[-1].keys()})
    sizes = [(int(graph["num_nodes"]), graph["edge_index"].shape[1]) for graph in attributes]
    masks_from_indices(arrays, [nodes for nodes, _ in sizes], places)
    level = {key: _level(key, arrays, sizes) for key in dict.fromkeys(key for values in arrays for key in values)}
    graphs = []
    for graph, values, faults, place, name in zip(attributes, arrays, unreadable, places, names, strict=True):
        one = OneGraph(place, name, int(graph["num_nodes"]), graph["edge_index"], pairs=_pairs(graph, place))
        one.faults = {(level.get(key) or _named_level(key), key): fault for key, fault in faults.items()}
        for key, value in values.items():
            if level[key] == GRAPH:
                one.graph[key] = value.reshape(-1)
            else:
                rows = one.num_nodes if level[key] == NODE else one.edges.shape[1]
                if rows == 0 and not value.size and not (value.ndim == 2 and len(value) == 0):
                    continue  # a graph without edges needs no columns of edges
                if value.ndim == 0 or len(value) != rows:
                    size = f"{len(value)} rows" if value.ndim else "a single value"
                    raise BadInput(f"{place}: {key} has {size}, but there are {rows} {level[key]}s.")
                getattr(one, level[key])[key] = as_rows(value) if value.ndim != 1 else value
        graphs.append(one)
    return graphs


def _named_level(key: str) -> str:
    """Return the level of an attribute according to its name."""
    if key in ("x", "pos"):
        return NODE
    return EDGE if key in ("edge_attr", "edge_weight") else GRAPH


def _level(key: str, arrays: Sequence[Mapping[str, np.ndarray]], sizes: Sequence[tuple[int, int]]) -> str:
    """Determine from name and number of rows whether an attribute belongs to nodes, edges or the graph."""
    # The name comes first: with as many edges as nodes, x would fit both.
    if (named := _named_level(key)) != GRAPH:
        return named
    shared = [(values[key], size) for values, size in zip(arrays, sizes, strict=True) if key in values]
    if any(value.ndim == 0 for value, _ in shared) or all(value.ndim > 1 and len(value) == 1 for value, _ in shared):
        return GRAPH

    def fits(axis: int) -> bool:
        return all(len(value) == size[axis] for value, size in shared)

    if key.startswith("edge_") and fits(1):
        return EDGE
    if fits(0) and not all(len(value) == 1 for value, _ in shared):
        return NODE
    return EDGE if fits(1) and not all(len(value) == 1 for value, _ in shared) else GRAPH


def _pairs(graph: Mapping[str, Any], place: str) -> dict[str, np.ndarray]:
    """Return true and wrong pairs `[2, L]`, if any, under the names of PyG's `RandomLinkSplit`."""
    true, wrong = (_pair_index(graph, f"{sign}_edge_label_index", place) for sign in ("pos", "neg"))
    if true is not None:
        return {LINK: true} | ({} if wrong is None else {NEGATIVE: wrong})
    pairs, label = _pair_index(graph, "edge_label_index", place), as_array(graph.get("edge_label"))
    if pairs is None or label is None:
        return {} if pairs is None else {LINK: pairs}
    label = label.reshape(-1)
    if label.size != pairs.shape[1]:
        raise BadInput(f"{place}: edge_label_index must be [2, pairs], with one edge_label per pair.")
    if other := sorted(set(label.tolist()) - {0, 1})[:3]:
        raise BadInput(f"{place}: edge_label holds {other}; expected 1 for true pairs and 0 for wrong ones.")
    return {LINK: pairs[:, label == 1]} | ({NEGATIVE: pairs[:, label == 0]} if (label == 0).any() else {})


def _pair_index(graph: Mapping[str, Any], name: str, place: str) -> np.ndarray | None:
    pairs = as_array(graph.get(name))
    if pairs is not None and (pairs.ndim != 2 or pairs.shape[0] != 2):
        raise BadInput(f"{place}: {name} must be [2, pairs], with one edge_label per pair.")
    return pairs


def _is_networkx(value: Any) -> bool:
    return any(cls.__module__.startswith("networkx.") for cls in type(value).__mro__)


def raw_key(raw: RawGraphs) -> str:
    """Return the SHA-256 of all graphs with all their columns and names."""
    checksum = hashlib.sha256()
    add: Callable[[Any], None] = lambda part: checksum.update(repr(part).encode())  # noqa: E731
    parts: dict[str, np.ndarray] = {"num_nodes": raw.num_nodes, "edges": raw.edges, "num_edges": raw.num_edges}
    parts |= {f"{level}.{name}": values for level, named in raw.columns.items() for name, values in named.items()}
    for kind, pairs in raw.pairs.items():
        parts |= {f"{kind}s": pairs.ends, f"num_{kind}s": pairs.counts}
    parts |= {f"split.{name}": rows for name, rows in (raw.splits or {}).items()}
    for name, values in parts.items():
        add((name, values.shape, values.dtype.str))
        if values.dtype == object:
            add(values.tolist())
        else:
            checksum.update(np.ascontiguousarray(values).tobytes())
    add(sorted(raw.faults))
    add(raw.names)
    if raw.node_names is not None:
        add(raw.node_names.tolist())
    return checksum.hexdigest()


def hetero_refusal(place: str) -> BadInput:
    """Build the error for a `HeteroData`."""
    return BadInput(
        f"{place} is a HeteroData: convert it with its method to_homogeneous() to a Data, whose node_type "
        "and edge_type are read as features."
    )


def attributes_of(graph: Any, place: str) -> dict[str, Any]:
    """Return the attributes of a `Data` object or a mapping, with `edge_index` an array and `num_nodes` a number.

    Raises:
        BadInput: it is something else, or its edges or number of nodes are missing or invalid; starts with `place`.
    """
    if isinstance(graph, HeteroData):
        raise hetero_refusal(place)
    if isinstance(graph, Data):
        check_single(graph, place)
        values = {str(key): value for key, value in graph.to_dict().items() if value is not None}
        if graph.num_nodes is not None:
            values["num_nodes"] = graph.num_nodes
        values |= _named_types(graph, values)
    elif isinstance(graph, Mapping):
        values = {str(key): value for key, value in graph.items() if value is not None}
    else:
        raise BadInput(f"{place} is a {type(graph).__name__}; {EXPECTED}.")
    values = _from_adjacency(values, place)
    for key, value in values.items():
        if not key.startswith("adj") and (_is_sparse(value) or scipy.sparse.issparse(value)):
            values[key] = value.to_dense() if isinstance(value, torch.Tensor) else value.toarray()
    edges = as_array(values.get("edge_index"))
    if edges is None or edges.ndim != 2 or edges.shape[0] != 2:
        shape = "it has none" if edges is None else f"its shape is {list(edges.shape)}"
        raise BadInput(f"{place}: edge_index must be [2, edges], but {shape}.")
    if edges.dtype.kind not in "iu" and edges.size:
        raise BadInput(f"{place}: edge_index must hold integers, but is {edges.dtype}.")
    if "num_nodes" not in values:
        x = as_array(values.get("x"))
        if x is None:
            raise BadInput(f"{place} has neither x nor num_nodes, so its nodes cannot be counted.")
        values["num_nodes"] = len(x)
    return values | {"edge_index": edges}


def _is_sparse(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout in _SPARSE


def _from_adjacency(values: dict[str, Any], place: str) -> dict[str, Any]:
    """Replace `adj_t` (rows are targets, columns sources) by `edge_index`.

    Its values become `edge_weight` if they are numbers, `edge_attr` if they are rows of numbers.
    """
    adjacency = values.get("adj_t")
    if adjacency is None or "edge_index" in values:
        return values
    if scipy.sparse.issparse(adjacency):
        entries = adjacency.tocoo()
        row, column, weight = entries.row, entries.col, entries.data
    elif _is_sparse(adjacency):
        if adjacency.layout == torch.sparse_coo:  # `to_edge_index` would mark the user's tensor as coalesced
            index, numbers = adjacency._indices(), adjacency._values()
        else:
            index, numbers = to_edge_index(adjacency)
        row, column, weight = (part.numpy() for part in (*index[:2], numbers))
    elif hasattr(adjacency, "coo") and hasattr(adjacency, "sparse_sizes"):  # torch_sparse's SparseTensor
        row, column, weight = (None if part is None else part.numpy() for part in adjacency.coo())
    else:
        raise BadInput(f"{place}: adj_t is a {type(adjacency).__name__}; expected a sparse matrix, as PyG makes it.")
    size = tuple(adjacency.sparse_sizes() if hasattr(adjacency, "sparse_sizes") else adjacency.shape)[:2]
    if size[0] != size[1]:
        raise BadInput(f"{place}: adj_t must be square, but its shape is {list(size)}.")
    values = {key: value for key, value in values.items() if key != "adj_t"}
    values["edge_index"] = np.stack([column, row]).astype(np.int64)
    values.setdefault("num_nodes", int(size[0]))
    if weight is not None:
        values.setdefault("edge_weight" if weight.ndim == 1 else "edge_attr", weight)
    return values


def _named_types(graph: Data, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return types of nodes and edges as words, if `to_homogeneous()` has stored their names."""
    types: dict[str, Any] = {}
    private = graph._store.__dict__ | graph.__dict__
    for level, key in TYPES.items():
        names, numbers = private.get(f"_{level}_type_names"), as_array(values.get(key))
        if not isinstance(names, list | tuple) or numbers is None or numbers.dtype.kind not in "iu":
            continue
        words = np.array([name if isinstance(name, str) else " ".join(name) for name in names], dtype=object)
        if not numbers.size or (numbers.min() >= 0 and numbers.max() < len(words)):
            types[key] = words[numbers]
    return types
