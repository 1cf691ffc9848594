"""Attention as a GPU computes it, with one kernel where the CPU needs several operations.

The pretended GPU computes its numbers with these operations, and counts the launches of a real GPU.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_FORWARD, _BACKWARD = "_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward"
#: Efficient attention accepts heads whose rows are a multiple of this many bytes, see `sdp_utils.cpp` of torch.
_ALIGNED = 16
_COPY_FIRST = {"index_copy", "scatter_add"}


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute `scaled_dot_product_attention` like a GPU: by efficient attention, which keeps no weights, if it fits.

    It accepts every dtype except float64, and copies biases whose width is not a multiple of 8. If it does not accept
    the width of heads, or `sdpa_kernel` forbids it, the explicit formula is computed.
    """
    if not _fits_efficient(query, key, value):
        options = {"scale": scale, "enable_gqa": enable_gqa}
        formula = torch.ops.aten._scaled_dot_product_attention_math
        return formula(query, key, value, attn_mask, dropout_p, is_causal, **options)[0]
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -torch.inf)
        width = key.shape[-2]
        attn_mask = F.pad(attn_mask, (0, -width % 8))[..., :width] if width % 8 else attn_mask
        attn_mask = attn_mask.expand(*query.shape[:-1], width)
    # The kernel keeps sums for the backward pass only if there will be one.
    keeps = any(tensor.requires_grad for tensor in (query, key, value))
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    return efficient(query, key, value, attn_mask, keeps, dropout_p, is_causal, scale=scale)[0]


def _fits_efficient(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Tell whether torch's dispatcher chooses efficient attention."""
    widths = query.shape[-1], key.shape[-1], value.shape[-1]
    fits = query.dtype != torch.float64 and all(width * query.itemsize % _ALIGNED == 0 for width in widths)
    return fits and query.dim() == 4 and torch.backends.cuda.mem_efficient_sdp_enabled()


def count_launches(name: str, args: Any) -> int:
    """Return the number of kernels that a GPU launches for an operation, named without its namespace; one by default.

    Adding or copying rows into a new tensor first copies the tensor. The gradient of efficient attention is one
    kernel in half precision. In float32 three other kernels precede it, which multiply, sum and copy
    (`kKernelComputesDelta` in `kernel_backward.h`, and `attention_backward.cu` of torch 2.13).

    Examples:
        >>> count_launches("_scaled_dot_product_efficient_attention_backward", [torch.ones(1, 1, 8, 8)])
        4
    """
    if name == _BACKWARD:
        return 4 if args[0].dtype == torch.float32 else 1
    return 2 if name in _COPY_FIRST else 1


def by_processor(name: str, func: Any) -> Any:
    """Return an operation's CPU implementation: torch has none for fused attention."""
    return {_FORWARD: _efficient, _BACKWARD: _attention_gradients}.get(name, func)


def _efficient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    keeps: bool,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute `_scaled_dot_product_efficient_attention`; the sums, which no gradient here needs, stay empty."""
    # The backward pass draws the dropout mask again from this seed.
    seed = torch.randint(1 << 31, ())
    weights, factors, _ = _weights(query, key, bias, seed, dropout, is_causal, scale)
    out = (weights * factors).to(value.dtype) @ value
    sums = query.new_empty(query.shape[:-1] if keeps else 0, dtype=torch.float32)
    return _as_rows(out), sums, seed, torch.zeros_like(seed)


def _attention_gradients(
    upstream: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    out: Tensor,
    sums: Tensor,
    seed: Tensor,
    offset: Tensor,
    dropout: float,
    needed: list[bool],
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    """Compute `_scaled_dot_product_efficient_attention_backward`."""
    weights, factors, scale = _weights(query, key, bias, seed, dropout, is_causal, scale)
    of_weights = factors * (upstream @ value.transpose(-1, -2))
    # The gradient of softmax: w (g - sum g w) along each row.
    of_logits = (weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True))).to(query.dtype)
    of_value = (weights * factors).to(value.dtype).transpose(-1, -2) @ upstream
    heads = scale * of_logits @ key, scale * of_logits.transpose(-1, -2) @ query, of_value
    gradients = (*map(_as_rows, heads), of_logits)
    return tuple(x if need else None for x, need in zip(gradients, needed, strict=True))


def _weights(
    query: Tensor, key: Tensor, bias: Tensor | None, seed: Tensor, dropout: float, is_causal: bool, scale: float | None
) -> tuple[Tensor, Tensor | float, float]:
    """Return the weights, the factors of dropout, and the scale of the logits."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    logits = scale * query @ key.transpose(-1, -2)
    logits = logits if bias is None else logits + bias
    if is_causal:
        logits = logits.masked_fill(torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    weights = logits.softmax(-1)
    if not dropout:
        return weights, 1.0, scale
    generator = torch._C.Generator().manual_seed(int(seed))
    return weights, (torch.rand(weights.shape, generator=generator) >= dropout) / (1 - dropout), scale


def _as_rows(heads: Tensor) -> Tensor:
    """Store heads `[B, H, N, d]` side by side in memory, like the kernel."""
    return heads.transpose(1, 2).contiguous().transpose(1, 2)
