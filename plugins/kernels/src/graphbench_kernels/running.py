"""Determine where kernels can run (Triton on GPUs, Numba on CPUs), and run those for CPUs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

__all__ = ["cpu_kernel", "run_in_threads", "runs_numba", "runs_triton"]

#: Arithmetic operations below which a second thread costs more than it saves.
_MIN_STEPS = 1 << 18
#: Sums may be reordered and fused with products, which fills vector registers. Infinity and NaN are kept.
_FAST = {"reassoc", "nsz", "contract"}

Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def runs_triton(device: torch.device) -> bool:
    """Return whether a Triton kernel can be launched on this device, which is tested once with a tiny one.

    Torch's builds for CUDA and ROCm include Triton. It builds a launcher with a C compiler, which many cluster nodes
    and images lack: then one warning gives the reason, and torch's operations are used.

    Args:
        device: device of the tensors.

    Returns:
        False on a CPU, without Triton, on GPUs older than compute capability 7.0, and if the launch fails.

    Examples:
        >>> runs_triton(torch.device("cpu"))
        False
    """
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    if torch.cuda.get_device_capability(device) < (7, 0):
        return False
    try:
        from graphbench_kernels.probe_triton import launch

        if launch(device):
            return True
        why = "a kernel of one line gave wrong numbers"
    except Exception as error:  # of Triton, its compilers or the driver
        why = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    warnings.warn(
        f"Triton kernels cannot be launched on {device}, so PyTorch's operations are used instead: {why}. "
        "Triton needs a C compiler (CC names it), Python's headers and a cache folder that code may be loaded from "
        "(TRITON_CACHE_DIR).",
        stacklevel=2,
    )
    return False


def runs_numba(*tensors: Tensor) -> bool:
    """Return whether Numba loops support these tensors.

    They support float32 and float64 on a CPU, but not parameters themselves (see `run_in_threads`), subclasses such as
    fake tensors, transforms of `torch.func`, or an active `TorchDispatchMode` (one that counts operations, for
    example).

    Args:
        tensors: all floating-point operands.

    Examples:
        >>> runs_numba(torch.zeros(2, dtype=torch.float16))
        False
    """
    if is_in_torch_dispatch_mode() or not _numba_compiles():
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return all(
        type(x) is Tensor and x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) for x in tensors
    )


@cache
def _numba_compiles() -> bool:
    try:
        disabled = int(os.environ.get("NUMBA_DISABLE_JIT", 0))
    except ValueError:  # empty, for example; Numba compiles then, and warns
        disabled = 0
    return find_spec("numba") is not None and not disabled


def cpu_kernel(function: Function) -> Function:
    """Compile loops over NumPy arrays for this CPU at the first call; compiled code is cached on disk.

    Loops over the last axis are vectorised if iterations are independent or add to a sum. The compiler chooses the
    order of sums, which is the same in every call with the same shapes, whether this process compiled the function or
    found it on disk.

    Args:
        function: a function that Numba supports. Functions that it calls must also be decorated, and are inlined. It is
            recompiled if its file changes, or a file that it uses names from (see `disk_cache`).

    Examples:
        >>> import numpy as np
        >>> @cpu_kernel
        ... def add_rows(first, last, x, sums):
        ...     for row in range(first, last):
        ...         for number in x[row]:
        ...             sums[row] += number
        >>> sums = torch.zeros(2)
        >>> run_in_threads(add_rows, 2, 6, torch.ones(2, 3), sums)
        >>> sums
        tensor([3., 3.])
    """
    from numba import njit

    from graphbench_kernels.disk_cache import DiskCache  # imports Numba

    # Each caller has its own optimised copy of the functions that it calls. Unless they are inlined, the first copy
    # that a process loads is used for all: a newly compiled copy differs from one on disk and adds in a different
    # order.
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": _FAST, "forceinline": True}
    compiled = njit(**options)(function)
    compiled._cache = DiskCache(compiled)
    kernel: Function = compiled
    return kernel


def run_in_threads(kernel: Callable[..., None], count: int, steps: int, *operands: Any) -> None:
    """Call `kernel(first, last, *arrays)` for all `count` items, distributed over as many threads as torch has.

    Args:
        kernel: from `cpu_kernel`; computes items `first` to `last - 1` independently of each other.
        count: number of items.
        steps: arithmetic operations for all items together; if few, they stay in this thread.
        operands: tensors without gradients become arrays that share their memory; others are passed on. Do not pass
            parameters: a storage that has been shared with an array can no longer be resized, as FSDP does.

    Examples:
        >>> def fill(first, last, out, value):  # a kernel, but for its speed
        ...     out[first:last] = value
        >>> out = torch.zeros(3)
        >>> run_in_threads(fill, 3, 3, out, 2.0)
        >>> out
        tensor([2., 2., 2.])
    """
    arrays = [x.numpy() if isinstance(x, Tensor) else x for x in operands]
    # As many threads as have more work than it takes to start them.
    threads = 1 if steps < 2 * _MIN_STEPS else min(torch.get_num_threads(), count, steps // _MIN_STEPS)
    if threads < 2:
        if count:
            kernel(0, count, *arrays)
        return
    bounds = [count * part // threads for part in range(threads + 1)]
    others = [_pool(os.getpid(), threads).submit(kernel, *bounds[i : i + 2], *arrays) for i in range(1, threads)]
    try:
        kernel(0, bounds[1], *arrays)
    finally:
        wait(others)  # they write to tensors of the caller
    for other in others:
        other.result()


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the threads of this process; a forked process has none of them."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="graphbench-kernels")
