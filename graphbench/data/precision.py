"""What float32 can hold of a column of numbers: seven digits, too few for a small spread beside a large offset."""

from __future__ import annotations

import logging

import numpy as np

logger = logging.getLogger(__name__)

#: Largest error of rounding, in standard deviations of a column, with which the column is the same.
_TOLERANCE = 1e-4


def columns_lost(values: np.ndarray) -> list[int]:
    """Columns whose spread float32 cannot hold: rounding moves a value by more than 1e-4 standard deviations.

    Args:
        values: `[rows]` or `[rows, columns]`, NaN where unknown.

    Examples:
        >>> columns_lost(np.array([[1e6, 1.5], [1e6 + 1e-3, 2.5]]))
        [0]
    """
    if values.dtype != np.float64 or not values.size:
        return []
    rows = values.reshape(len(values), -1)
    known = np.isfinite(rows)
    exact = np.where(known, rows, 0.0)
    count = known.sum(0).clip(min=1)
    mean = exact.sum(0) / count
    spread = np.sqrt((np.where(known, exact - mean, 0.0) ** 2).sum(0) / count)
    with np.errstate(over="ignore"):
        error = np.abs(exact.astype(np.float32).astype(np.float64) - exact).max(0)
    constant = np.where(known, exact, mean).max(0) == np.where(known, exact, mean).min(0)
    return np.flatnonzero((error > _TOLERANCE * spread) & ~constant).tolist()


def exact_numbers(values: np.ndarray) -> np.ndarray:
    """Targets as float32, or as float64 where float32 cannot hold the spread of a column.

    Examples:
        >>> exact_numbers(np.array([1.5, 2.5])).dtype, exact_numbers(np.array([1e6, 1e6 + 1e-3])).dtype
        (dtype('float32'), dtype('float64'))
    """
    return values.astype(np.float64 if columns_lost(values) else np.float32, copy=False)


def single_numbers(values: np.ndarray, name: str) -> np.ndarray:
    """Features as float32; a line names a column whose spread is lost with that.

    Args:
        values: `[rows]` or `[rows, columns]`.
        name: what they are, for the line.
    """
    if lost := columns_lost(values):
        rows = values.reshape(len(values), -1)
        column = rows[:, lost[0]]
        place = f" (column {', '.join(map(str, lost))} of {rows.shape[1]})" if rows.shape[1] > 1 else ""
        logger.warning(
            "%s%s: values from %.9g to %.9g are features in float32, which rounds their differences away; subtract an "
            "offset before.",
            name, place, np.nanmin(column), np.nanmax(column),
        )  # fmt: skip
    return values.astype(np.float32, copy=False)
