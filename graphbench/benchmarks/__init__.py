"""The benchmarks, one file a family. Names are loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphbench.benchmarks.base import GraphBenchmark as GraphBenchmark
    from graphbench.benchmarks.molecules import Molecules as Molecules
    from graphbench.benchmarks.nci import NCI as NCI
    from graphbench.benchmarks.zinc import ZINC as ZINC

_HOME = {
    "GraphBenchmark": "base",
    "Molecules": "molecules",
    "NCI": "nci",
    "ZINC": "zinc",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
