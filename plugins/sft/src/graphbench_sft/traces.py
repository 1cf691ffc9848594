"""Traces of graphs whose parts attend apart."""

from __future__ import annotations

import torch
from torch import Tensor


def join_parts(
    matrices: list[Tensor], columns: list[Tensor], sizes: Tensor, parts: int
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """One block-diagonal matrix per graph, out of the matrices of its parts.

    Args:
        matrices: attention of each part, `[H, n_p, k_p]`.
        columns: the token of its part behind each column, `[k_p]`.
        sizes: tokens of each part `[G * parts]`.
        parts: parts a graph.

    Returns:
        Attention `[H, n_g, k_g]` and columns `[k_g]` of each graph, and its tokens `[G]`.
    """
    joined, behind = [], []
    first = (sizes.view(-1, parts).cumsum(1) - sizes.view(-1, parts)).flatten().tolist()
    for start in range(0, len(matrices), parts):
        own = range(start, start + parts)
        joined.append(
            torch.stack([torch.block_diag(*heads) for heads in zip(*(matrices[i] for i in own), strict=True)])
        )
        behind.append(torch.cat([columns[i] + first[i] for i in own]))
    return joined, behind, sizes.view(-1, parts).sum(1)
