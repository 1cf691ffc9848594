"""Read new inputs of any benchmark: graphs held in Python, and labels from the columns of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch_geometric.data import Data

from graphbench.contracts import Benchmark, BenchmarkSpec, Column, GraphTable, InputPart
from graphbench.contracts.pyg import named_features
from graphbench.contracts.table import GRAPH
from graphbench.data.checks import check_graphs
from graphbench.data.columns import exact_numbers
from graphbench.errors import BadInput
from graphbench.tables.cells import Missing, parse_class, parse_number
from graphbench.tables.formats import SEPARATOR
from graphbench.tables.layout import find_column, has_decimal_commas, is_decimal_point, near, point_for_comma
from graphbench.tables.reader import as_texts

_SHOWN = 20  # columns that a message names
_WIDTH = 60  # characters of a cell that a message quotes


def with_labels(parts: Iterable[InputPart], data: Benchmark, source: str) -> Iterator[InputPart]:
    """Add the column `y` to the graphs of an input: NaN (or class -1) where a cell is empty.

    Cells are read as those of a training file: targets by their names in any case, classes by the names (or numbers)
    of training. A cell that holds something else is a problem of its row.

    Args:
        parts: of the input.
        data: names the targets and classes; its targets belong to graphs.
        source: the input, for messages.

    Raises:
        BadInput: targets belong to nodes, or the input lacks a target's column.
    """
    if data.spec.level != "graph":
        raise BadInput(f"{data.spec.name} cannot score {source}: a table has no labels of nodes.")
    commas: bool | None = None
    for part in parts:
        cells = _cells(part.frame, data.target_labels(), source)
        if commas is None and data.spec.kind == "regression":
            commas = _decimal_commas(cells, part.frame.attrs.get(SEPARATOR, ""))
        if commas:
            cells = [[point_for_comma(cell) for cell in column] for column in cells]
        yield _labelled(part, cells, data)


def _cells(frame: pd.DataFrame, names: Sequence[str], source: str) -> list[list[str]]:
    """The texts of the target columns, one list a column."""
    header = [str(name) for name in frame.columns]
    places = [find_column(source, header, name) for name in names]
    lacking = [name for name, place in zip(names, places, strict=True) if place is None]
    if lacking:
        known = ", ".join(map(repr, header[:_SHOWN])) or "none"
        raise BadInput(
            f"{source}: no column {' and no '.join(map(repr, lacking))}, which the model was trained to predict. Its "
            f"columns: {known}.{near(lacking, header)}"
        )
    return [as_texts(frame.iloc[:, place]) for place in places if place is not None]


def _decimal_commas(cells: Sequence[Sequence[str]], separator: str) -> bool | None:
    """Return whether numbers have decimal commas, as for a training; None as long as no cell tells."""
    every = [cell for column in cells for cell in column]
    if has_decimal_commas(every):
        return separator != ","
    return False if any(map(is_decimal_point, every)) else None


def _labelled(part: InputPart, cells: Sequence[Sequence[str]], data: Benchmark) -> InputPart:
    spec, problems, kind = data.spec, dict(part.problems), str(data.spec.kind)
    names = data.target_labels()
    called = {name: number for number, name in enumerate(data.class_labels())} if spec.num_classes else {}
    if list(called) == [str(number) for number in range(len(called))]:
        called = {}  # numbers, which may be written with a point
    missing = Missing.of(getattr(data, "missing", None))
    values = np.full((len(part.frame), len(names)), np.nan)
    for place, (name, column) in enumerate(zip(names, cells, strict=True)):
        for row, text in enumerate(column):
            if text in missing and text not in called:
                continue
            value, fault = parse_class(text, called) if called else parse_number(text, kind, spec.num_classes or 0)
            if fault:
                shown = text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
                problems.setdefault(row, f"target {name!r} {fault}: {shown}")
            else:
                values[row, place] = value
    if not part.rows:
        return replace(part, problems=problems)
    chosen = values[part.rows]
    y = np.nan_to_num(chosen, nan=-1.0).astype(np.int64) if spec.num_classes else exact_numbers(chosen)
    table = part.table.with_columns({"y": torch.from_numpy(y)}, {"y": Column(GRAPH)})
    return replace(part, table=table, problems=problems)


def is_graph(thing: Any) -> bool:
    """Whether this is PyG's `Data` or a networkx graph; networkx is not imported for it."""
    return isinstance(thing, Data) or (hasattr(thing, "number_of_nodes") and hasattr(thing, "adjacency"))


def read_graphs(graphs: Sequence[Any], spec: BenchmarkSpec, size: int) -> Iterator[InputPart]:
    """Graphs part by part; one that is not what the specification says is a problem of its row.

    Args:
        graphs: `Data` or networkx graphs. Their fields have the names of a batch: `x`, `x_dense`, `pos`, `edge_attr`,
            `edge_dense`; `x` and `edge_attr` of real numbers are read as `x_dense` and `edge_dense`. An edge of an
            undirected networkx graph counts in both directions.
        spec: which of them there must be.
        size: graphs per part.

    Raises:
        BadInput: an object is no graph.
    """
    for number, thing in enumerate(graphs):
        if not is_graph(thing):
            raise BadInput(
                f"{spec.name}: input {number} is of type {type(thing).__name__}; expected torch_geometric.data.Data or "
                "a networkx graph."
            )
    for start in range(0, len(graphs), size):
        chosen = graphs[start : start + size]
        found: dict[int, dict[str, Any]] = {}
        problems: dict[int, str] = {}
        for row, graph in enumerate(chosen):
            try:
                found[row] = _fields(graph, spec)
                check_graphs(GraphTable.from_graphs([found[row]]), spec, "input")
            except (BadInput, ValueError, TypeError, RuntimeError, IndexError, KeyError) as error:
                found.pop(row, None)
                problems[row] = str(error).removeprefix("input: ").replace("graph 0 ", "the graph ")
        frame = pd.DataFrame(index=pd.RangeIndex(len(chosen)))
        yield InputPart(frame, GraphTable.from_graphs(found.values()), list(found), problems)


def _fields(graph: Any, spec: BenchmarkSpec) -> dict[str, Any]:
    """What the specification asks for, as `GraphTable.from_graphs` takes it."""
    data = graph if isinstance(graph, Data) else _from_networkx(graph)
    count = data.num_nodes
    if not count:
        raise BadInput("the graph has no nodes")
    edges = data.edge_index if data.edge_index is not None else torch.empty(2, 0, dtype=torch.int64)
    return {"num_nodes": count, "edge_index": edges} | named_features(data, spec, count, edges.shape[1])


def _from_networkx(graph: Any) -> Data:
    from torch_geometric.utils import from_networkx

    return from_networkx(graph)
