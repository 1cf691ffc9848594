"""Tell where kernels can run, Triton for graphics cards, Numba for processors; and how those of processors are run."""

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

#: Steps of arithmetic below which a second thread costs more than it saves.
_MIN_STEPS = 1 << 18
#: Sums may be taken in any order and products joined with them, which is what fills vector registers. Numbers that are
#: infinite or none are kept as they are.
_FAST = {"reassoc", "nsz", "contract"}

Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def runs_triton(device: torch.device) -> bool:
    """Return whether a kernel in Triton can be launched on this device, which is tried once with a tiny one.

    The builds of torch for CUDA and ROCm bring Triton with them. It builds a launcher with a C compiler, which many
    nodes of clusters and images lack: then one warning says why, and torch's operations compute.

    Args:
        device: of the tensors.

    Returns:
        False on a CPU, without Triton, on cards older than compute capability 7.0, and where the launch fails.

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
    except Exception as error:  # of Triton, of its compilers, of the driver
        why = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    warnings.warn(
        f"Kernels in Triton cannot be launched on {device}, so PyTorch's operations compute in their place: {why}. "
        "Triton needs a C compiler (CC names it), Python's headers and a cache folder that code may be loaded from "
        "(TRITON_CACHE_DIR).",
        stacklevel=2,
    )
    return False


def runs_numba(*tensors: Tensor) -> bool:
    """Tell whether loops in Numba compute with these tensors.

    They do for float32 and float64 on a processor, but not for parameters themselves (see `run_in_threads`), for
    subclasses such as fake tensors, within transforms of `torch.func`, or while a `TorchDispatchMode` (which counts
    operations, say) looks at the program.

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
    return find_spec("numba") is not None and not int(os.environ.get("NUMBA_DISABLE_JIT", 0))


def cpu_kernel(function: Function) -> Function:
    """Compile loops over NumPy arrays for this processor, at the first call; what was compiled is kept on disk.

    Loops over the last axis become vector instructions where each turn is independent of the others or adds to a sum.
    Sums are taken in an order of the compiler's, the same in every call with the same shapes, whether this process
    compiled the function or found it on disk.

    Args:
        function: what Numba understands. Functions that it calls are decorated too, and become part of it. It is
            compiled anew when its file changes, or one that a name in it comes from (see `disk_cache`).

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

    # Of functions that are called, each caller has a copy, optimised for it. Unless they become part of the caller, the
    # first copy that a process has loaded serves all: compiled anew that is another one than from disk, which adds in
    # another order.
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": _FAST, "forceinline": True}
    compiled = njit(**options)(function)
    compiled._cache = DiskCache(compiled)
    kernel: Function = compiled
    return kernel


def run_in_threads(kernel: Callable[..., None], count: int, steps: int, *operands: Any) -> None:
    """Call `kernel(first, last, *arrays)` for all of `count` items, shared out among as many threads as torch has.

    Args:
        kernel: from `cpu_kernel`; computes the items from `first` on, before `last`, each as if it were alone.
        count: how many items there are.
        steps: of arithmetic, for all items together; few of them stay in this thread.
        operands: tensors without gradients become arrays that share their memory; others are handed on. Parameters
            themselves are none of them: a storage that an array has shared can no longer be resized, as FSDP does.

    Examples:
        >>> def fill(first, last, out, value):  # a kernel, but for its speed
        ...     out[first:last] = value
        >>> out = torch.zeros(3)
        >>> run_in_threads(fill, 3, 3, out, 2.0)
        >>> out
        tensor([2., 2., 2.])
    """
    arrays = [x.numpy() if isinstance(x, Tensor) else x for x in operands]
    # As many as have work for longer than it takes to start them.
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
        wait(others)  # they write into tensors of the caller
    for other in others:
        other.result()


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads of this process; one that was forked from it has none of them."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="graphbench-kernels")
