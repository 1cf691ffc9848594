"""Read JSON lines: one graph per line."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from graphbench.benchmarks.graphs.raw import LINK, OneGraph, RawGraphs, RawPart, as_array, both_ways, stack
from graphbench.data.progress import track
from graphbench.errors import BadInput, CorruptData
from graphbench.tables.text import open_text

#: Keys of a line that are not columns of the graph.
_KEYS = ("id", "num_nodes", "nodes", "edges", "edge_features", "links")


def read_json_lines(path: Path, directed: bool) -> RawGraphs:
    """Read graphs `{"edges": [[0, 1], ...], "nodes": {column: [...]}, "edge_features": {column: [...]}, "y": ...}`.

    Raises:
        CorruptData: a line is not JSON; names the line.
        BadInput: a graph lacks something or has a column of the wrong length, naming line and column; or the file is
            not UTF-8 or UTF-16 text.
    """
    lines = list(_lines(path))
    graphs = [
        graph_of_line(line, place, str(number), directed)
        for number, (place, line) in enumerate(track(lines, f"Reading {path.name}", unit="lines"))
    ]
    return stack(graphs, str(path))


def parts_of_lines(path: Path, directed: bool, size: int) -> Iterator[RawPart]:
    """Read the graphs of `read_json_lines` in parts of `size`, parsed one by one."""
    lines = enumerate(_lines(path))
    while chunk := [(place, line, str(number)) for number, (place, line) in islice(lines, size)]:
        yield RawPart(len(chunk), partial(_join, path, chunk, directed), partial(_parse_name, chunk), one_by_one=True)


def _join(path: Path, chunk: Sequence[tuple[str, str, str]], directed: bool, rows: Sequence[int]) -> RawGraphs:
    lines = [chunk[row] for row in rows]
    return stack([graph_of_line(line, place, number, directed) for place, line, number in lines], str(path))


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield file and number of each line that is not blank, with its text."""
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield f"{path}, line {number}", line


def _parse_name(chunk: Sequence[tuple[str, str, str]], row: int) -> str:
    """Return the `id` of a line whose graph is invalid; its number if it has none, or is not JSON."""
    _, line, number = chunk[row]
    with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(line)
        if isinstance(record, dict):
            return _name_of(record, number)
    return number


def _name_of(record: dict[str, Any], number: str) -> str:
    return number if record.get("id") is None else str(record["id"])


def graph_of_line(line: str, place: str, number: str, directed: bool) -> OneGraph:
    """Parse a line at `place`; a graph without `id` is called `number`. Raises the errors of `read_json_lines`."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorruptData(f"{place} is not JSON: {error}.") from error
    if not isinstance(record, dict):
        raise BadInput(f"{place} holds a {type(record).__name__}; expected an object with edges.")
    if "edges" not in record:
        raise BadInput(f"{place} has no edges; it has {', '.join(record) or 'nothing'}. An edgeless graph has [].")
    ends = _parse_pairs(record["edges"], f"{place}: edges")
    node = _parse_columns(record.get("nodes", {}), f"{place}: nodes")
    edge = _parse_columns(record.get("edge_features", {}), f"{place}: edge_features")
    num_nodes = record.get("num_nodes", len(next(iter(node.values()))) if node else None)
    if isinstance(num_nodes, bool) or not isinstance(num_nodes, int):
        raise BadInput(f"{place} needs num_nodes, a whole number, if nodes have no columns; got {num_nodes!r}.")
    for columns, rows, what in ((node, num_nodes, "nodes"), (edge, len(ends), "edges")):
        for name, values in columns.items():
            if len(values) != rows:
                raise BadInput(f"{place}: {name} has {len(values)} values, but there are {rows} {what}.")
    if not directed:
        ends, _, edge_row = both_ways(ends, np.zeros(len(ends), dtype=np.int64), 1)
        edge = {name: values[edge_row] for name, values in edge.items()}
    graph = {}
    for name, value in record.items():
        if name not in _KEYS and value is not None:
            array = as_array(value)
            if array is None:
                raise BadInput(f"{place}: {name} is neither a number, nor text, nor a list of such.")
            graph[name] = array.reshape(-1)
    pairs = {LINK: _parse_pairs(record["links"], f"{place}: links").T} if "links" in record else {}
    return OneGraph(place, _name_of(record, number), num_nodes, ends.T, node=node, edge=edge, graph=graph, pairs=pairs)


def _parse_pairs(value: Any, place: str) -> np.ndarray:
    """Parse pairs of node numbers `[rows, 2]`."""
    array = as_array(value)
    if array is not None and array.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if array is None or array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise BadInput(f"{place} must be a list of pairs of node numbers, [[0, 1], [1, 2]].")
    return array.astype(np.int64)


def _parse_columns(value: Any, place: str) -> dict[str, np.ndarray]:
    if not isinstance(value, dict):
        raise BadInput(f'{place} must be an object of columns, such as {{"charge": [0.5, 1.0]}}.')
    columns = {}
    for name, values in value.items():
        array = as_array(values)
        if array is None or array.ndim not in (1, 2):
            raise BadInput(f"{place}: {name} must be a list of numbers, of texts, or of rows of numbers of one length.")
        columns[str(name)] = array
    return columns
