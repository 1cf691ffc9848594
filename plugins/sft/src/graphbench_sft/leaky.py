"""The leaky ReLU probability of the Sampling Foundational Transformer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from graphbench.errors import BadInput
from graphbench_sft.ops import EPSILON


def leaky_relu_attention(scores: Tensor, leak: Tensor | None, mask: Tensor | None = None) -> Tensor:
    """Attention weights out of scores of any sign (SFT, section 4.3).

    `P_ij = relu(A_ij) / (sum_r (relu(A_ir) + softplus(C_r)) + epsilon)`, r over the keys that `mask` leaves. A row sums
    to less than one: what the leak takes is missing, so tokens with equal values can still end up different.

    Args:
        scores: A, `[..., n, k]`.
        leak: C before the softplus, `[..., k]`, broadcast over the leading axes of `scores`; None for no leak.
        mask: which keys are real, bool `[..., k]`, broadcast likewise; the others get weight 0. None: all of them.

    Returns:
        `[..., n, k]`.

    Raises:
        BadInput: `leak` or `mask` has another number of keys than `scores`.

    Examples:
        >>> leaky_relu_attention(torch.tensor([[3.0, 1.0, -2.0]]), None)  # negative scores weigh nothing
        tensor([[0.7500, 0.2500, 0.0000]])
        >>> bool(leaky_relu_attention(torch.ones(1, 3), torch.zeros(3)).sum() < 1)  # the leak takes its part
        True
    """
    _check(scores, leak, mask)
    positive = _positive(scores, mask)
    return positive / (positive.sum(-1, keepdim=True) + _constant(leak, mask))


def leaky_relu_mixture(scores: Tensor, value: Tensor, leak: Tensor | None, mask: Tensor | None = None) -> Tensor:
    """`leaky_relu_attention(scores, leak, mask) @ value`, divided after the product, which needs no weights.

    A column of ones beside the values gives the sum of each row in the same product. In half precision that sum would
    lose digits, so weights are made there, in the precision of the scores.

    Args:
        scores: A, `[..., n, k]`.
        value: V, `[..., k, h]`.
        leak: see `leaky_relu_attention`.
        mask: see `leaky_relu_attention`.

    Returns:
        `[..., n, h]`, in the precision of `value`.

    Raises:
        BadInput: `leak` or `mask` has another number of keys than `scores`.
    """
    _check(scores, leak, mask)
    if value.dtype != scores.dtype:
        return leaky_relu_attention(scores, leak, mask).to(value.dtype) @ value
    positive = _positive(scores, mask)
    sums = positive @ torch.cat([value, value.new_ones(*value.shape[:-1], 1)], dim=-1)
    return sums[..., :-1] / (sums[..., -1:] + _constant(leak, mask))


def _check(scores: Tensor, leak: Tensor | None, mask: Tensor | None) -> None:
    for name, tensor in (("leak", leak), ("mask", mask)):
        if tensor is not None and tensor.shape[-1:] != scores.shape[-1:]:
            raise BadInput(f"{name} must end in the {scores.shape[-1]} keys of scores, but is {list(tensor.shape)}.")


def _positive(scores: Tensor, mask: Tensor | None) -> Tensor:
    positive = F.relu(scores)
    return positive if mask is None else positive.masked_fill(~mask.unsqueeze(-2), 0.0)


def _constant(leak: Tensor | None, mask: Tensor | None) -> Tensor | float:
    """What a denominator holds beside the scores, `[..., 1, 1]`."""
    if leak is None:
        return EPSILON
    leaks = F.softplus(leak)
    leaks = leaks if mask is None else leaks.masked_fill(~mask, 0.0)
    return leaks.sum(-1).unsqueeze(-1).unsqueeze(-1) + EPSILON
