"""Convert columns to float32 if it is precise enough, to logarithms and to bounds; normalize loss weights."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphbench.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

    from graphbench.contracts import GraphTable

logger = logging.getLogger(__name__)

#: Largest accepted rounding error, in standard deviations of a column.
_TOLERANCE = 1e-4


def imprecise_columns(values: np.ndarray) -> list[int]:
    """Return the columns in which float32 moves a value by more than 1e-4 standard deviations.

    Seven digits are too few for small differences on top of a large offset.

    Args:
        values: `[rows]` or `[rows, columns]`, integers, or real numbers with NaN where unknown.

    Examples:
        >>> imprecise_columns(np.array([[1e6, 1.5], [1e6 + 1e-3, 2.5]]))
        [0]
    """
    # Narrower floats have already lost their digits, and booleans have none to lose.
    if not values.size or not (values.dtype == np.float64 or values.dtype.kind in "iu"):
        return []
    rows = values.reshape(len(values), -1).astype(np.float64, copy=False)
    mask = np.isfinite(rows)
    exact = np.where(mask, rows, 0.0)
    count = mask.sum(0).clip(min=1)
    mean = exact.sum(0) / count
    # Not E[x^2] - E[x]^2, which cancels in exactly these columns.
    spread = np.sqrt((np.where(mask, exact - mean, 0.0) ** 2).sum(0) / count)
    with np.errstate(over="ignore"):
        error = np.abs(exact.astype(np.float32).astype(np.float64) - exact).max(0)
    # Not compared with the mean, which rounding separates from equal values.
    constant = np.where(mask, exact, np.inf).min(0) == np.where(mask, exact, -np.inf).max(0)
    return np.flatnonzero((error > _TOLERANCE * spread) & ~constant).tolist()


def to_exact_float(values: np.ndarray) -> np.ndarray:
    """Convert targets to float32, or to float64 if float32 is too coarse for a column.

    Examples:
        >>> to_exact_float(np.array([1.5, 2.5])).dtype, to_exact_float(np.array([1e6, 1e6 + 1e-3])).dtype
        (dtype('float32'), dtype('float64'))
    """
    return values.astype(np.float64 if imprecise_columns(values) else np.float32, copy=False)


def to_float32(values: np.ndarray, name: str) -> np.ndarray:
    """Convert features to float32, and warn about columns for which it is too coarse."""
    if lost := imprecise_columns(values):
        rows = values.reshape(len(values), -1)
        column = rows[:, lost[0]]
        place = f" (column {', '.join(map(str, lost))} of {rows.shape[1]})" if rows.shape[1] > 1 else ""
        logger.warning(
            "%s%s: values from %.9g to %.9g are stored in float32, which rounds away their differences; subtract an "
            "offset first.",
            name, place, np.nanmin(column), np.nanmax(column),
        )  # fmt: skip
    return values.astype(np.float32, copy=False)


def to_log10(values: np.ndarray, logged: Sequence[bool]) -> np.ndarray:
    """Take the decimal logarithm of the columns `[..., T]` that `logged` marks; empty means none.

    Examples:
        >>> to_log10(np.array([[100.0, 5.0]]), (True, False)).tolist()
        [[2.0, 5.0]]
    """
    if not any(logged):
        return values
    with np.errstate(invalid="ignore", divide="ignore"):  # of the other columns
        return np.where(np.asarray(logged), np.log10(values), values)


def from_log10(values: np.ndarray, logged: Sequence[bool]) -> np.ndarray:
    """Undo `to_log10`.

    Examples:
        >>> from_log10(np.array([[2.0, 5.0]]), (True, False)).tolist()
        [[100.0, 5.0]]
    """
    if not any(logged):
        return values
    with np.errstate(over="ignore"):
        return np.where(np.asarray(logged), 10.0**values, values)


def split_bounds(values: np.ndarray, signs: np.ndarray) -> dict[str, np.ndarray]:
    """Separate targets from bounds of targets: `y`, and `y_lower` and `y_upper` for a one-sided loss.

    Args:
        values: real targets or their bounds `[rows, T]`, NaN where unknown.
        signs: 1 for a lower bound, -1 for an upper bound, 0 for a target itself `[rows, T]`.

    Returns:
        The three columns `[rows, T]` in one dtype, see `to_exact_float`; NaN where a cell is of another kind.

    Examples:
        >>> columns = split_bounds(np.array([[3.0, 10.0]]), np.array([[0, 1]]))
        >>> {name: column.tolist() for name, column in columns.items()}
        {'y': [[3.0, nan]], 'y_lower': [[nan, 10.0]], 'y_upper': [[nan, nan]]}
    """
    from graphbench.contracts.table import BOUNDS  # imports torch, which processes that read molecules do not need

    exact = to_exact_float(values)
    kinds = zip(("y", *BOUNDS), (0, 1, -1), strict=True)
    return {name: np.where(signs == sign, exact, np.nan).astype(exact.dtype) for name, sign in kinds}


def relative_weights(
    given: Sequence[float] | Mapping[str, float] | None, names: Sequence[str], kind: str
) -> tuple[float, ...]:
    """Return the weights of targets in the loss, with mean 1, or () for None. Names left out weigh 1 before scaling.

    Raises:
        BadInput: weights name unknown targets, are negative or all 0, or there is a single target.

    Examples:
        >>> relative_weights({"logS": 3}, ["logS", "pKa"], "regression")
        (1.5, 0.5)
    """
    if given is None:
        return ()
    if len(names) < 2 or kind not in ("regression", "multilabel"):
        raise BadInput(f"target_weights={given}: weights need several targets that are numbers or labels.")
    if isinstance(given, Mapping):
        if unknown := [name for name in given if name not in names]:
            raise BadInput(f"target_weights: no target is called {unknown[0]!r}; there are {', '.join(names)}.")
        given = [given.get(name, 1.0) for name in names]
    weights = np.array(given, dtype=np.float64)
    if len(weights) != len(names) or not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
        raise BadInput(
            f"target_weights={list(given)}: expected a number of 0 or more for each of the {len(names)} targets "
            f"({', '.join(names)}), not all 0."
        )
    return tuple((weights / weights.mean()).tolist())


def scaled_weights(splits: Mapping[str, GraphTable]) -> dict[str, GraphTable]:
    """Divide weights by their mean over the labelled training rows; splits without weights stay unchanged.

    A loss that divides by the number of rows then keeps its usual size, and a row counts the same in every batch.

    Args:
        splits: tables by name, with "train"; the column `weight` of each is changed. Targets `y [rows, T]` are NaN
            (numbers) or -1 (classes) where they are missing.

    Examples:
        >>> import torch
        >>> from graphbench.contracts import Column, GraphTable
        >>> graphs = [{"num_nodes": 1, "edge_index": torch.empty(2, 0), "y": 0.0, "weight": w} for w in (1.0, 3.0)]
        >>> table = GraphTable.from_graphs(graphs, {"weight": Column("graph")})
        >>> scaled_weights({"train": table})["train"].columns["weight"]
        tensor([[0.5000],
                [1.5000]])
    """
    mean = mean_weight(splits["train"].columns)
    return {name: divide_weights(table, mean) for name, table in splits.items()}


def mean_weight(train: Mapping[str, Tensor]) -> Tensor | None:
    """Return the mean weight of the labelled rows, see `scaled_weights`; None without weights.

    Args:
        train: columns `y`, `weight` and the bounds of the training rows, if they exist.
    """
    from graphbench.contracts.table import BOUNDS, WEIGHT  # imports torch, not needed to read molecules

    if WEIGHT not in train:
        return None
    y = train["y"].reshape(len(train["y"]), -1)
    labelled = ~y.isnan() if y.is_floating_point() else y >= 0
    for name in set(BOUNDS) & set(train):
        labelled = labelled | ~train[name].isnan()
    mean = train[WEIGHT][labelled.any(1)].double().mean()
    if not mean > 0:
        raise BadInput("weight: no training row has a weight above 0.")
    return mean


def divide_weights(table: GraphTable, mean: Tensor | None) -> GraphTable:
    """Divide the weights of a table by `mean_weight`; return it unchanged without one."""
    from graphbench.contracts.table import WEIGHT

    if mean is None:
        return table
    weights = (table.columns[WEIGHT].double() / mean).float()
    return table.with_columns({WEIGHT: weights}, {WEIGHT: table.layout[WEIGHT]})
