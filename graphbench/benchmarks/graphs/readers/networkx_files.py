"""Read networkx files with one graph each, and a table of their targets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from graphbench.benchmarks.graphs.raw import OneGraph, RawGraphs, RawPart, as_array, stack, unreadable_fault
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.data.files.foreign import foreign
from graphbench.data.progress import track
from graphbench.errors import BadInput
from graphbench.tables.frames import read_frame, table_file

log = logging.getLogger(__name__)

#: Maps a suffix to its reader, called with `(path, directed)`.
READERS: dict[str, Callable[[Path, bool], Any]] = {
    ".graphml": lambda path, _: nx.read_graphml(path),
    ".gexf": lambda path, _: nx.read_gexf(path),
    ".gml": lambda path, _: nx.read_gml(path, label=None),  # labels need not be unique, but would be used as names
    ".adjlist": lambda path, directed: nx.read_adjlist(path, create_using=nx.DiGraph if directed else nx.Graph),
    ".edgelist": lambda path, directed: _read_edge_list(path, directed),
}
TARGETS = "targets"  # name, without suffix, of the table in a folder of such files
#: Formats in which every node has a `label`, by default its name.
_LABELLED = (".gexf", ".gml")
_LABEL = "label"
#: Further attributes that these formats add to every node and edge.
_ADDED = {NODE: ("viz", "start", "end"), EDGE: ("id", "viz", "start", "end")}


def _read_edge_list(path: Path, directed: bool) -> Any:
    """Read a line `SOURCE TARGET` for each edge, followed by its attributes as a mapping.

    A networkx graph has each edge only once: a warning gives the number of lines that repeat or contradict an edge.

    Raises:
        BadInput: a line has a single word; networkx would skip it.
    """
    graph = nx.read_edgelist(path, create_using=nx.DiGraph if directed else nx.Graph)
    with path.open(encoding="utf-8") as file:
        words = [len(line.partition("#")[0].split()) for line in file]
    if 1 in words:
        raise BadInput(f"{path}, line {words.index(1) + 1}: expected two nodes, SOURCE TARGET, but there is one word.")
    lines = sum(map(bool, words))
    if lines > graph.number_of_edges():

        def edges_of(one: Any) -> set[tuple[str, ...]]:
            return {(*ends, str(sorted(data.items()))) for *ends, data in one.edges(data=True)}

        # The two directions of an edge do not count as repeated if they have the same attributes.
        listed = nx.read_edgelist(path, create_using=nx.MultiDiGraph)
        if lost := lines - len(edges_of(graph.to_directed()) & edges_of(listed)):
            log.warning(
                "%s: %d of %d lines repeat an edge; the last one counts. A table `edges` keeps them all%s.",
                path, lost, lines, "" if directed else ", and --data.directed true two directions that differ",
            )  # fmt: skip
    return graph


def graph_files(folder: Path) -> list[Path]:
    """Return the files of a folder that networkx reads, sorted by name."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in READERS)


def read_networkx(files: Sequence[Path], folder: Path | None, directed: bool, origin: str) -> RawGraphs:
    """Read one graph per file, and columns of the folder's table `targets`, if any, matched by file names in `graph`.

    `directed` applies to adjacency and edge lists; GraphML, GEXF and GML specify it in the file. Labels of GEXF and GML
    are a node column, unless they are only names.
    """
    raw = stack([_graph(path, directed) for path in track(files, f"Reading {origin}", unit="files")], origin)
    if all(path.suffix.lower() in _LABELLED for path in files):
        _drop_names(raw)
    table = None if folder is None else table_file(folder, TARGETS)
    if table is not None:
        raw.columns[GRAPH] |= _targets(table, files)
    return raw


def parts_of_files(files: Sequence[Path], directed: bool, size: int) -> Iterator[RawPart]:
    """Read the graphs of files in parts of `size`, without targets; files are opened when their part is built."""
    for start in range(0, len(files), size):
        chunk, names = files[start : start + size], [path.name for path in files[start : start + size]]
        yield RawPart(len(chunk), partial(_join, chunk, directed), names.__getitem__, names_nodes=True, one_by_one=True)


def _join(files: Sequence[Path], directed: bool, rows: Sequence[int]) -> RawGraphs:
    # Keep labels of any kind: the training graphs decided whether they are a feature.
    return stack([_graph(files[row], directed) for row in rows], str(files[0].parent))


