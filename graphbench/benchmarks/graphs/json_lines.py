"""A JSON-lines file: one graph per line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from graphbench.benchmarks.graphs.raw import OneGraph, RawGraphs, as_array, both_ways, stack
from graphbench.data.progress import track
from graphbench.errors import BadInput, CorruptData

#: Keys of a line that are no columns of the graph.
_KEYS = ("id", "num_nodes", "nodes", "edges", "edge_features", "links")


def read_json_lines(path: Path, directed: bool) -> RawGraphs:
    """Graphs `{"edges": [[0, 1], ...], "nodes": {column: [...]}, "edge_features": {column: [...]}, "y": ...}`.

    Args:
        path: of the file; blank lines are skipped.
        directed: take every edge one way only.

    Raises:
        CorruptData: a line is no JSON; names it.
        BadInput: a graph lacks something, or has a column of another length; names line and column.
    """
    graphs: list[OneGraph] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise CorruptData(f"{path} is not UTF-8 text: {error}.") from error
    for number, line in enumerate(track(lines, f"Reading {path.name}", unit="lines"), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except ValueError as error:
            raise CorruptData(f"{place} is no JSON: {error}.") from error
        if not isinstance(record, dict):
            raise BadInput(f"{place} holds a {type(record).__name__}; expected an object with edges.")
        graphs.append(_graph(record, place, str(len(graphs)), directed))
    return stack(graphs, str(path))


def _graph(record: dict[str, Any], place: str, number: str, directed: bool) -> OneGraph:
    if "edges" not in record:
        raise BadInput(f"{place} has no edges; it has {', '.join(record) or 'nothing'}. An edgeless graph has [].")
    ends = _pairs(record["edges"], f"{place}: edges")
    node = _columns(record.get("nodes", {}), f"{place}: nodes")
    edge = _columns(record.get("edge_features", {}), f"{place}: edge_features")
    num_nodes = record.get("num_nodes", len(next(iter(node.values()))) if node else None)
    if isinstance(num_nodes, bool) or not isinstance(num_nodes, int):
        raise BadInput(f"{place} needs num_nodes, a whole number, where nodes have no columns; got {num_nodes!r}.")
    for columns, rows, what in ((node, num_nodes, "nodes"), (edge, len(ends), "edges")):
        for name, values in columns.items():
            if len(values) != rows:
                raise BadInput(f"{place}: {name} has {len(values)} values, but there are {rows} {what}.")
    if not directed:
        ends, _, rows_of = both_ways(ends, np.zeros(len(ends), dtype=np.int64), 1)
        edge = {name: values[rows_of] for name, values in edge.items()}
    of_graph = {}
    for name, value in record.items():
        if name not in _KEYS and value is not None:
            array = as_array(value)
            if array is None:
                raise BadInput(f"{place}: {name} is neither a number, nor text, nor a list of such.")
            of_graph[name] = array.reshape(-1)
    links = _pairs(record["links"], f"{place}: links").T if "links" in record else None
    name = str(record.get("id", number))
    return OneGraph(place, name, num_nodes, ends.T, node=node, edge=edge, graph=of_graph, links=links)


def _pairs(value: Any, place: str) -> np.ndarray:
    """Pairs of node numbers `[rows, 2]`."""
    array = as_array(value)
    if array is not None and array.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if array is None or array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise BadInput(f"{place} must be a list of pairs of node numbers, [[0, 1], [1, 2]].")
    return array.astype(np.int64)


def _columns(value: Any, place: str) -> dict[str, np.ndarray]:
    if not isinstance(value, dict):
        raise BadInput(f'{place} must be an object of columns, such as {{"charge": [0.5, 1.0]}}.')
    columns = {}
    for name, values in value.items():
        array = as_array(values)
        if array is None or array.ndim not in (1, 2):
            raise BadInput(f"{place}: {name} must be a list of numbers, of texts, or of rows of numbers of one length.")
        columns[str(name)] = array
    return columns
