"""Smaller samples of generated benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphbench.contracts import BenchmarkSpec
from graphbench.errors import BadInput


def with_sizes(spec: BenchmarkSpec, sizes: Sequence[int] | None) -> BenchmarkSpec:
    """The specification of a sample of `sizes` graphs in train, validation and test; unchanged without them.

    Raises:
        BadInput: there are not three sizes, or one is below 1.
    """
    if sizes is None:
        return spec
    if len(sizes) != 3 or min(sizes) < 1:
        raise BadInput(f"sizes must be three numbers of at least 1 (train, validation, test), got {tuple(sizes)}.")
    return replace(spec, split_sizes=(sizes[0], sizes[1], sizes[2]), disk_mb=None)
