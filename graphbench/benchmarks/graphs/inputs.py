"""Graphs that nobody trained on, with the features of a benchmark, and with its target where they are scored."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from graphbench.benchmarks.graphs.by_nodes.level import NodeLevel
from graphbench.benchmarks.graphs.data_objects import raw_from_objects
from graphbench.benchmarks.graphs.features import FeaturePlan, feature_arrays
from graphbench.benchmarks.graphs.inspection import POSITION
from graphbench.benchmarks.graphs.raw import OneGraph, RawGraphs, RawPart, Unread, parts_of_raw, stack, undirected
from graphbench.benchmarks.graphs.sources import Source, open_source
from graphbench.benchmarks.graphs.targets import Target, check_columns, target_array
from graphbench.contracts import GraphTable, InputPart
from graphbench.contracts.table import EDGE, NODE
from graphbench.data.columns import single_numbers
from graphbench.errors import BadInput, GraphbenchError

#: Makes graphs with their features out of raw ones.
MakeTable = Callable[[RawGraphs], GraphTable]


@contextlib.contextmanager
def told_as(option: str) -> Iterator[None]:
    """Errors of a source name the option that it was given by, not that of the data to train on."""
    try:
        yield
    except GraphbenchError as error:
        if not str(error).startswith("--data.source"):
            raise
        raise type(error)(str(error).replace("--data.source", option, 1)) from error


def parts_of_source(
    source: Source, needed: Sequence[tuple[str, str]], table_of: MakeTable, size: int
) -> Iterator[InputPart]:
    """Graphs of a source part by part, by their names; one that cannot be used is a problem of its row.

    Args:
        source: of the graphs; where it gives them one by one or in parts, never more than a part is in memory.
        needed: `(level, name)` of the columns that are features.
        table_of: makes the features of graphs.
        size: graphs per part.

    Raises:
        BadInput: there is no graph, or they lack a column; of graphs that come one by one, the first is asked.
    """
    if source.unread is None:
        parts = parts_of_raw(source.read(), size) if source.parts is None else source.parts(size)
        return _parts_of_raw(parts, needed, table_of, source.origin)
    first = next(source.unread(), None)
    if first is None:
        raise BadInput(f"{source.origin} holds no graph.")
    asked: list[RawGraphs] = []
    with contextlib.suppress(GraphbenchError):  # which is a problem of its row
        asked.append(stack([first.read()], source.origin))
    for raw, (level, name) in product(asked, needed):
        raw.column(level, name)
    return _parts_of_unread(source.unread(), table_of, size, source.origin)


def _parts_of_raw(
    parts: Iterator[RawPart], needed: Sequence[tuple[str, str]], table_of: MakeTable, origin: str
) -> Iterator[InputPart]:
    first = next(parts, None)
    if first is None:
        raise BadInput(f"{origin} holds no graph.")
    no_graph = first.join([])  # which has all columns nevertheless
    for level, name in needed:
        no_graph.column(level, name)
    return (_part_of_raw(part, table_of) for part in chain([first], parts))


def _part_of_raw(part: RawPart, table_of: MakeTable) -> InputPart:
    frame = pd.DataFrame({"id": part.names})
    return _with_graphs(frame, range(len(part.names)), part.join, table_of, part.names_nodes)


def _parts_of_unread(graphs: Iterator[Unread], table_of: MakeTable, size: int, origin: str) -> Iterator[InputPart]:
    while chosen := list(islice(graphs, size)):
        yield _part_of_unread(chosen, table_of, origin)


def _part_of_unread(chosen: Sequence[Unread], table_of: MakeTable, origin: str) -> InputPart:
    read: dict[int, OneGraph] = {}
    problems: dict[int, str] = {}
    for row, unread in enumerate(chosen):
        try:
            read[row] = unread.read()
        except GraphbenchError as error:
            problems[row] = str(error)
    names = [read[row].name if row in read else unread.name_in_vain() for row, unread in enumerate(chosen)]
    frame, join = pd.DataFrame({"id": names}), lambda rows: stack([read[row] for row in rows], origin)
    part = _with_graphs(frame, list(read), join, table_of, chosen[0].names_nodes)
    part.problems |= problems
    return part


def parts_of_objects(objects: Sequence[Any], directed: bool, table_of: MakeTable, size: int) -> Iterator[InputPart]:
    """Graphs of Python part by part; one that cannot be used is a problem of its row.

    Args:
        objects: PyG's `Data`, mappings of tensors, or networkx graphs.
        directed: see `raw_from_objects`.
        table_of: makes their features.
        size: graphs per part.
    """
    for start in range(0, len(objects), size):
        count = len(objects[start : start + size])

        def join(rows: Sequence[int], start: int = start) -> RawGraphs:
            origin = f"input {start + rows[0]}" if len(rows) == 1 else "the inputs"
            return raw_from_objects([objects[start + row] for row in rows], origin, directed)

        yield _with_graphs(pd.DataFrame(index=pd.RangeIndex(count)), range(count), join, table_of)


def _with_graphs(
    frame: pd.DataFrame,
    rows: Sequence[int],
    join: Callable[[Sequence[int]], RawGraphs],
    table_of: MakeTable,
    names_nodes: bool = False,
) -> InputPart:
    """A part with those of its rows whose graphs can be used, and why the others cannot.

    All are tried at once; only where that fails, each alone.

    Args:
        frame: all rows of the part.
        rows: those that have a graph.
        join: makes the graphs of some rows.
        table_of: makes the features of graphs.
        names_nodes: whether the source names nodes, which counts where no graph can be used.
    """

    def usable(some: Sequence[int], problems: dict[int, str]) -> InputPart:
        if not some:
            return InputPart(frame, _no_graph(), [], problems, {} if names_nodes else None)
        raw = join(some)
        raw.check()
        names = raw.names_of_nodes()
        called = None if names is None else dict(zip(some, names, strict=True))
        return InputPart(frame, table_of(raw), list(some), problems, called)

    try:
        return usable(rows, {})
    except GraphbenchError:  # a loop over graphs, which is for files with faults alone
        problems: dict[int, str] = {}
        for row in rows:
            try:
                usable([row], {})
            except GraphbenchError as error:
                problems[row] = str(error)
    return usable([row for row in rows if row not in problems], problems)


def _no_graph() -> GraphTable:
    return GraphTable.from_graphs([{"num_nodes": 1, "edge_index": torch.empty(2, 0, dtype=torch.int64)}]).slice(0, 0)


class GraphInputs(NodeLevel):
    """Base of `Graphs`: reads graphs that it was not trained on.

    Args:
        options: see `NodeLevel`.
    """

    #: Set by `Graphs`: features of each level, the target, and what becomes of edges.
    _plan: dict[str, FeaturePlan]
    _target: Target
    directed: bool
    to_undirected: bool

    def feature_columns(self, raw: RawGraphs) -> dict[str, tuple[str, np.ndarray]]:
        """Columns of features by name, with their level."""
        columns: dict[str, tuple[str, np.ndarray]] = {}
        for level, coded_name, dense_name in ((NODE, "x", "x_dense"), (EDGE, "edge_attr", "edge_dense")):
            coded, dense = feature_arrays(raw, self._plan[level])
            columns |= {coded_name: (level, coded)} if coded is not None else {}
            columns |= {dense_name: (level, dense)} if dense is not None else {}
        if self.facts["coordinates"]:
            columns["pos"] = (NODE, single_numbers(raw.column(NODE, POSITION), f"{raw.origin}: {POSITION} of nodes"))
        return columns

    def read_input(self, source: str, column: str | None = None, size: int = 1024) -> Iterator[InputPart]:
        """Graphs of another source of any kind; they need the columns that are features, and no target.

        JSON lines and folders of networkx files are read graph by graph, tables in chunks where their rows are grouped
        by graph, so that they may be longer than memory. Other sources are read whole.

        Args:
            source: as the option of this name.
            column: not used: graphs are told by their own layout.
            size: graphs per part.

        Raises:
            BadInput: the source cannot be read, or its graphs lack a column.
        """
        return self._read_parts(source, self._features_only, size)

    def read_labelled(self, source: str, column: str | None = None, size: int = 1024) -> Iterator[InputPart]:
        """As `read_input`, with the target in the column `y`: of graphs, or of nodes.

        Raises:
            BadInput: as `read_input`, or the source lacks the target.
        """
        return self._read_parts(source, self._labelled, size)

    def _read_parts(self, source: str, table_of: MakeTable, size: int) -> Iterator[InputPart]:
        """Graphs of another source, as tables that `table_of` makes."""
        if source == "-":
            raise BadInput(f"{self.spec.name} reads files, folders and names, not standard input.")
        needed = [(plan.level, found.name) for plan in self._plan.values() for found in plan.columns]
        with told_as("--input"):
            opened = open_source(source, {}, self.directed, Path(self.root))
            return parts_of_source(opened, needed, table_of, size)

    def read_objects(self, objects: Sequence[Any], size: int = 1024) -> Iterator[InputPart]:
        """PyG's `Data`, mappings of tensors, or networkx graphs; one that cannot be used is a problem of its row."""
        return parts_of_objects(objects, self.directed, self._features_only, size)

    def _features_only(self, raw: RawGraphs) -> GraphTable:
        return self._prepared(raw, {})

    def _labelled(self, raw: RawGraphs) -> GraphTable:
        check_columns(raw, self._target)
        y = target_array(raw, self._target)
        assert y is not None, "links are not scored"
        return self._prepared(raw, {"y": y})

    def _prepared(self, raw: RawGraphs, further: dict[str, tuple[str, np.ndarray]]) -> GraphTable:
        raw = (undirected(raw) if self.to_undirected else raw).without_links()
        return raw.table({**self.feature_columns(raw), **further})

    def value_words(self, feature: str, value: int) -> str:
        """A category by what the source calls it."""
        for plan in self._plan.values():
            for found in plan.columns:
                if found.name == feature and found.values:
                    return f"{feature} {found.values[value]}"
        return super().value_words(feature, value)
