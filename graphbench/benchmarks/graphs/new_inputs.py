"""New inputs of `Graphs`: graphs of other sources and of Python with the features, and the target, of training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphbench.benchmarks.graphs.by_nodes.level import NodeLevel
from graphbench.benchmarks.graphs.features import FeaturePlan, feature_arrays
from graphbench.benchmarks.graphs.inputs import MakeTable, parts_of_objects, parts_of_source, told_as
from graphbench.benchmarks.graphs.inspection import POSITION
from graphbench.benchmarks.graphs.raw import RawGraphs, undirected
from graphbench.benchmarks.graphs.sources import open_source
from graphbench.benchmarks.graphs.targets import Target, check_columns, target_array
from graphbench.contracts import GraphTable, InputPart
from graphbench.contracts.table import EDGE, NODE
from graphbench.data.precision import single_numbers
from graphbench.errors import BadInput


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
