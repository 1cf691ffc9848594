"""Let glibc keep the memory of large tensors between training steps.

On a CPU PyTorch asks the C library for every tensor. Beyond 32 MB glibc maps fresh pages and gives them back as soon as
the tensor is freed, so that a step over large batches spends much of its time on page faults. Raised thresholds let it
keep that memory. What it costs: a process holds its peak, and more where sizes do not fit each other
(`speed/allocator.py` prints time and memory with and without).
"""

from __future__ import annotations

import ctypes
import os
import platform

#: `keep` (default) or `system`, which leaves glibc as it is.
VARIABLE = "GRAPHBENCH_MALLOC"

# Options of mallopt, see `malloc.h` of glibc.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_LARGEST = (1 << 31) - 1  # mallopt takes an int
_TOP_PAD = 64 << 20


def keep_memory() -> bool:
    """Raise glibc's thresholds for this process and those it forks.

    Returns:
        Whether they were: not without glibc, not where the environment sets `MALLOC_*` or glibc's tunables itself or
        asks for `GRAPHBENCH_MALLOC=system`.

    Raises:
        BadInput: the environment variable has another value.
    """
    from graphbench.errors import check_choice

    choice = os.environ.get(VARIABLE, "keep")
    check_choice(f"the environment variable {VARIABLE}", choice, ("keep", "system"))
    set_outside = any(name.startswith("MALLOC_") for name in os.environ)
    set_outside |= "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if choice == "system" or set_outside or platform.libc_ver()[0] != "glibc":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # a static interpreter, or another allocator in glibc's place
        return False
    options = ((_M_MMAP_THRESHOLD, _LARGEST), (_M_TRIM_THRESHOLD, _LARGEST), (_M_TOP_PAD, _TOP_PAD))
    return all(mallopt(option, value) == 1 for option, value in options)
