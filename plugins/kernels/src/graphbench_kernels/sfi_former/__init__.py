"""Faster versions of the operations in `graphbench_sfi_former.ops`, which alone imports them, where they can run."""
