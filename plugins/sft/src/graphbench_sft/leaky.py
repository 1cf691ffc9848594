"""The leaky ReLU probability of the Sampling Foundational Transformer."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from graphbench.errors import BadInput

#: Added to every denominator, so that a row without a positive score has weights 0 and not 0 / 0.
EPSILON = 1e-6


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
    """
    for name, tensor in (("leak", leak), ("mask", mask)):
        if tensor is not None and tensor.shape[-1:] != scores.shape[-1:]:
            raise BadInput(f"{name} must end in the {scores.shape[-1]} keys of scores, but is {list(tensor.shape)}.")
    positive = F.relu(scores)
    if mask is not None:
        positive = positive.masked_fill(~mask.unsqueeze(-2), 0.0)
    total = positive.sum(-1, keepdim=True) + EPSILON
    if leak is not None:
        leaks = F.softplus(leak)
        leaks = leaks if mask is None else leaks.masked_fill(~mask, 0.0)
        total = total + leaks.sum(-1).unsqueeze(-1).unsqueeze(-1)
    return positive / total
