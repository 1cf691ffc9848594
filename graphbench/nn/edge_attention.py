"""Attention of nodes along the edges that arrive at them, steered by vectors of the edges.

Legend: T nodes, E edges, H heads of d channels each, C = H d; `edge_index` holds sources and targets `[2, E]`.
"""

from __future__ import annotations

from torch import Tensor

from graphbench.errors import BadInput, check_range
from graphbench.nn.ops import edge_attention


def attend_along_edges(
    qkv: Tensor,
    edge_index: Tensor,
    steer: Tensor | None,
    num_heads: int,
    largest: float = 5.0,
    with_scores: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """What every node gathers from its neighbours.

        s_ij = (Q x_i) * (K x_j) * (E e_ij) / sqrt(d)                         element-wise
        w_ij = softmax_j(clamp(sum_d s_ij, -largest, largest))                per head
        x'_i = sum_j w_ij V x_j

    (Dwivedi & Bresson 2020, arXiv 2012.09699, equations 8 to 11; the clamp is that of the authors' code.) A node that
    nothing arrives at gets zeros.

    Args:
        qkv: Q x, K x and V x side by side `[T, 3 C]`.
        edge_index: sources j and targets i `[2, E]`.
        steer: E e `[E, C]`; None: ones.
        num_heads: H; divides C.
        largest: absolute value to which logits are clamped; above 0 and at most 50, as their exponentials are taken as
            they are.
        with_scores: give s, for layers that make new edge vectors of it.

    Returns:
        x' `[T, C]`; s `[E, C]` or None; w `[E, H]`, which no gradient goes through.

    Raises:
        BadInput: `largest` is out of range, or the maps do not divide into heads.
        IndexError: an edge names a node that is not there.

    Examples:
        >>> qkv = torch.tensor([[0.0, 0.0, 2.0], [0.0, 0.0, 4.0], [0.0, 0.0, 9.0]])  # equal scores: the mean of values
        >>> attend_along_edges(qkv, torch.tensor([[0, 1], [2, 2]]), None, num_heads=1)[0]
        tensor([[0.],
                [0.],
                [3.]])
    """
    check_range("largest", largest, above=0, at_most=50)
    if num_heads < 1 or qkv.shape[-1] % (3 * num_heads):
        raise BadInput(f"Three maps of {num_heads} heads have as many channels each; qkv has {qkv.shape[-1]} in all.")
    mixed, scores, weights = edge_attention(qkv, edge_index, steer, num_heads, largest, with_scores)
    return mixed, scores if with_scores else None, weights
