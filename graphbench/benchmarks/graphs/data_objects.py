"""PyG's `Data` objects, mappings of tensors and networkx graphs as raw graphs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Batch, Data, HeteroData

from graphbench.benchmarks.graphs.raw import OneGraph, RawGraphs, as_array, as_rows, stack
from graphbench.contracts import SPLITS
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.errors import BadInput

#: Attributes of a `Data` object that are structure, not columns.
_STRUCTURE = ("edge_index", "num_nodes", "batch", "ptr", "edge_label_index", "edge_label")
#: How the splits of a mapping of lists may be called.
_SPLIT_NAMES = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_EXPECTED = "expected PyG's Data objects, mappings with an edge_index, or networkx graphs"


def flatten(content: Any, origin: str) -> tuple[list[Any], dict[str, np.ndarray] | None]:
    """All graphs of a list, of one graph, or of lists by split, and the rows of each split where there are some.

    Raises:
        BadInput: it is nothing of that kind.
    """
    if isinstance(content, Batch):
        return content.to_data_list(), None
    if isinstance(content, HeteroData):
        raise BadInput(f"{origin} holds a HeteroData: turn it into a Data with its method to_homogeneous() first.")
    if isinstance(content, Data) or _is_networkx(content):
        return [content], None
    if isinstance(content, Mapping) and "edge_index" in content:
        return [content], None
    if isinstance(content, Mapping):
        return _by_split(content, origin)
    if isinstance(content, str | bytes) or not isinstance(content, Sequence | Iterable):
        raise BadInput(f"{origin} holds {type(content).__name__}; {_EXPECTED}, or a list of such.")
    graphs = list(content)
    if len(graphs) == len(SPLITS) and all(_is_list(part) for part in graphs):
        return _by_split(dict(zip(SPLITS, graphs, strict=True)), origin)
    return graphs, None


def _is_list(value: Any) -> bool:
    """Whether it is a list of graphs and not one graph."""
    return isinstance(value, list | tuple | torch.utils.data.Dataset)


def _by_split(content: Mapping[Any, Any], origin: str) -> tuple[list[Any], dict[str, np.ndarray]]:
    named = {_SPLIT_NAMES.get(str(name).lower()): part for name, part in content.items()}
    if set(named) != set(SPLITS):
        raise BadInput(
            f"{origin} holds a mapping with the names {', '.join(map(str, content)) or 'none'}; expected lists of "
            "graphs named train, val and test, or one graph with edge_index."
        )
    parts = {name: flatten(named[name], origin)[0] for name in SPLITS}
    ends = np.cumsum([0, *(len(parts[name]) for name in SPLITS)])
    rows: dict[str, np.ndarray] = {
        name: np.arange(ends[number], ends[number + 1]) for number, name in enumerate(SPLITS)
    }
    return [graph for name in SPLITS for graph in parts[name]], rows


def raw_from_objects(
    content: Any, origin: str, directed: bool = False, names: Sequence[str] | None = None
) -> RawGraphs:
    """Graphs that exist as objects.

    Args:
        content: a graph, a list of them, or lists by split.
        origin: where they are from, for messages.
        directed: take an undirected networkx graph's edges one way only; others are taken as they are.
        names: of the graphs; their numbers by default.

    Raises:
        BadInput: there is no graph, or something else; names it.
    """
    objects, splits = flatten(content, origin)
    if names is None:
        names = [str(number) for number in range(len(objects))]
    places = [f"{origin}, graph {number}" for number in range(len(objects))]
    if objects and all(map(_is_networkx, objects)):
        from graphbench.benchmarks.graphs.networkx_files import convert  # networkx is not needed for anything else

        raw = stack([convert(g, p, n, directed) for g, p, n in zip(objects, places, names, strict=True)], origin)
        raw.splits = splits
        return raw
    found = [_mapping(graph, place) for graph, place in zip(objects, places, strict=True)]
    raw = stack(_with_levels(found, places, names), origin)
    raw.splits = splits
    raw.features = {
        NODE: tuple(name for name in ("x",) if any(name in graph for graph in found)),
        EDGE: tuple(name for name in ("edge_attr",) if any(name in graph for graph in found)),
    }
    return raw


def _mapping(graph: Any, place: str) -> dict[str, Any]:
    """The attributes of one graph."""
    if isinstance(graph, HeteroData):
        raise BadInput(f"{place} is a HeteroData: turn it into a Data with its method to_homogeneous() first.")
    if isinstance(graph, Data):
        values = {str(key): value for key, value in graph.to_dict().items() if value is not None}
        if graph.num_nodes is not None:
            values["num_nodes"] = graph.num_nodes
    elif isinstance(graph, Mapping):
        values = {str(key): value for key, value in graph.items() if value is not None}
    else:
        raise BadInput(f"{place} is a {type(graph).__name__}; {_EXPECTED}.")
    edges = as_array(values.get("edge_index"))
    if edges is None or edges.ndim != 2 or edges.shape[0] != 2:
        shape = "it has none" if edges is None else f"its shape is {list(edges.shape)}"
        raise BadInput(f"{place}: edge_index must be [2, edges], but {shape}.")
    if edges.dtype.kind not in "iu" and edges.size:
        raise BadInput(f"{place}: edge_index must hold integers, but is {edges.dtype}.")
    if "num_nodes" not in values:
        x = as_array(values.get("x"))
        if x is None:
            raise BadInput(f"{place} has neither x nor num_nodes, so that its nodes cannot be counted.")
        values["num_nodes"] = len(x)
    return values | {"edge_index": edges}


def _with_levels(found: Sequence[Mapping[str, Any]], places: Sequence[str], names: Sequence[str]) -> list[OneGraph]:
    """Every attribute where it belongs: with the nodes, the edges or the graph, the same for all graphs."""
    arrays: list[dict[str, np.ndarray]] = []
    for graph in found:
        read = {key: as_array(value) for key, value in graph.items() if key not in _STRUCTURE}
        arrays.append({key: value for key, value in read.items() if value is not None})
    sizes = [(int(graph["num_nodes"]), graph["edge_index"].shape[1]) for graph in found]
    level = {key: _level(key, arrays, sizes) for key in dict.fromkeys(key for values in arrays for key in values)}
    graphs = []
    for graph, values, place, name in zip(found, arrays, places, names, strict=True):
        one = OneGraph(place, name, int(graph["num_nodes"]), graph["edge_index"], links=_links(graph, place))
        for key, value in values.items():
            if level[key] == GRAPH:
                one.graph[key] = value.reshape(-1)
            else:
                rows = one.num_nodes if level[key] == NODE else one.edges.shape[1]
                if value.ndim == 0 or len(value) != rows:
                    told = f"{len(value)} rows" if value.ndim else "a single value"
                    raise BadInput(f"{place}: {key} has {told}, but there are {rows} {level[key]}s.")
                getattr(one, level[key])[key] = as_rows(value) if value.ndim != 1 else value
        graphs.append(one)
    return graphs


def _level(key: str, arrays: Sequence[Mapping[str, np.ndarray]], sizes: Sequence[tuple[int, int]]) -> str:
    """Whether an attribute has one row per node, per edge, or belongs to the graph as a whole."""
    if key in ("x", "pos"):
        return NODE
    if key in ("edge_attr", "edge_weight"):
        return EDGE
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


def _links(graph: Mapping[str, Any], place: str) -> np.ndarray | None:
    """True pairs `[2, L]`, as PyG's RandomLinkSplit calls them."""
    pairs = as_array(graph.get("edge_label_index"))
    if pairs is None:
        return None
    label = as_array(graph.get("edge_label"))
    if pairs.ndim != 2 or pairs.shape[0] != 2 or (label is not None and label.size != pairs.shape[1]):
        raise BadInput(f"{place}: edge_label_index must be [2, pairs], with one edge_label per pair.")
    return pairs if label is None else pairs[:, label.reshape(-1) > 0]


def _is_networkx(value: Any) -> bool:
    return any(cls.__module__.startswith("networkx.") for cls in type(value).__mro__)


def raw_key(raw: RawGraphs) -> str:
    """SHA-256 of all graphs with all their columns: equal graphs give equal keys, wherever they were made."""
    checksum = hashlib.sha256()
    add: Callable[[Any], None] = lambda part: checksum.update(repr(part).encode())  # noqa: E731
    parts: dict[str, np.ndarray | None] = {"num_nodes": raw.num_nodes, "edges": raw.edges, "num_edges": raw.num_edges}
    parts |= {f"{level}.{name}": values for level, found in raw.columns.items() for name, values in found.items()}
    parts |= {"links": raw.links, "num_links": raw.num_links} if raw.links is not None else {}
    parts |= {f"split.{name}": rows for name, rows in (raw.splits or {}).items()}
    for name, values in parts.items():
        assert values is not None
        add((name, values.shape, values.dtype.str))
        if values.dtype == object:
            add(values.tolist())
        else:
            checksum.update(np.ascontiguousarray(values).tobytes())
    add(sorted(raw.faults))
    add(raw.names)
    return checksum.hexdigest()
