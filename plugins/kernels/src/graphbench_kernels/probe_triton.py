"""The smallest Triton kernel, to test whether kernels can be compiled and launched on this machine."""

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
        Whether it wrote the expected numbers.

    Raises:
        Exception: any error of Triton. It needs a C compiler and Python's headers for its launcher, a cache folder from
            which code may be loaded, and a driver that loads the output of its ptxas.
    """
    out = torch.full((16,), -1, dtype=torch.int32, device=device)
    _fill[(1,)](out, 16)
    return bool(torch.equal(out.cpu(), torch.arange(16, dtype=torch.int32)))
