"""A folder of tables: `nodes`, `edges`, and where needed `graphs` and `links`, each in CSV, Parquet or Excel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from graphbench.benchmarks.graphs.frames import read_frame, row_place, table_file
from graphbench.benchmarks.graphs.networkx_files import frame_column
from graphbench.benchmarks.graphs.raw import RawGraphs, both_ways
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.data.delimited import near
from graphbench.errors import BadInput

TABLES = ("graphs", "nodes", "edges", "links")
_KEY, _NODE, _ENDS = "graph", "node", ("source", "target")
#: What the one graph of tables without a column `graph` is called.
_ONLY = "0"


@dataclass
class _Rows:
    """A table with the number of the graph of each row.

    Args:
        path: its file.
        frame: its content, rows of one graph together, graphs in their order.
        graph: number of the graph of each row.
        line: where each row stood in the file.
    """

    path: Path
    frame: pd.DataFrame
    graph: np.ndarray
    line: np.ndarray

    def place(self, row: int) -> str:
        return row_place(self.path, int(self.line[row]))

    def columns(self, without: tuple[str, ...]) -> dict[str, np.ndarray]:
        return {str(name): frame_column(self.frame[name].to_numpy()) for name in self.frame if name not in without}


def is_table_folder(folder: Path) -> bool:
    """Whether the folder holds edges and either nodes or graphs."""
    found = {name for name in TABLES if table_file(folder, name) is not None}
    return "edges" in found and bool(found & {"nodes", "graphs"})


def read_tables(folder: Path, directed: bool) -> RawGraphs:
    """All graphs of a folder of tables; `docs/graphs.md` has the schema.

    Args:
        folder: of the tables.
        directed: whether an edge is listed for one direction only and means that direction.

    Raises:
        BadInput: a column is missing, or a row names a graph or a node that is not there; names file and line.
        CorruptData: a file is no table.
    """
    paths = {name: table_file(folder, name) for name in TABLES}
    keys = {name: (_KEY, *(_ENDS if name in ("edges", "links") else ())) for name in TABLES}
    called = {"nodes": (_NODE,), "graphs": ("num_nodes",)}
    frames = {
        name: read_frame(path, (*keys[name], *called.get(name, ()))) for name, path in paths.items() if path is not None
    }
    if not any(name == "graphs" or _KEY in frame for name, frame in frames.items()):
        frames = {name: frame.assign(**{_KEY: _ONLY}) for name, frame in frames.items()}
    for name, frame in frames.items():
        _need(frame, paths[name], keys[name])
    names = _graph_names(frames, paths)
    number = {name: position for position, name in enumerate(names)}
    rows = {name: _by_graph(paths[name], frame, number) for name, frame in frames.items()}
    graphs, nodes, edges, links = (rows.get(name) for name in TABLES)
    assert edges is not None
    num_nodes = _num_nodes(nodes, graphs, len(names))
    finder = _NodeFinder(nodes, num_nodes)
    ends, lengths, origin_row = _edges(edges, finder, len(names), directed)
    columns = {
        GRAPH: {} if graphs is None else graphs.columns((_KEY, "num_nodes") if nodes is None else (_KEY,)),
        NODE: {} if nodes is None else nodes.columns((_KEY, _NODE)),
        EDGE: {name: values[origin_row] for name, values in edges.columns((_KEY, *_ENDS)).items()},
    }

    def place(level: str, row: int) -> str:
        table, at = {
            GRAPH: (graphs, row),
            NODE: (nodes, row),
            EDGE: (edges, int(origin_row[row]) if level == EDGE else 0),
            "link": (links, row),
        }[level]
        if table is None:
            return f"{folder}, graph {names[row] if level == GRAPH else row}"
        return f"{table.place(at)} (graph {names[int(table.graph[at])]})"

    return RawGraphs(
        origin=str(folder),
        num_nodes=num_nodes,
        num_edges=lengths,
        edges=ends,
        columns=columns,
        names=names,
        place=place,
        links=None if links is None else finder.ends(links),
        num_links=None if links is None else np.bincount(links.graph, minlength=len(names)),
    )


def _need(frame: pd.DataFrame, path: Path | None, columns: tuple[str, ...]) -> None:
    missing = [name for name in columns if name not in frame]
    if missing:
        raise BadInput(
            f"{path} needs the column{'s' if len(missing) > 1 else ''} {' and '.join(missing)}; it has "
            f"{', '.join(map(str, frame)) or 'none'}.{near(missing, [str(name) for name in frame])}"
        )


def _graph_names(frames: Mapping[str, pd.DataFrame], paths: Mapping[str, Path | None]) -> list[str]:
    """Every graph by name: in the order of `graphs`, else of `nodes`."""
    first = "graphs" if "graphs" in frames else "nodes"
    column = frames[first][_KEY]
    if column.isna().any():
        place = row_place(Path(str(paths[first])), int(np.flatnonzero(column.isna())[0]))
        raise BadInput(f"{place}: the column {_KEY} is empty.")
    texts = column.astype(str)
    if first == "graphs" and texts.duplicated().any():
        row = int(np.flatnonzero(texts.duplicated())[0])
        raise BadInput(f"{row_place(Path(str(paths[first])), row)}: the graph {texts.iloc[row]} was listed before.")
    return [str(name) for name in texts.unique()]


def _by_graph(path: Path | None, frame: pd.DataFrame, number: Mapping[str, int]) -> _Rows:
    """Rows sorted by graph, those of one graph in the order of the file."""
    assert path is not None
    graph = frame[_KEY].astype(str).map(number)
    if graph.isna().any():
        row = int(np.flatnonzero(graph.isna())[0])
        known = "graphs" if table_file(path.parent, "graphs") else "nodes"
        raise BadInput(f"{row_place(path, row)}: there is no graph {frame[_KEY].iloc[row]} in the table {known}.")
    order = np.argsort(graph.to_numpy(dtype=np.int64), kind="stable")
    return _Rows(path, frame.iloc[order].reset_index(drop=True), graph.to_numpy(dtype=np.int64)[order], order)


def _num_nodes(nodes: _Rows | None, graphs: _Rows | None, count: int) -> np.ndarray:
    if nodes is not None:
        return np.bincount(nodes.graph, minlength=count)
    assert graphs is not None
    if "num_nodes" not in graphs.frame:
        raise BadInput(f"{graphs.path} needs the column num_nodes where there is no table nodes.")
    sizes = pd.to_numeric(graphs.frame["num_nodes"], errors="coerce").to_numpy(dtype=float)
    wrong = np.flatnonzero(~((sizes >= 1) & (sizes % 1 == 0)))
    if wrong.size:
        row = int(wrong[0])
        raise BadInput(f"{graphs.place(row)}: num_nodes is {graphs.frame['num_nodes'].iloc[row]}; expected 1 or more.")
    return sizes.astype(np.int64)


class _NodeFinder:
    """From what a table calls a node to its number in its graph."""

    def __init__(self, nodes: _Rows | None, num_nodes: np.ndarray) -> None:
        self.start = np.concatenate([[0], np.cumsum(num_nodes)])
        self.number: dict[tuple[int, str], int] | None = None
        if nodes is None or _NODE not in nodes.frame:
            return
        called = nodes.frame[_NODE].astype(str)
        keys = list(zip(nodes.graph.tolist(), called, strict=True))
        self.number = {key: row - int(self.start[key[0]]) for row, key in enumerate(keys)}
        if len(self.number) != len(keys):
            seen: set[tuple[int, str]] = set()
            row = next(row for row, key in enumerate(keys) if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise BadInput(f"{nodes.place(row)}: its graph has a node {called.iloc[row]} already.")

    def ends(self, rows: _Rows) -> np.ndarray:
        """Node numbers of `source` and `target`, `[rows, 2]`; those out of range are found later."""
        found = []
        for end in _ENDS:
            column = rows.frame[end]
            if self.number is not None:
                values = [self.number.get(key, -1) for key in zip(rows.graph.tolist(), column.astype(str), strict=True)]
                numbers = np.array(values, dtype=np.int64)
                missing = numbers < 0
            else:
                values_ = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float)
                missing = ~(values_ % 1 == 0)
                numbers = np.where(missing, 0, values_).astype(np.int64)
            if missing.any():
                row = int(np.flatnonzero(missing)[0])
                raise BadInput(f"{rows.place(row)}: {end} is {column.iloc[row]}, which is no node of its graph.")
            found.append(numbers)
        return np.stack(found, axis=1)


def _edges(rows: _Rows, finder: _NodeFinder, count: int, directed: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ends, number per graph, and the row of the table that each edge is from."""
    ends = finder.ends(rows)
    if directed:
        return ends, np.bincount(rows.graph, minlength=count), np.arange(len(ends))
    return both_ways(ends, rows.graph, count)
