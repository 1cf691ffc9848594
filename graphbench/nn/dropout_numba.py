"""Random numbers for dropout, many at a time.

Imported by `dropout` when `runs_numba` says yes, and never else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbench.kernels import cpu_kernel
from graphbench.nn.dropout import FIRST_FACTOR, SECOND_FACTOR, STEP

_STEP, _FIRST, _SECOND = np.uint64(STEP), np.uint64(FIRST_FACTOR), np.uint64(SECOND_FACTOR)


@cpu_kernel
def fill_numbers(first: int, last: int, seed: np.uint64, numbers: NDArray[np.uint64]) -> None:
    """Numbers `first` to `last - 1` that `dropout.random_numbers` has for this seed."""
    for i in range(np.uint64(first), np.uint64(last)):
        z = seed + (i + np.uint64(1)) * _STEP
        z = (z ^ (z >> np.uint64(30))) * _FIRST
        z = (z ^ (z >> np.uint64(27))) * _SECOND
        numbers[i] = z ^ (z >> np.uint64(31))
