"""Labelled sequences without padding, as generators and readers return them. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sequences:
    """S labelled sequences, one after the other and without padding.

    Args:
        tokens: uint8 `[sum(lengths)]`.
        lengths: tokens of each `[S]`, int64.
        labels: class of each `[S]`, uint8.
        second: first token of the second document, counted within the sequence, int32 `[S]`; None for single documents.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray
    second: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def join(cls, texts: Sequence[bytes], labels: np.ndarray, pairs: bool = False) -> Sequences:
        """Join byte strings, or pairs of them side by side.

        Args:
            texts: one per sequence, or two.
            labels: class of each sequence `[S]`.
            pairs: two consecutive texts are one sequence.

        Examples:
            >>> Sequences.join([b"a", b"bc", b"", b"d"], np.array([0, 1]), pairs=True).second.tolist()
            [1, 0]
        """
        sizes = np.array([len(text) for text in texts], dtype=np.int64).reshape(-1, 2 if pairs else 1)
        tokens = np.frombuffer(b"".join(texts), dtype=np.uint8).copy()
        second = sizes[:, 0].astype(np.int32) if pairs else None
        return cls(tokens, sizes.sum(1), labels.astype(np.uint8), second)
