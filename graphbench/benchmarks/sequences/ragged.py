"""What generators and readers of sequences hand over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sequences:
    """S labelled sequences, one after the other and without padding.

    Args:
        tokens: uint8 `[sum(lengths)]`.
        lengths: tokens of each `[S]`, int64.
        labels: class of each `[S]`, uint8.
        second: where the second document of each begins, counted from its first token, int32 `[S]`; None for single
            documents.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray
    second: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.lengths)
