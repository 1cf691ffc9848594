"""Weights of rows in the loss, on one scale: their mean over the training rows is 1."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from graphbench.contracts import GraphTable
from graphbench.contracts.table import WEIGHT
from graphbench.errors import BadInput


def labelled_rows(y: Tensor) -> Tensor:
    """Which rows have a target at all `[rows]`: y `[rows, T]` is NaN (numbers) or -1 (classes) where it is unknown.

    Examples:
        >>> import torch
        >>> labelled_rows(torch.tensor([[1.0, torch.nan], [torch.nan, torch.nan]])), labelled_rows(torch.tensor([[-1]]))
        (tensor([ True, False]), tensor([False]))
    """
    y = y.reshape(len(y), -1)
    known = ~y.isnan() if y.is_floating_point() else y >= 0
    return known.any(1)


def scaled_weights(splits: Mapping[str, GraphTable]) -> dict[str, GraphTable]:
    """Splits whose weights are divided by their mean over the labelled training rows; unchanged where there are none.

    A loss that divides by the number of rows then has its usual size, only the ratios of weights count, and a row
    counts the same in whatever batch it is.

    Args:
        splits: tables by name, with "train"; the column `weight` of each is changed.

    Raises:
        BadInput: no training row has a weight above 0.

    Examples:
        >>> import torch
        >>> from graphbench.contracts import Column
        >>> graphs = [{"num_nodes": 1, "edge_index": torch.empty(2, 0), "y": 0.0, "weight": w} for w in (1.0, 3.0)]
        >>> table = GraphTable.from_graphs(graphs, {"weight": Column("graph")})
        >>> scaled_weights({"train": table})["train"].columns["weight"]
        tensor([[0.5000],
                [1.5000]])
    """
    train = splits["train"]
    if WEIGHT not in train.columns:
        return dict(splits)
    mean = train.columns[WEIGHT][labelled_rows(train.columns["y"])].double().mean()
    if not mean > 0:
        raise BadInput("weight: no training row has a weight above 0.")
    return {
        name: table.with_columns(
            {WEIGHT: (table.columns[WEIGHT].double() / mean).float()}, {WEIGHT: table.layout[WEIGHT]}
        )
        for name, table in splits.items()
    }
