"""A column of graphs or nodes as the weights of their rows in the loss."""

from __future__ import annotations

import numpy as np

from graphbench.benchmarks.graphs.raw import RawGraphs, as_rows
from graphbench.benchmarks.graphs.targets import Target, labelled
from graphbench.errors import BadInput


def weight_array(raw: RawGraphs, target: Target, name: str) -> tuple[str, np.ndarray]:
    """Weights float32 `[rows]` with the level of the target; 0 for those without a target.

    Args:
        raw: the graphs.
        target: what is predicted, of graphs, nodes or edges.
        name: column of the same level.

    Raises:
        UnknownName: there is no such column; names near matches.
        BadInput: pairs are predicted, or a weight is missing, negative, endless or no number; names the row.
    """
    if target.level == "link":
        raise BadInput(f"weight={name}: pairs of nodes to be ranked have no weights.")
    values = as_rows(raw.column(target.level, name))
    if values.dtype == object or values.shape[1] != 1:
        told = "text" if values.dtype == object else f"{values.shape[1]} columns"
        raise BadInput(f"weight: {name} is {told}; expected one number for each {target.level}.")
    weights = values[:, 0].astype(np.float32)
    known = labelled(raw, target)
    wrong = np.flatnonzero(known & ~(np.isfinite(weights) & (weights >= 0)))
    if wrong.size:
        row = int(wrong[0])
        told = "is missing" if np.isnan(weights[row]) else f"is {values[row, 0]}; expected a number of 0 or more"
        raise BadInput(f"{raw.place(target.level, row)}: the weight {name} {told}.")
    return target.level, np.where(known, weights, np.float32(0))
