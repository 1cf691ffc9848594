"""Read graphs from a folder of tables: `nodes`, `edges`, and if needed `graphs` and `links`, in any table format."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from graphbench.benchmarks.graphs.raw import LINK, Pairs, RawGraphs, both_ways
from graphbench.benchmarks.graphs.readers.networkx_files import frame_column
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.errors import BadInput
from graphbench.tables.frames import read_frame, row_place, table_columns, table_file
from graphbench.tables.layout import near

TABLES = ("graphs", "nodes", "edges", "links")
#: Column of every table that names the graph of a row.
KEY = "graph"
NODE_NAME, ENDS = "node", ("source", "target")
_OPTIONAL = {"nodes": (NODE_NAME,), "graphs": ("num_nodes",), "links": ("split",)}
_ONLY_GRAPH = "0"  # name of the graph if no table has a column `graph`


def is_table_folder(folder: Path) -> bool:
    """Return whether the folder contains edges and either nodes or graphs."""
    names = table_paths(folder).keys()
    return "edges" in names and bool(names & {"nodes", "graphs"})


def table_paths(folder: Path) -> dict[str, Path]:
    """Return the files of the tables in a folder, in the order of `TABLES`."""
    return {name: path for name in TABLES if (path := table_file(folder, name)) is not None}


def required_columns(table: str) -> tuple[str, ...]:
    """Return the columns without which a table cannot be read."""
    return (KEY, *(ENDS if table in ("edges", "links") else ()))


def name_columns(table: str) -> tuple[str, ...]:
    """Return the columns with names of graphs and nodes."""
    return (*required_columns(table), *((NODE_NAME,) if table == "nodes" else ()))


def known_columns(table: str) -> tuple[str, ...]:
    """Return the columns with a fixed meaning, whose case may differ."""
    return (*required_columns(table), *_OPTIONAL.get(table, ()))


def first_table(names: Collection[str]) -> str:
    """Return the table that lists the graphs in order."""
    return "graphs" if "graphs" in names else "nodes"


def is_one_graph(columns: Mapping[str, Sequence[str]]) -> bool:
    """Return whether tables with these columns contain a single graph without a name."""
    return not any(table == "graphs" or KEY in names for table, names in columns.items())


def columns_of(paths: Mapping[str, Path]) -> dict[str, list[str]]:
    """Read the names of the columns of each table, and check that none is missing."""
    columns = {table: table_columns(path, known_columns(table)) for table, path in paths.items()}
    optional = {KEY} if is_one_graph(columns) else set()
    for table, names in columns.items():
        missing = [name for name in required_columns(table) if name not in {*names, *optional}]
        if missing:
            raise BadInput(
                f"{paths[table]} needs the column{'s' if len(missing) > 1 else ''} {' and '.join(missing)}; it has "
                f"{', '.join(names) or 'none'}.{near(missing, names)}"
            )
    return columns


def no_graph_error(path: Path, row: int) -> BadInput:
    """Build the error for a row that names no graph."""
    return BadInput(f"{row_place(path, row)}: the column {KEY} is empty.")


def repeated_graph_error(path: Path, row: int, name: str) -> BadInput:
    """Build the error for a graph that the table `graphs` lists twice."""
    return BadInput(f"{row_place(path, row)}: the graph {name} was listed before.")


def unknown_graph_error(path: Path, row: int, name: object) -> BadInput:
    """Build the error for a row whose graph is not listed in the first table."""
    first = first_table(table_paths(path.parent))
    return BadInput(f"{row_place(path, row)}: there is no graph {name} in the table {first}.")


@dataclass
class SortedRows:
    """A table sorted by graph.

    The index of the frame has the row numbers in the file. `graph` has the number of the graph of each row, in
    ascending order.
    """

    path: Path
    frame: pd.DataFrame
    graph: np.ndarray

    def place(self, row: int) -> str:
        """Return the file and line of a row, for messages."""
        return row_place(self.path, int(self.frame.index[row]))

    def columns(self, without: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Return the other columns as arrays."""
        return {str(name): frame_column(self.frame[name].to_numpy()) for name in self.frame if name not in without}


