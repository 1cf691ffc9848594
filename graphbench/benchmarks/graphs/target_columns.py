"""Read the columns of a target by their names: numbers, text, and bounds of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphbench.benchmarks.graphs.missing import bounds_as_numbers, text_as_numbers
from graphbench.benchmarks.graphs.raw import LEVELS, RawGraphs, as_rows
from graphbench.contracts.table import NODE
from graphbench.errors import BadInput


def split_name(raw: RawGraphs, name: str) -> tuple[str, int | None]:
    """Split `y:4` into the column y and 4, unless a column has that name."""
    base, _, number = name.rpartition(":")
    is_column = any(name in raw.columns[level] for level in LEVELS)
    return (base, int(number)) if base and number.isdecimal() and not is_column else (name, None)


def target_values(
    raw: RawGraphs, level: str, names: Sequence[str], missing: Sequence[Any] = (), bounds: bool = False
) -> np.ndarray:
    """Return the columns side by side `[rows, width]`; text of numbers and `missing` words becomes numbers.

    With `bounds`, so does text of numbers and bounds (`>10`).

    Raises:
        BadInput: one has no column of that number, or they mix text and numbers.
    """
    parts = list(target_parts(raw, level, names))
    if bounds:
        parts = [bounds_as_numbers(part, missing)[0] for part in parts]
    parts = [text_as_numbers(part, missing) for part in parts]
    if len({part.dtype == object for part in parts}) > 1:
        raise BadInput(f"target: {', '.join(names)} are text and numbers; a task predicts one kind.")
    return np.concatenate(parts, axis=1)


def takes_bounds(task: str | None) -> bool:
    """Return whether text of bounds is a target of a task."""
    return task is not None and task.endswith("-regression")


def bound_signs(raw: RawGraphs, level: str, names: Sequence[str], missing: Sequence[Any]) -> np.ndarray:
    """Return the signs of bounds among the cells of columns, int8 `[rows, width]`."""
    return np.concatenate([bounds_as_numbers(part, missing)[1] for part in target_parts(raw, level, names)], axis=1)


def target_parts(raw: RawGraphs, level: str, names: Sequence[str]) -> Iterator[np.ndarray]:
    """Yield the columns `[rows, width]`, as they are."""
    for name in names:
        base, number = split_name(raw, name)
        values = raw.columns[level].get(base)
        if values is None:  # a graph has as many targets as nodes
            values = raw.columns[NODE][base].reshape(len(raw), -1)
        values = as_rows(values)
        if number is not None:
            if number >= values.shape[1]:
                raise BadInput(f"target {name}: {base} has {values.shape[1]} columns, numbered from 0.")
            values = values[:, number : number + 1]
        yield values
