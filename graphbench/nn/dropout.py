"""Dropout that costs what it is worth on a CPU."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from graphbench.kernels import run_in_threads, runs_numba

#: Random bits per entry. A probability is a multiple of 2^-16, or drawn as torch draws it.
_BITS = 16
_VALUES = 1 << _BITS
#: How far, in parts of itself, a probability (and its complement) may be from the multiple that is taken for it.
_TOLERANCE = 1e-3
#: Numbers of SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators").
STEP, FIRST_FACTOR, SECOND_FACTOR = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def dropped(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Dropout as `torch.nn.functional.dropout`: entries are 0 with probability p, and the others are over `1 - p`.

    On a CPU torch draws two numbers of 32 bits for every entry, one after the other, which costs more than the product
    of matrices before it. Here four entries share a number of 64 bits, and torch draws the seed of all of them
    (`random_numbers`): `python speed/dropout.py` prints the times. Elsewhere, and inside torch.compile, it is torch's.

    Args:
        x: any shape.
        p: probability of 0, in [0, 1]. On a CPU it is rounded to a multiple of 2^-16 (and the factor with it), unless
            that would change it, or `1 - p`, by more than a thousandth.
        training: whether anything is dropped.

    Raises:
        ValueError: p is no probability.

    Examples:
        >>> sorted(set(dropped(torch.ones(1000), p=0.5).tolist()))
        [0.0, 2.0]
        >>> dropped(torch.ones(2), p=0.5, training=False)
        tensor([1., 1.])
    """
    if not training or p == 0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling() or _steps(p) is None:
        return F.dropout(x, p)
    return x * fill_factors(torch.empty(x.shape, dtype=x.dtype), p)


def fill_factors(factors: Tensor, p: float, generator: torch.Generator | None = None) -> Tensor:
    """Fill a tensor with what dropout multiplies by: 0 with probability p in [0, 1), or `1 / (1 - p)`; see `dropped`.

    Args:
        factors: what is filled and returned.
        p: probability of 0.
        generator: of the numbers, on the same device; None: torch's own.

    Examples:
        >>> sorted(set(fill_factors(torch.empty(1000), p=0.75).tolist()))
        [0.0, 4.0]
    """
    steps = _steps(p) if factors.device.type == "cpu" else None
    if steps is None:
        return factors.uniform_(generator=generator).ge_(p).mul_(1 / (1 - p))
    bits = _bits(factors.numel(), generator).view(factors.shape)
    return torch.ge(bits, steps - _VALUES // 2, out=factors).mul_(_VALUES / (_VALUES - steps))


class DroppedBits(NamedTuple):
    """What `dropped` draws for a number of entries, before it is made into factors.

    Args:
        bits: random int16 `[entries]`, and as many more behind them as were asked for, which mean nothing.
        least: entries with at least this are kept.
        factor: what kept ones are multiplied by.
    """

    bits: Tensor
    least: int
    factor: float


def draw_bits(number: int, p: float, more: int = 0) -> DroppedBits | None:
    """Draw for so many entries on a CPU, or None where no multiple of 2^-16 is near enough to p, in (0, 1).

    Args:
        number: of entries.
        p: probability of dropping one.
        more: numbers behind those of the entries, for who reads several at a time.
    """
    steps = _steps(p)
    if steps is None:
        return None
    return DroppedBits(_bits(number, more=more), steps - _VALUES // 2, _VALUES / (_VALUES - steps))


def draws_bits(p: float) -> bool:
    """Whether p, in (0, 1), is near enough to a multiple of 2^-16, so that `draw_bits` draws for it."""
    return _steps(p) is not None


def random_numbers(seed: int, numbers: NDArray[np.uint64]) -> None:
    """Fill an array with random numbers of 64 bits, each independent of how many there are.

    The generator is SplitMix64: number i mixes `seed + (i + 1) STEP`, so that all can be made at once; the same with
    and without Numba.

    Args:
        seed: any number of 64 bits.
        numbers: receives them.

    Examples:
        >>> numbers = np.empty(2, np.uint64)
        >>> random_numbers(1234567, numbers)
        >>> numbers
        array([6457827717110365317, 3203168211198807973], dtype=uint64)
    """
    if runs_numba():
        from graphbench.nn.dropout_numba import fill_numbers

        run_in_threads(fill_numbers, len(numbers), 8 * len(numbers), np.uint64(seed), numbers)
        return
    np.multiply(np.arange(1, len(numbers) + 1, dtype=np.uint64), np.uint64(STEP), out=numbers)
    numbers += np.uint64(seed)
    for shift, factor in ((30, FIRST_FACTOR), (27, SECOND_FACTOR)):
        numbers ^= numbers >> np.uint64(shift)
        numbers *= np.uint64(factor)
    numbers ^= numbers >> np.uint64(31)


def _bits(number: int, generator: torch.Generator | None = None, more: int = 0) -> Tensor:
    """Random int16 `[number]`, four of them from each number of 64 bits, and some more that nobody has drawn."""
    drawn = -(-number * _BITS // 64)
    numbers = torch.empty(drawn + -(-more * _BITS // 64), dtype=torch.int64)
    seed = int(torch.empty((), dtype=torch.int64).random_(-(1 << 63), None, generator=generator))
    random_numbers(seed & ((1 << 64) - 1), numbers[:drawn].numpy().view(np.uint64))
    return numbers.view(torch.int16)[: number + more]


def _steps(p: float) -> int | None:
    """How many of the 2^16 values of an entry are dropped, or None where no such share is near enough to p."""
    steps = round(p * _VALUES)
    error = abs(steps / _VALUES - p)
    return steps if steps < _VALUES and error <= _TOLERANCE * min(p, 1 - p) else None