def read_tables(folder: Path, directed: bool) -> RawGraphs:
    """Read all graphs of a folder of tables; `docs/graphs.md` has the schema.

    Raises:
        BadInput: a file is not a table, lacks a column, or a row has an unknown graph or node; names file and line.
    """
    paths, frames = table_paths(folder), read_frames(folder)
    return graphs_of(folder, paths, frames, graph_names(paths, frames), directed)


def read_frames(folder: Path) -> dict[str, pd.DataFrame]:
    """Read the tables of a folder, each with a column `graph`; raise the errors of `read_tables`."""
    paths = table_paths(folder)
    columns = columns_of(paths)
    frames = {name: read_frame(path, known_columns(name), name_columns(name)) for name, path in paths.items()}
    return (
        {name: frame.assign(**{KEY: _ONLY_GRAPH}) for name, frame in frames.items()}
        if is_one_graph(columns)
        else frames
    )


def graphs_of(
    folder: Path, paths: Mapping[str, Path], frames: Mapping[str, pd.DataFrame], names: Sequence[str], directed: bool
) -> RawGraphs:
    """Build graphs from their rows in each table, without other rows; the index has row numbers of the file.

    Raises:
        BadInput: a row names an unknown graph or node, or `num_nodes` is missing; names file and line.
    """
    rows = {name: sort_by_graph(paths[name], frame, names) for name, frame in frames.items()}
    graphs, nodes, edges, links = (rows.get(name) for name in TABLES)
    assert edges is not None
    num_nodes = _num_nodes(nodes, graphs, len(names))
    numbers = _NodeNumbers(nodes, num_nodes)
    ends = numbers.ends(edges)
    num_edges, edge_row = np.bincount(edges.graph, minlength=len(names)), np.arange(len(ends))
    if not directed:
        ends, num_edges, edge_row = both_ways(ends, edges.graph, len(names))
    columns = {
        GRAPH: {} if graphs is None else graphs.columns((KEY, "num_nodes") if nodes is None else (KEY,)),
        NODE: {} if nodes is None else nodes.columns((KEY, NODE_NAME)),
        EDGE: {name: values[edge_row] for name, values in edges.columns((KEY, *ENDS)).items()},
    }
    if links is not None:
        columns[LINK] = _columns_of_links(links, len(names))
    table_of = {GRAPH: graphs, NODE: nodes, EDGE: edges, LINK: links}

    def place(level: str, row: int) -> str:
        table, at = table_of[level], int(edge_row[row]) if level == EDGE else row
        if table is None:
            return f"{folder}, graph {names[row] if level == GRAPH else row}"
        return f"{table.place(at)} (graph {names[int(table.graph[at])]})"

    return RawGraphs(
        origin=str(folder),
        num_nodes=num_nodes,
        num_edges=num_edges,
        edges=ends,
        columns=columns,
        names=list(names),
        place=place,
        pairs={}
        if links is None
        else {LINK: Pairs(numbers.ends(links), np.bincount(links.graph, minlength=len(names)))},
        node_names=numbers.names,
    )


def _columns_of_links(links: SortedRows, count: int) -> dict[str, np.ndarray]:
    """Return the column `split` of the links of one graph; refuse unknown columns."""
    columns = links.columns((KEY, *ENDS))
    readable = ("split",) if count == 1 else ()
    if unread := [name for name in columns if name not in readable]:
        hint = " Several graphs are split as graphs, by a column of the table graphs." if "split" in unread else ""
        raise BadInput(
            f"{links.path}: nothing reads {', '.join(unread)}; links have {', '.join((KEY, *ENDS))}, and of one graph "
            f"split. Leave the column{'s' if len(unread) > 1 else ''} out.{hint}"
        )
    return columns


