"""Read graphs from a folder of tables: `nodes`, `edges`, and where needed `graphs` and `links`, in any table format."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from graphbench.benchmarks.graphs.raw import RawGraphs, both_ways
from graphbench.benchmarks.graphs.readers.networkx_files import frame_column
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.errors import BadInput
from graphbench.tables.frames import read_frame, row_place, table_file
from graphbench.tables.layout import near

TABLES = ("graphs", "nodes", "edges", "links")
#: Column of every table that says which graph a row is of.
KEY = "graph"
NODE_NAME, ENDS = "node", ("source", "target")
#: What the one graph of tables without a column `graph` is called.
_ONLY = "0"


def is_table_folder(folder: Path) -> bool:
    """Whether the folder holds edges and either nodes or graphs."""
    found = table_paths(folder)
    return "edges" in found and bool(found.keys() & {"nodes", "graphs"})


def table_paths(folder: Path) -> dict[str, Path]:
    """The files of the tables that are there, in the order of `TABLES`."""
    return {name: path for name in TABLES if (path := table_file(folder, name)) is not None}


def known_columns(name: str) -> tuple[str, ...]:
    """Columns of a table that have a meaning, and so may be written in another case."""
    return (*_keys(name), *{"nodes": (NODE_NAME,), "graphs": ("num_nodes",)}.get(name, ()))


def _keys(name: str) -> tuple[str, ...]:
    return (KEY, *(ENDS if name in ("edges", "links") else ()))


def first_table(names: Collection[str]) -> str:
    """The table that says which graphs there are, and their order."""
    return "graphs" if "graphs" in names else "nodes"


def is_one_graph(columns: Mapping[str, Sequence[str]]) -> bool:
    """Whether tables with these columns hold one graph, which nothing names."""
    return not any(name == "graphs" or KEY in found for name, found in columns.items())


def need(path: Path, table: str, columns: Sequence[str]) -> None:
    """Refuse a table that lacks a column.

    Raises:
        BadInput: one is missing; names near matches.
    """
    missing = [name for name in _keys(table) if name not in columns]
    if missing:
        raise BadInput(
            f"{path} needs the column{'s' if len(missing) > 1 else ''} {' and '.join(missing)}; it has "
            f"{', '.join(columns) or 'none'}.{near(missing, columns)}"
        )


def without_graph(path: Path, row: int) -> BadInput:
    """What to say of a row that names no graph."""
    return BadInput(f"{row_place(path, row)}: the column {KEY} is empty.")


def listed_twice(path: Path, row: int, name: str) -> BadInput:
    """What to say of the second row of a graph in the table `graphs`."""
    return BadInput(f"{row_place(path, row)}: the graph {name} was listed before.")


def unknown_graph(path: Path, row: int, name: object) -> BadInput:
    """What to say of a row whose graph is not there."""
    known = first_table(table_paths(path.parent))
    return BadInput(f"{row_place(path, row)}: there is no graph {name} in the table {known}.")


@dataclass
class _Rows:
    """A table with the number of the graph of each row.

    Args:
        path: its file.
        frame: its content, rows of one graph together, graphs in their order; the index says which row of the file.
        graph: number of the graph of each row.
    """

    path: Path
    frame: pd.DataFrame
    graph: np.ndarray

    def place(self, row: int) -> str:
        return row_place(self.path, int(self.frame.index[row]))

    def columns(self, without: tuple[str, ...]) -> dict[str, np.ndarray]:
        return {str(name): frame_column(self.frame[name].to_numpy()) for name in self.frame if name not in without}


def read_tables(folder: Path, directed: bool) -> RawGraphs:
    """All graphs of a folder of tables; `docs/graphs.md` has the schema.

    Args:
        folder: of the tables.
        directed: whether an edge is listed for one direction only and means that direction.

    Raises:
        BadInput: a column is missing, or a row names a graph or a node that is not there; names file and line.
        CorruptData: a file is no table.
    """
    paths, frames = table_paths(folder), read_frames(folder)
    return graphs_of(folder, paths, frames, graph_names(paths, frames), directed)


def read_frames(folder: Path) -> dict[str, pd.DataFrame]:
    """The tables of a folder as they stand in their files, indexed from 0, all with a column `graph`.

    Raises:
        BadInput: a column is missing.
        CorruptData: a file is no table.
    """
    paths = table_paths(folder)
    frames = {name: read_frame(path, known_columns(name)).reset_index(drop=True) for name, path in paths.items()}
    if is_one_graph({name: list(frame) for name, frame in frames.items()}):
        frames = {name: frame.assign(**{KEY: _ONLY}) for name, frame in frames.items()}
    for name, frame in frames.items():
        need(paths[name], name, list(frame))
    return frames


def graphs_of(
    folder: Path, paths: Mapping[str, Path], frames: Mapping[str, pd.DataFrame], names: Sequence[str], directed: bool
) -> RawGraphs:
    """Graphs out of their rows.

    Args:
        folder: of the tables.
        paths: of each table.
        frames: rows of these graphs in each table, and of no others; the index says which row of the file.
        names: of the graphs, in their order.
        directed: see `read_tables`.

    Raises:
        BadInput: a row names a graph or a node that is not there, or `num_nodes` is missing; names file and line.
    """
    rows = {name: _by_graph(paths[name], frame, names) for name, frame in frames.items()}
    graphs, nodes, edges, links = (rows.get(name) for name in TABLES)
    assert edges is not None
    num_nodes = _num_nodes(nodes, graphs, len(names))
    finder = _NodeFinder(nodes, num_nodes)
    ends, lengths, origin_row = _edges(edges, finder, len(names), directed)
    columns = {
        GRAPH: {} if graphs is None else graphs.columns((KEY, "num_nodes") if nodes is None else (KEY,)),
        NODE: {} if nodes is None else nodes.columns((KEY, NODE_NAME)),
        EDGE: {name: values[origin_row] for name, values in edges.columns((KEY, *ENDS)).items()},
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
        names=list(names),
        place=place,
        links=None if links is None else finder.ends(links),
        num_links=None if links is None else np.bincount(links.graph, minlength=len(names)),
        node_names=finder.names,
    )


def graph_names(paths: Mapping[str, Path], frames: Mapping[str, pd.DataFrame]) -> list[str]:
    """Every graph by name: in the order of `graphs`, else of `nodes`.

    Raises:
        BadInput: a row has no name, or `graphs` lists one twice.
    """
    first = first_table(frames)
    column = frames[first][KEY]
    if column.isna().any():
        raise without_graph(paths[first], int(np.flatnonzero(column.isna())[0]))
    texts = column.astype(str)
    if first == "graphs" and texts.duplicated().any():
        row = int(np.flatnonzero(texts.duplicated())[0])
        raise listed_twice(paths[first], row, texts.iloc[row])
    return [str(name) for name in texts.unique()]


def sorted_frame(path: Path, frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Rows sorted by graph, those of one graph in the order of the file.

    Raises:
        BadInput: a row names a graph that is not there.
    """
    return _by_graph(path, frame, names).frame


