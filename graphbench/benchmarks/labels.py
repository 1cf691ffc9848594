"""Labels of new inputs out of the columns that they came with, so that a model can be scored on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from graphbench.contracts import Benchmark, Column, InputPart
from graphbench.contracts.table import GRAPH
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
