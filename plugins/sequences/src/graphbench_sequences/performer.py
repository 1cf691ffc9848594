"""Performer: attention with positive features, random or not, linear in the tokens.

Choromanski et al., "Rethinking Attention with Performers", ICLR 2021, arXiv 2009.14794, sections 2.2 to 2.4.

Legend: B documents, N padded tokens, H heads, d head width, M features (d of them without random directions).
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from graphbench.errors import BadInput, check_choice, check_range
from graphbench.nn import DenseLayout
from graphbench_sequences.attention import ProjectedAttention

KernelName = Literal["relu", "softmax"]
#: Lower bound of features, as in the code of the Long Range Arena.
_LEAST = {"relu": 1e-3, "softmax": 1e-6}


def check_features(num_features: int | None, kernel: KernelName) -> None:
    """Check the number of features, which the softmax kernel requires.

    Raises:
        BadInput: an option is unknown or out of range, or `num_features` is None for softmax.

    Examples:
        >>> check_features(None, "relu")
    """
    check_choice("kernel", kernel, get_args(KernelName))
    if num_features is not None:
        check_range("num_features", num_features, at_least=1, whole=True)
    elif kernel == "softmax":
        raise BadInput(
            "num_features must be a number for kernel: softmax, such as 256, but got None: its features are "
            "exponentials along random directions. Without directions, use kernel: relu."
        )


def orthogonal_directions(num_features: int, dim: int) -> Tensor:
    """Draw directions `[num_features, dim]`, orthogonal within blocks of `dim`, each as long as a Gaussian vector.

    Blocks are uniform over all rotations and reflections: a QR decomposition gives that if its signs are those of R's
    diagonal.

    Examples:
        >>> directions = orthogonal_directions(5, 3)
        >>> directions.shape, bool((directions[0] @ directions[1]).abs() < 1e-5)
        (torch.Size([5, 3]), True)
    """
    blocks = torch.randn(math.ceil(num_features / dim), dim, dim, dtype=torch.float32)
    q, r = torch.linalg.qr(blocks)
    rows = (q * r.diagonal(dim1=1, dim2=2).sign().unsqueeze(1)).flatten(0, 1)[:num_features]
    return rows * torch.randn(num_features, dim, dtype=torch.float32).norm(dim=1, keepdim=True)


class PerformerAttention(ProjectedAttention):
    """`sum_j (f(q_i) . f(k_j)) v_j / sum_j f(q_i) . f(k_j)` over the tokens of the document; O(n M).

    With `y = x / d^(1/4)` and the rows w of M orthogonal directions:

    * softmax (FAVOR+): `f(x) = (exp(w . y - |y|^2 / 2 - c) + 1e-6) / sqrt(M)`, whose products are `exp(q . k /
      sqrt(d))` in expectation; c, the largest exponent w . y of a query and of all keys of a document, cancels except
      for 1e-6;
    * relu: `f(x) = ReLU(w . y) + 0.001`; without directions `ReLU(x) + 0.001`, d features of unprojected queries and
      keys, as in the Long Range Arena on most tasks.

    Directions are sampled once and saved with the weights, so results do not depend on other documents of the batch.
    Attention weights are not computed, so none are dropped.

    Args:
        dim, num_heads, qkv_dim: see `ProjectedAttention`.
        num_features: random features M; None for no random directions, with relu only.
        kernel: softmax or relu.

    Raises:
        BadInput: see `check_features`.

    Examples:
        >>> layout = DenseLayout.from_batch(torch.tensor([0, 0, 0, 1]))
        >>> PerformerAttention(8, num_heads=2, num_features=6)(torch.randn(4, 8), layout).shape
        torch.Size([4, 8])
    """

    directions: Tensor | None

    def __init__(
        self,
        dim: int,
        num_heads: int,
        qkv_dim: int | None = None,
        num_features: int | None = 256,
        kernel: KernelName = "relu",
    ) -> None:
        super().__init__(dim, num_heads, qkv_dim)
        check_features(num_features, kernel)
        self.kernel: KernelName = kernel
        head_dim = self.out_map.in_features // num_heads
        directions = None if num_features is None else orthogonal_directions(num_features, head_dim)
        self.register_buffer("directions", directions)

    def mix(self, heads: tuple[Tensor, ...], layout: DenseLayout) -> Tensor:
        """Mix using features, in at least float32: exponents in bfloat16 would be wrong by whole factors."""
        q, k, v = heads
        precision = torch.promote_types(v.dtype, torch.float32)
        with torch.autocast(v.device.type, enabled=False):
            # Features of padding are positive: keys are masked after them, in both numerator and denominator.
            real = layout.mask[:, None, :, None]
            queries = self._features(q.to(precision), None)
            keys = self._features(k.to(precision), real) * real
            mixed = queries @ (keys.transpose(-1, -2) @ v.to(precision))
            return (mixed / (queries @ keys.sum(-2).unsqueeze(-1))).to(v.dtype)

    def _features(self, x: Tensor, real: Tensor | None) -> Tensor:
        """Compute features of queries, or of keys if `real [B, 1, N, 1]` masks padding; `[B, H, N, M]`."""
        if self.directions is None:
            return x.relu() + _LEAST[self.kernel]
        y = x * x.shape[-1] ** -0.25
        along = y @ self.directions.to(y.dtype).t()
        if self.kernel == "relu":
            return along.relu() + _LEAST["relu"]
        # Detached, as c cancels except for 1e-6. Keys of a document share one, so that their ratios do not change.
        if real is None:
            largest = along.detach().amax(-1, keepdim=True)
        else:
            largest = along.detach().masked_fill(~real, -torch.inf).amax((-1, -2), keepdim=True)
        exponent = along - y.square().sum(-1, keepdim=True) / 2 - largest
        if real is not None:
            exponent = exponent.masked_fill(~real, 0.0)  # the caller masks padding, but it must not overflow
        return (exponent.exp() + _LEAST["softmax"]) * along.shape[-1] ** -0.5
