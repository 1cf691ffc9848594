"""Kernels of the operations that `graphbench_sfi_former` defines; `operations` decides where they run."""
