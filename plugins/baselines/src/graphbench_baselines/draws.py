"""Random numbers that are the same in every batch, on every device and in every process."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

#: Rows of one stream of numbers.
_ROWS = 256


def fixed_uniforms(rows: int, width: int, seed: int = 0) -> Tensor:
    """Numbers in [0, 1) `[rows, width]`, float32, on the CPU; row i depends on `seed`, `width` and i alone.

    So what a graph is given by the numbers of its nodes depends on no other graph, and longer tables begin like
    shorter ones. No generator of PyTorch moves. The table is kept and must not be changed in place.

    Examples:
        >>> torch.equal(fixed_uniforms(300, 2)[:5], fixed_uniforms(5, 2))
        True
    """
    chunks = [_chunk(number, width, seed) for number in range(-(-rows // _ROWS))]
    return torch.cat(chunks)[:rows] if chunks else torch.empty(0, width)


@lru_cache(maxsize=256)
def _chunk(number: int, width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(1_000_003 * seed + number)
    return torch.rand(_ROWS, width, generator=generator)