def _drop_names(raw: RawGraphs) -> None:
    """Drop the labels of nodes if some graphs lack them, or if no two nodes of a graph share a label."""
    lacking = raw.faults.pop((NODE, _LABEL), "")
    labels = raw.columns[NODE].get(_LABEL)
    if labels is not None:
        graph = np.repeat(np.arange(len(raw)), raw.num_nodes)
        if len(set(zip(graph.tolist(), labels.tolist(), strict=True))) == len(labels):
            del raw.columns[NODE][_LABEL]
            lacking = "the labels of its nodes differ within every graph, so they are names"
    if lacking:
        log.info("%s: %s; they are not a node column.", raw.origin, lacking)


def _graph(path: Path, directed: bool) -> OneGraph:
    with foreign(path, is_not="cannot be read by networkx"):
        graph = READERS[path.suffix.lower()](path, directed)
    return convert(graph, str(path), path.name, directed)


def _targets(table: Path, files: Sequence[Path]) -> dict[str, np.ndarray]:
    """Return the columns of the table in the order of the files."""
    frame = read_frame(table, ("graph",), names=("graph",))
    if "graph" not in frame:
        raise BadInput(
            f"{table} needs a column graph with the names of the files; it has {', '.join(map(str, frame))}."
        )
    names = frame["graph"].astype(str)
    if names.duplicated().any():
        raise BadInput(f"{table} names {names[names.duplicated()].iloc[0]} more than once in its column graph.")
    row_of = {name: row for row, name in enumerate(names)}
    rows: list[Any] = [row_of.get(path.name, row_of.get(path.stem)) for path in files]
    if None in rows:
        lacking = files[rows.index(None)].name
        raise BadInput(f"{table} has no row for {lacking}: its column graph must name every file of the folder.")
    taken = frame.iloc[rows].drop(columns="graph")
    return {str(name): frame_column(taken[name].to_numpy()) for name in taken}


def frame_column(values: np.ndarray) -> np.ndarray:
    """Return numbers unchanged, anything else as text with None for missing cells `[rows]`."""
    if values.dtype.kind in "biuf":
        return values if values.flags.writeable else values.copy()  # pandas' own are not, of which torch warns
    return np.array([None if pd.isna(value) else str(value) for value in values], dtype=object)


def convert(graph: Any, place: str, name: str, directed: bool = False) -> OneGraph:
    """Convert a networkx graph, in the order of `from_networkx`; undirected edges get both directions.

    Raises:
        BadInput: some nodes or edges lack an attribute that others have, or an attribute is neither number nor text.
    """
    both = graph if graph.is_directed() or directed else graph.to_directed()
    number_of = {node: number for number, node in enumerate(graph)}
    pairs = [(number_of[head], number_of[tail]) for head, tail in both.edges()]
    is_labelled = place.lower().endswith(_LABELLED)
    skipped = _ADDED if is_labelled else {NODE: (), EDGE: ()}
    node = _attributes(dict(graph.nodes(data=True)), place, NODE, skipped[NODE], (_LABEL,) if is_labelled else ())
    edge_data = {(head, tail, n): data for n, (head, tail, data) in enumerate(both.edges(data=True))}
    edge = _attributes(edge_data, place, EDGE, skipped[EDGE])
    given = {str(key): value for key, value in graph.graph.items() if not str(key).endswith("_default")}
    whole = {key: as_array(value) for key, value in given.items()}
    return OneGraph(
        place,
        name,
        len(number_of),
        np.array(pairs, dtype=np.int64).reshape(-1, 2).T,
        node=node,
        edge=edge,
        graph={key: value.reshape(-1) for key, value in whole.items() if value is not None and value.size},
        faults={
            (GRAPH, key): unreadable_fault(place, key, given[key]) for key, value in whole.items() if value is None
        },
        node_names=[str(node) for node in number_of],
    )


def _attributes(
    data: dict[Any, dict[str, Any]], place: str, level: str, skipped: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Gather the attributes of all nodes or edges by name; `optional` ones only if all have them, of one kind."""
    names = dict.fromkeys(str(key) for values in data.values() for key in values)
    columns = {}
    for name in names:
        if name in skipped:
            continue
        lacking = next((owner for owner, values in data.items() if name not in values), None)
        if lacking is not None and name not in optional:
            owner = lacking[:2] if level == EDGE else lacking
            raise BadInput(f"{place}: the {level} {owner!r} has no {name}, but others have.")
        column = as_array([values.get(name) for values in data.values()])
        if name in optional and (lacking is not None or column is None or None in column.tolist()):
            continue
        if column is None:
            raise BadInput(f"{place}: {name} of its {level}s is neither all numbers nor all text.")
        columns[name] = column
    return columns
