"""Check graphs once against the specification of their benchmark, before they enter the store."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from graphbench.contracts import BenchmarkSpec, Features, GraphTable
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.errors import BadInput

#: Axis of the targets of each level except "pair".
_AXES = {"graph": GRAPH, "node": NODE, "edge": EDGE}


def check_table(table: GraphTable, spec: BenchmarkSpec, split: str, first_graph: int = 0) -> None:
    """Check sizes, indices, vocabularies and values of a split, or of a part of it.

    Args:
        table: the graphs.
        spec: specification that they must match.
        split: name of the split.
        first_graph: number of the table's first graph within the split.

    Raises:
        BadInput: the table does not match; the message has benchmark, split, graph, column, and what was expected.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> spec = tiny_spec()
        >>> table = tiny_table(spec, num_graphs=3)
        >>> table.columns["x"][0, 0] = 99
        >>> check_table(table, spec, "train")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        graphbench.errors.BadInput: tiny-graph-regression-both, train split: graph 0 has a value outside 0 .. 4 in x...
    """
    _TableCheck(table, spec, f"{spec.name}, {split} split", first_graph).run()


def check_targets(table: GraphTable, spec: BenchmarkSpec, split: str) -> None:
    """Check only sizes and targets of a split whose graphs `check_table` has checked."""
    check = _TableCheck(table, spec, f"{spec.name}, {split} split", 0)
    check.sizes()
    check.targets()


def check_graphs(table: GraphTable, spec: BenchmarkSpec, where: str) -> None:
    """Check graphs from outside a benchmark like `check_table`, except for targets; messages call them `where`.

    They may be larger than those of the benchmark.
    """
    check = _TableCheck(table, replace(spec, max_nodes=None), where, 0)
    check.sizes()
    check.edges()
    check.all_features()


class _TableCheck:
    """Checks of one table; every method raises `BadInput` at the first fault."""

    def __init__(self, table: GraphTable, spec: BenchmarkSpec, where: str, first_graph: int) -> None:
        self.table, self.spec, self.where, self.first_graph = table, spec, where, first_graph

    def run(self) -> None:
        """Run all checks, cheap ones first, since later ones rely on them."""
        self.sizes()
        self.edges()
        self.all_features()
        self.targets()

    def targets(self) -> None:
        spec = self.spec
        axis = _AXES.get(spec.level or "")
        if axis is not None and spec.kind == "classification":
            self.classes(axis)
        elif axis is not None and spec.kind in ("regression", "multilabel"):
            self.numbers(axis)
        elif spec.kind == "recovery":
            self.real("y", NODE, spec.num_targets)
        elif spec.level == "pair":
            self.pairs("contact_index", "contact", "names a node that it does not have in contact_index")

    def all_features(self) -> None:
        """Check features of nodes and edges, and coordinates."""
        self.features(self.spec.node, NODE, "x", "x_dense")
        self.features(self.spec.edge, EDGE, "edge_attr", "edge_dense")
        if self.spec.coordinates:
            self.real("pos", NODE, self.spec.coordinates)

    def sizes(self) -> None:
        """Check pointers against the number of graphs, columns against their axis, and that every graph has a node."""
        table = self.table
        for axis, ptr in table.ptr.items():
            if len(ptr) != len(table) + 1 or int(ptr[0]) != 0 or bool((ptr.diff() < 0).any()):
                raise BadInput(
                    f"{self.where}: the pointers of axis {axis!r} must ascend from 0, one more than there are graphs."
                )
        for name, column in table.layout.items():
            rows = int(table.lengths(column.axis).sum())
            if len(table.columns[name]) != rows:
                raise BadInput(f"{self.where}: {name} has {len(table.columns[name])} rows, but its axis has {rows}.")
        nodes = table.num_nodes
        self.forbid(nodes < 1, GRAPH, "has no node")
        if self.spec.max_nodes is not None:
            limit = self.spec.max_nodes
            self.forbid(nodes > limit, GRAPH, f"has more than {limit} nodes, the maximum of the specification")

    def edges(self) -> None:
        """Check that edges join nodes of their graph."""
        self.pairs("edge_index", EDGE, "has an edge to a node that it does not have")

    def pairs(self, name: str, axis: str, fault: str) -> None:
        """Check that every row names two nodes of its graph."""
        values = self.column(name, axis, 2)
        if values.is_floating_point():
            raise BadInput(f"{self.where}: {name} must hold integers, got {values.dtype}.")
        if not len(values):
            return
        low, high = values.aminmax()
        if low >= 0 and high < self.table.num_nodes.min():  # skips the mask of all rows for one large graph
            return
        nodes = torch.repeat_interleave(self.table.num_nodes, self.table.lengths(axis))[:, None]
        self.forbid(((values < 0) | (values >= nodes)).any(1), axis, fault)

    def features(self, features: Features, axis: str, categorical: str, dense: str) -> None:
        """Check that categorical values are within their vocabularies, and real ones finite."""
        if features.vocabularies:
            values = self.column(categorical, axis, len(features.vocabularies))
            if values.is_floating_point():
                raise BadInput(f"{self.where}: {categorical} must hold integers, got {values.dtype}.")
            for number, size in enumerate(features.vocabularies):
                name = features.names[number] if features.names else f"column {number}"
                column = values[:, number].to(torch.int64)  # in a byte, a limit of 256 would be 0
                fault = f"has a value outside 0 .. {size - 1} in {categorical} ({name})"
                self.forbid((column < 0) | (column >= size), axis, fault, column)
        if features.dense:
            self.real(dense, axis, features.dense)

    def real(self, name: str, axis: str, width: int) -> None:
        """Check that values are finite floating-point numbers."""
        values = self.column(name, axis, width)
        if not values.is_floating_point():
            raise BadInput(f"{self.where}: {name} must hold floating-point numbers, got {values.dtype}.")
        # Two passes avoid a mask of all values, which would not fit into memory for a large table. A NaN is its own
        # extreme.
        extremes = torch.stack(values.aminmax()) if values.numel() else values
        if not bool(extremes.isfinite().all()):
            self.forbid(~values.isfinite().all(1), axis, f"has a value in {name} that is not finite")

    def classes(self, axis: str) -> None:
        """Check one class number per graph, node or edge; -1 for a node or edge without a label."""
        values = self.column("y", axis, 1)
        count = self.spec.num_classes
        if values.is_floating_point() or count is None:
            raise BadInput(f"{self.where}: y must hold class numbers (integers below num_classes), got {values.dtype}.")
        values = values.to(torch.int64)
        outside = ((values < (0 if axis == GRAPH else -1)) | (values >= count)).any(1)
        self.forbid(outside, axis, f"has a class outside 0 .. {count - 1} in y", values[:, 0])

    def numbers(self, axis: str) -> None:
        """Check real targets (0 or 1 for multi-label), NaN where a label is missing."""
        values = self.column("y", axis, self.spec.num_targets)
        if not values.is_floating_point():
            raise BadInput(f"{self.where}: y must hold floating-point numbers (NaN for missing), got {values.dtype}.")
        if self.spec.kind == "multilabel":
            wrong, fault = ~((values == 0) | (values == 1) | values.isnan()), "other than 0, 1 and NaN"
        else:
            wrong, fault = values.isinf(), "that is infinite"
        self.forbid(wrong.any(1), axis, f"has a value in y {fault}")

    def column(self, name: str, axis: str, width: int) -> Tensor:
        """Return a column as `[rows, width]`."""
        if name not in self.table.columns:
            raise BadInput(
                f"{self.where}: the specification promises {name}, but the graphs have only "
                f"{sorted(self.table.columns)}."
            )
        values, actual = self.table.columns[name], self.table.layout[name].axis
        values = values[:, None] if values.dim() == 1 else values
        if actual != axis or values.dim() != 2 or values.shape[1] != width:
            raise BadInput(
                f"{self.where}: {name} must have one row of {width} numbers per {axis}, got shape "
                f"{list(values.shape[1:])} per {actual}."
            )
        return values

    def forbid(self, wrong: Tensor, axis: str, fault: str, values: Tensor | None = None) -> None:
        """Raise for the first row that is `wrong [rows]`, naming its graph."""
        if not bool(wrong.any()):
            return
        row = int(wrong.nonzero()[0])
        # right=True: a graph without rows on this axis shares its pointer with the next graph, which owns the row.
        graph = row if axis == GRAPH else int(torch.searchsorted(self.table.ptr[axis], row, right=True)) - 1
        value = "" if values is None else f": {values[row].item()}"
        raise BadInput(f"{self.where}: graph {graph + self.first_graph} {fault}{value}.")
