"""Draw dropout for kernels: sixteen random bits for each entry, from a seed that torch draws.

Torch draws two 32-bit numbers for each entry, which costs more than the attention itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphbench_kernels.running import run_in_threads

_BITS = 16
_VALUES = 1 << _BITS
#: Largest relative error of a probability, and of its complement, when rounded to a multiple of 2^-16.
_TOLERANCE = 1e-3


class DroppedBits(NamedTuple):
    """Bits drawn for a number of entries.

    Args:
        bits: random int16 `[entries]`, then `more` unused numbers, see `draw_bits`.
        least: entries whose bits are at least this are kept.
        factor: factor of kept entries.
    """

    bits: Tensor
    least: int
    factor: float


def draws_bits(p: float) -> bool:
    """Return whether `draw_bits` supports a probability in [0, 1]: it must be close to a multiple of 2^-16.

    Examples:
        >>> draws_bits(0.1), draws_bits(1e-5), draws_bits(1.0)
        (True, False, False)
    """
    steps = round(p * _VALUES)
    return steps < _VALUES and abs(steps / _VALUES - p) <= _TOLERANCE * min(p, 1 - p)


def draw_bits(number: int, p: float, more: int = 0) -> DroppedBits:
    """Draw the bits of `number` entries.

    Args:
        number: number of entries.
        p: probability of dropping one, for which `draws_bits` is true.
        more: padding, for loops that read several numbers at a time.
    """
    from graphbench_kernels.nn.random_numba import fill_numbers

    drawn = -(-number * _BITS // 64)
    numbers = torch.empty(drawn + -(-more * _BITS // 64), dtype=torch.int64)
    seed = int(torch.empty((), dtype=torch.int64).random_(-(1 << 63), None)) & ((1 << 64) - 1)
    run_in_threads(fill_numbers, drawn, 8 * drawn, np.uint64(seed), numbers[:drawn].numpy().view(np.uint64))
    steps = round(p * _VALUES)
    # Bits are compared as signed numbers, which start at -2^15.
    return DroppedBits(numbers.view(torch.int16)[: number + more], steps - _VALUES // 2, _VALUES / (_VALUES - steps))