def graph_names(paths: Mapping[str, Path], frames: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return the names of all graphs, in the order of `graphs`, else of `nodes`.

    Raises:
        BadInput: a row has no name, or `graphs` lists a name twice.
    """
    first = first_table(frames)
    column = frames[first][KEY]
    if column.isna().any():
        raise no_graph_error(paths[first], int(column.index[column.isna()][0]))
    texts = column.astype(str)
    repeated = texts[texts.duplicated()]
    if first == "graphs" and len(repeated):
        raise repeated_graph_error(paths[first], int(repeated.index[0]), repeated.iloc[0])
    return [str(name) for name in texts.unique()]


def sort_by_graph(path: Path, frame: pd.DataFrame, names: Sequence[str]) -> SortedRows:
    """Sort rows by graph; rows of one graph keep the order of the file."""
    graph = frame[KEY].astype(str).map({name: number for number, name in enumerate(names)})
    if graph.isna().any():
        row = int(np.flatnonzero(graph.isna())[0])
        raise unknown_graph_error(path, int(frame.index[row]), frame[KEY].iloc[row])
    numbers = graph.to_numpy(dtype=np.int64)
    order = np.argsort(numbers, kind="stable")
    return SortedRows(path, frame.iloc[order], numbers[order])


def _num_nodes(nodes: SortedRows | None, graphs: SortedRows | None, count: int) -> np.ndarray:
    if nodes is not None:
        return np.bincount(nodes.graph, minlength=count)
    assert graphs is not None
    if "num_nodes" not in graphs.frame:
        raise BadInput(f"{graphs.path} needs the column num_nodes if there is no table nodes.")
    sizes = pd.to_numeric(graphs.frame["num_nodes"], errors="coerce").to_numpy(dtype=float)
    wrong = np.flatnonzero(~((sizes >= 1) & (sizes % 1 == 0)))
    if wrong.size:
        row = int(wrong[0])
        raise BadInput(f"{graphs.place(row)}: num_nodes is {graphs.frame['num_nodes'].iloc[row]}; expected 1 or more.")
    return sizes.astype(np.int64)


class _NodeNumbers:
    """Translate the names of nodes to numbers within their graphs; without names, the tables contain the numbers."""

    def __init__(self, nodes: SortedRows | None, num_nodes: np.ndarray) -> None:
        self.offset = np.cumsum(num_nodes) - num_nodes
        self.names: np.ndarray | None = None
        if nodes is not None and NODE_NAME in nodes.frame:
            if (empty := nodes.frame[NODE_NAME].isna().to_numpy()).any():
                raise BadInput(f"{nodes.place(int(np.flatnonzero(empty)[0]))}: the column {NODE_NAME} is empty.")
            self.names = nodes.frame[NODE_NAME].astype(str).to_numpy(dtype=object)
            # Names need to be unique only within their graph.
            self.index = pd.MultiIndex.from_arrays([nodes.graph, self.names])
            if (repeated := self.index.duplicated()).any():
                row = int(np.flatnonzero(repeated)[0])
                raise BadInput(f"{nodes.place(row)}: its graph has a node {self.names[row]} already.")

    def ends(self, rows: SortedRows) -> np.ndarray:
        """Return the numbers of `source` and `target` `[rows, 2]`; `RawGraphs.check` refuses those out of range."""
        columns = []
        for end in ENDS:
            column = rows.frame[end]
            if self.names is not None:
                keys = pd.MultiIndex.from_arrays([rows.graph, column.astype(str).to_numpy(dtype=object)])
                row_of = self.index.get_indexer(keys)
                missing, numbers = (row_of < 0) | column.isna().to_numpy(), row_of - self.offset[rows.graph]
            else:
                values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float)
                missing = ~(values % 1 == 0)
                numbers = np.where(missing, 0, values).astype(np.int64)  # NaN cast to an integer can be any number
            if missing.any():
                row = int(np.flatnonzero(missing)[0])
                raise BadInput(f"{rows.place(row)}: {end} is {column.iloc[row]}, which is not a node of its graph.")
            columns.append(numbers)
        return np.stack(columns, axis=1)
