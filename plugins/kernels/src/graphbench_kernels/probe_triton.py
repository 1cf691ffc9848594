"""The smallest kernel in Triton: whether one can be compiled and launched here is known by doing it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _fill(out: tl.tensor, size: tl.constexpr) -> None:
    place = tl.arange(0, size)
    tl.store(out + place, place)


def launch(device: torch.device) -> bool:
    """Compile and launch it on a device.

    Returns:
        Whether it wrote what it should.

    Raises:
        Exception: whatever Triton raises: it needs a C compiler and Python's headers for its launcher, a folder for its
            cache from which code may be loaded, and a driver that loads what its ptxas wrote.
    """
    out = torch.full((16,), -1, dtype=torch.int32, device=device)
    _fill[(1,)](out, 16)
    return bool(torch.equal(out.cpu(), torch.arange(16, dtype=torch.int32)))
