"""Faster versions of graphbench's operations: loops in Numba for CPUs, Triton for GPUs.

`register` lists the operations that they replace. The core and the plug-ins never import this package: it is found by
its entry point in the group `graphbench.kernels`. Importing it imports neither Numba nor Triton; a kernel imports them
when it first runs.
"""

from graphbench_kernels.running import cpu_kernel, run_in_threads, runs_numba, runs_triton

__all__ = ["cpu_kernel", "run_in_threads", "runs_numba", "runs_triton"]