def _by_graph(path: Path, frame: pd.DataFrame, names: Sequence[str]) -> _Rows:
    number = {name: position for position, name in enumerate(names)}
    graph = frame[KEY].astype(str).map(number)
    if graph.isna().any():
        row = int(np.flatnonzero(graph.isna())[0])
        raise unknown_graph(path, int(frame.index[row]), frame[KEY].iloc[row])
    order = np.argsort(graph.to_numpy(dtype=np.int64), kind="stable")
    return _Rows(path, frame.iloc[order], graph.to_numpy(dtype=np.int64)[order])


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
        self.names: np.ndarray | None = None
        if nodes is None or NODE_NAME not in nodes.frame:
            return
        called = nodes.frame[NODE_NAME].astype(str)
        self.names = called.to_numpy(dtype=object)
        keys = list(zip(nodes.graph.tolist(), called, strict=True))
        self.number = {key: row - int(self.start[key[0]]) for row, key in enumerate(keys)}
        if len(self.number) != len(keys):
            seen: set[tuple[int, str]] = set()
            row = next(row for row, key in enumerate(keys) if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise BadInput(f"{nodes.place(row)}: its graph has a node {called.iloc[row]} already.")

    def ends(self, rows: _Rows) -> np.ndarray:
        """Node numbers of `source` and `target`, `[rows, 2]`; those out of range are found later."""
        found = []
        for end in ENDS:
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
