"""Random numbers for dropout, many at a time: SplitMix64 (Steele, Lea & Flood 2014).

Number i mixes `seed + (i + 1) STEP`, so threads can compute them independently.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbench_kernels.running import cpu_kernel

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@cpu_kernel
def fill_numbers(first: int, last: int, seed: np.uint64, numbers: NDArray[np.uint64]) -> None:
    """Write numbers `first` to `last - 1` of this seed."""
    for i in range(np.uint64(first), np.uint64(last)):
        z = seed + (i + np.uint64(1)) * _STEP
        z = (z ^ (z >> np.uint64(30))) * _FIRST
        z = (z ^ (z >> np.uint64(27))) * _SECOND
        numbers[i] = z ^ (z >> np.uint64(31))
