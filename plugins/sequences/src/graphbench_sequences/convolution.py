"""Convolutions as long as the sequence, by FFT.

Legend: B documents, N padded tokens, C channels.
"""

from __future__ import annotations

import torch
from torch import Tensor


def long_convolution(x: Tensor, past: Tensor, future: Tensor | None = None) -> Tensor:
    """`y_i = sum_(j <= i) past_(i - j) x_j + sum_(j > i) future_(j - i - 1) x_j` of every channel, `[B, N, C]`.

    Both sums are one circular convolution over 2 N places, in O(N log N); padding of `x` that is zero adds nothing.

    Args:
        x: sequences `[B, N, C]`, float32 or float64.
        past: weights of the token itself and of those before it `[C, N]`.
        future: weights of those after it, the nearest first `[C, N]`; None to leave them out.

    Examples:
        >>> x = torch.tensor([1.0, 0.0, 2.0]).view(1, 3, 1)
        >>> long_convolution(x, torch.tensor([[1.0, 0.5, 0.25]])).flatten()
        tensor([1.0000, 0.5000, 2.2500])
    """
    length = x.shape[1]
    if not length:
        return x
    kernel = torch.cat([past, torch.zeros_like(past) if future is None else future.flip(-1)], dim=-1)
    mixed = torch.fft.rfft(x, n=2 * length, dim=1) * torch.fft.rfft(kernel, n=2 * length).t()
    return torch.fft.irfft(mixed, n=2 * length, dim=1)[:, :length]
