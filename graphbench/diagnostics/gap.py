"""The gap between training and unseen data."""

from __future__ import annotations

from typing import TypeVar

from torch import Tensor

Score = TypeVar("Score", float, Tensor)


def generalization_gap(train: Score, test: Score, higher_is_better: bool) -> Score:
    """Return how much worse a score is on unseen data; a larger gap is always worse generalisation.

    `train - test` for scores where higher is better (accuracy), `test - train` for errors (MAE).

    Args:
        train: score on the training split, in the metric's units.
        test: score on a split that was not trained on.
        higher_is_better: whether a larger score is better.

    Examples:
        >>> generalization_gap(train=0.25, test=0.75, higher_is_better=False)
        0.5
    """
    return train - test if higher_is_better else test - train
