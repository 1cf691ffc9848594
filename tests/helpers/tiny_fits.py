"""A tiny benchmark of any specification, and every registered architecture on the first one that it accepts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from graphbench import registry
from graphbench.benchmarks.base import GraphBenchmark
from graphbench.contracts import Architecture, BenchmarkSpec
from graphbench.errors import BadInput
from graphbench.testing import tiny_spec, tiny_table
from graphbench.testing.tiny import FEATURE_KINDS


class TinyData(GraphBenchmark):
    """Random graphs, eight in each split unless `sizes` says otherwise."""

    def __init__(self, spec: BenchmarkSpec, sizes: tuple[int, int, int] = (8, 8, 8), **options: Any) -> None:
        self.spec, self.sizes = spec, sizes
        super().__init__(**options)

    def source_key(self) -> dict[str, Any]:
        return {"spec": self.spec.name, "sizes": list(self.sizes)}

    def read(self) -> dict[str, Any]:
        splits = zip(("train", "val", "test"), self.sizes, strict=True)
        return {split: tiny_table(self.spec, size, seed=seed) for seed, (split, size) in enumerate(splits)}


def made(name: str, options: Mapping[str, Any]) -> tuple[BenchmarkSpec, Callable[[BenchmarkSpec], Architecture]]:
    """Return specification and constructor of an architecture, for the first tiny benchmark that it accepts."""
    cls = registry.load("architectures", name)
    for kind in FEATURE_KINDS:
        for task in ("graph-regression", "graph-classification", "node-classification", "map-recovery"):
            spec = tiny_spec(task, kind)
            try:
                cls(spec, **options)
            except BadInput:
                continue
            return spec, lambda seen: cls(seen, **options)
    raise AssertionError(f"{name} refuses every tiny specification")


def drawing(name: str) -> dict[str, float]:
    """Return options with which an architecture draws numbers in training: every dropout rate that it has."""
    options = inspect.signature(registry.load("architectures", name)).parameters.items()
    return {option: 0.2 for option, given in options if "drop" in option and type(given.default) in (int, float)}
