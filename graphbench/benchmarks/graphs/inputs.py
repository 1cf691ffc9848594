"""Read new graphs with the features of a benchmark, and with its target if they are scored."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from graphbench.benchmarks.graphs.by_nodes.level import NodeLevel
from graphbench.benchmarks.graphs.features import POSITION, FeaturePlan, feature_arrays, number_array
from graphbench.benchmarks.graphs.node_names import read_node_names
from graphbench.benchmarks.graphs.raw import RawGraphs, RawPart, undirected
from graphbench.benchmarks.graphs.readers.objects import raw_from_objects
from graphbench.benchmarks.graphs.readers.sources import Source, open_source
from graphbench.benchmarks.graphs.targets import Target, check_columns, target_array
from graphbench.contracts import GraphTable, InputPart
from graphbench.contracts.benchmark import PART_ROWS, Wanted
from graphbench.contracts.table import EDGE, GRAPH, GRAPH_DENSE, NODE
from graphbench.data.columns import to_float32
from graphbench.errors import BadInput, GraphbenchError

#: Maps graphs to a table with their features.
BuildTable = Callable[[RawGraphs], GraphTable]


@contextlib.contextmanager
def option_in_errors(option: str) -> Iterator[None]:
    """Make errors of a source name this option instead of `--data.source`."""
    try:
        yield
    except GraphbenchError as error:
        if not str(error).startswith("--data.source"):
            raise
        raise type(error)(str(error).replace("--data.source", option, 1)) from error


def parts_of_source(
    source: Source, columns: Sequence[tuple[str, str]], build: BuildTable, size: int, wanted: Wanted
) -> Iterator[InputPart]:
    """Yield the graphs of a source in parts of `size`; an invalid graph is a problem of its row.

    Graphs of unwanted parts are not built.

    Raises:
        BadInput: there are no graphs, or one of `columns`, (level, name), is missing in the first graph.
    """
    parts = source.parts(size)
    first = next(parts, None)
    if first is None:
        raise BadInput(f"{source.origin} holds no graph.")
    # A table has columns even without graphs; for graphs that are parsed one by one, the first one shows the columns.
    sample: RawGraphs | None = None
    try:
        sample = first.join([0] if first.one_by_one else [])
    except GraphbenchError:
        if not first.one_by_one:
            raise  # otherwise it becomes a problem of its row
    if sample is not None:
        for level, name in columns:
            if level != EDGE or len(sample.edges) or not first.one_by_one:  # a graph without edges needs no columns
                sample.column(level, name)

    def build_wanted() -> Iterator[InputPart]:
        row = 0
        for part in chain([first], parts):
            if wanted(row):
                yield _build_part(part, build)
            else:
                yield InputPart(pd.DataFrame(index=pd.RangeIndex(part.size)), _no_graph(), [])
            row += part.size

    return build_wanted()


def parts_of_objects(objects: Sequence[Any], directed: bool, size: int) -> Iterator[RawPart]:
    """Yield graphs from Python in parts of `size`; see `raw_from_objects`."""
    for start in range(0, len(objects), size):
        chunk = objects[start : start + size]

        def join(rows: Sequence[int], start: int = start, chunk: Sequence[Any] = chunk) -> RawGraphs:
            origin = f"input {start + rows[0]}" if len(rows) == 1 else "the inputs"
            return raw_from_objects([chunk[row] for row in rows], origin, directed)

        yield RawPart(len(chunk), join, name_of=None)


def _build_part(part: RawPart, build: BuildTable) -> InputPart:
    """Build the graphs of a part: all at once, or without the invalid ones."""
    rows = list(range(part.size))
    problems: dict[int, str] = {}
    built: tuple[RawGraphs, GraphTable] | None
    try:
        built = _build_rows(part, rows, build)
    except GraphbenchError:
        problems = _problems(part, rows, build)
        rows = [row for row in rows if row not in problems]
        built = _build_rows(part, rows, build) if rows else None
    raw, table = built or (None, _no_graph())
    frame = pd.DataFrame(index=pd.RangeIndex(part.size))
    if part.name_of is not None:
        names = {} if raw is None else dict(zip(rows, raw.names, strict=True))
        frame["id"] = [names[row] if row in names else part.name_of(row) for row in range(part.size)]
    node_names = ([] if part.names_nodes else None) if raw is None else raw.names_of_nodes()
    by_row = None if node_names is None else dict(zip(rows, node_names, strict=True))
    return InputPart(frame, table, rows, problems, by_row)


def _problems(part: RawPart, rows: Sequence[int], build: BuildTable) -> dict[int, str]:
    """Find the invalid graphs among some, and the reasons.

    Rows are halved until their graphs are valid: building each graph alone takes many times as long.
    """
    try:
        _build_rows(part, rows, build)
    except GraphbenchError as error:
        if len(rows) == 1:
            return {rows[0]: str(error)}
        middle = len(rows) // 2
        return _problems(part, rows[:middle], build) | _problems(part, rows[middle:], build)
    return {}


def _build_rows(part: RawPart, rows: Sequence[int], build: BuildTable) -> tuple[RawGraphs, GraphTable]:
    raw = part.join(rows)
    raw.check()
    return raw, build(raw)


def _no_graph() -> GraphTable:
    return GraphTable.from_graphs([{"num_nodes": 1, "edge_index": torch.empty(2, 0, dtype=torch.int64)}]).slice(0, 0)


class GraphInputs(NodeLevel):
    """Base of `Graphs` that reads new graphs. Options are those of `NodeLevel`."""

    #: Set by `Graphs`: features of each level, the target, and options of edges.
    _plan: dict[str, FeaturePlan]
    _target: Target
    directed: bool
    to_undirected: bool
    #: Arrays of the stored description, and the graphs of each split.
    _described: Mapping[str, np.ndarray]
    _rows: dict[str, np.ndarray]

    def node_names(self, split: str) -> list[Sequence[str]] | None:
        """Return node names from a column `node` of tables, or from networkx; None if nodes are numbered."""
        names = read_node_names(self._described)
        return names if names is None or self._by_nodes else [names[row] for row in self._rows[split]]

    def feature_columns(self, raw: RawGraphs) -> dict[str, tuple[str, np.ndarray]]:
        """Return the columns of features and their levels by name."""
        columns: dict[str, tuple[str, np.ndarray]] = {}
        for level, coded_name, dense_name in ((NODE, "x", "x_dense"), (EDGE, "edge_attr", "edge_dense")):
            coded, dense = feature_arrays(raw, self._plan[level])
            columns |= {coded_name: (level, coded)} if coded is not None else {}
            columns |= {dense_name: (level, dense)} if dense is not None else {}
        if (numbers := number_array(raw, self._plan[GRAPH])) is not None:
            columns[GRAPH_DENSE] = (GRAPH, numbers)
        if self.facts["coordinates"]:
            columns["pos"] = (NODE, to_float32(raw.column(NODE, POSITION), f"{raw.origin}: {POSITION} of nodes"))
        return columns

    def read_input(self, source: str, column: str | None = None, size: int = PART_ROWS) -> Iterator[InputPart]:
        """Read graphs of any source, which need the feature columns but no target.

        JSON lines and folders of networkx files are read graph by graph. Tables are read in chunks if their rows are
        grouped by graph. Both may thus be larger than memory. Other sources are read whole.

        Raises:
            BadInput: the source cannot be read, its graphs lack a column, or `column` is given.
        """
        return self._read_parts(source, column, self._build_table, size)

    def read_chosen(self, source: str, column: str | None, wanted: Wanted) -> Iterator[InputPart]:
        """Read like `read_input`, but build only the graphs of wanted parts."""
        return self._read_parts(source, column, self._build_table, PART_ROWS, wanted)

    def input_recipe(self) -> tuple[Any, ...] | None:
        """Return the features, the options of edges, and where named data sets are looked up."""
        return type(self), self._plan, self.facts["coordinates"], self.directed, self.to_undirected, str(self.root)

    def read_labelled(self, source: str, column: str | None = None, size: int = PART_ROWS) -> Iterator[InputPart]:
        """Read graphs like `read_input`, with the target of graphs or nodes in the column `y`."""
        return self._read_parts(source, column, partial(self._build_table, labelled=True), size)

    def _read_parts(
        self, source: str, column: str | None, build: BuildTable, size: int, wanted: Wanted = lambda row: True
    ) -> Iterator[InputPart]:
        if column is not None:
            raise BadInput(f"{self.spec.name} reads whole graphs, which are in no column {column!r}.")
        if source == "-":
            raise BadInput(f"{self.spec.name} reads files, folders and names, not standard input.")
        columns = [(plan.level, column.name) for plan in self._plan.values() for column in plan.columns]
        with option_in_errors("--input"):
            opened = open_source(source, {}, self.directed, Path(self.root))
            return parts_of_source(opened, columns, build, size, wanted)

    def read_objects(self, objects: Sequence[Any], size: int = PART_ROWS) -> Iterator[InputPart]:
        """Read PyG's `Data`, mappings of tensors, or networkx graphs; an invalid one is a problem of its row."""
        parts = parts_of_objects(objects, self.directed, size)
        return (_build_part(part, self._build_table) for part in parts)

    def _build_table(self, raw: RawGraphs, labelled: bool = False) -> GraphTable:
        raw = undirected(raw) if self.to_undirected else raw
        columns = self.feature_columns(raw)
        if labelled:
            check_columns(raw, self._target)
            y = target_array(raw, self._target)
            assert y is not None, "links are not scored"
            columns["y"] = y
        return replace(raw, pairs={}).table(columns)

    def value_words(self, feature: str, value: int) -> str:
        """Return a category as written in the source."""
        for plan in self._plan.values():
            for column in plan.columns:
                if column.name == feature and column.values:
                    return f"{feature} {column.values[value]}"
        return super().value_words(feature, value)
