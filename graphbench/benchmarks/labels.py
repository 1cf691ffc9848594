"""Read the labels of new inputs from their columns, so that a model can be scored on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from graphbench.contracts import Benchmark, Column, InputPart
from graphbench.contracts.table import GRAPH
from graphbench.data.columns import exact_numbers
from graphbench.errors import BadInput
from graphbench.tables.cells import Missing, parse_cells
from graphbench.tables.layout import find_column, has_decimal_commas, is_decimal_point, near, point_for_comma
from graphbench.tables.reader import SEPARATOR, as_texts

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
        columns = _cells(part.frame, data.target_labels(), source)
        if commas is None and data.spec.kind == "regression":
            commas = _decimal_commas(columns, part.frame.attrs.get(SEPARATOR, ""))
        if commas:
            columns = {name: [point_for_comma(cell) for cell in cells] for name, cells in columns.items()}
        yield _labelled(part, columns, data)


def _cells(frame: pd.DataFrame, names: Sequence[str], source: str) -> dict[str, list[str]]:
    """Texts of the target columns by their names."""
    header = [str(name) for name in frame.columns]
    places = {name: find_column(source, header, name) for name in names}
    absent = [name for name, place in places.items() if place is None]
    if absent:
        present = ", ".join(map(repr, header[:_SHOWN])) or "none"
        raise BadInput(
            f"{source}: no column {' and no '.join(map(repr, absent))}, which the model was trained to predict. Its "
            f"columns: {present}.{near(absent, header)}"
        )
    return {name: as_texts(frame.iloc[:, place]) for name, place in places.items() if place is not None}


def _decimal_commas(columns: Mapping[str, Sequence[str]], separator: str) -> bool | None:
    """Return whether numbers have decimal commas, as in training; None as long as no cell decides it."""
    cells = [cell for column in columns.values() for cell in column]
    if has_decimal_commas(cells):
        return separator != ","
    return False if any(map(is_decimal_point, cells)) else None


def _labelled(part: InputPart, columns: Mapping[str, Sequence[str]], data: Benchmark) -> InputPart:
    spec, problems = data.spec, dict(part.problems)
    classes = {name: number for number, name in enumerate(data.class_labels())} if spec.num_classes else {}
    if list(classes) == [str(number) for number in range(len(classes))]:
        classes = {}  # numbers, which may be written with a point
    missing = Missing.of(getattr(data, "missing", None))
    values, faults = parse_cells(columns, str(spec.kind), missing, spec.num_classes or 0, classes)
    for row, fault, text in faults:
        problems.setdefault(row, f"{fault}: {text if len(text) <= _WIDTH else f'{text[: _WIDTH - 3]}...'}")
    if not part.rows:
        return replace(part, problems=problems)
    chosen = values[part.rows]
    y = np.nan_to_num(chosen, nan=-1.0).astype(np.int64) if spec.num_classes else exact_numbers(chosen)
    table = part.table.with_columns({"y": torch.from_numpy(y)}, {"y": Column(GRAPH)})
    return replace(part, table=table, problems=problems)
