"""The contracts of the house: what plug-ins subclass and what rooms hand to each other.

Names are loaded on first use, so that `BenchmarkSpec` can be had without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphbench.contracts.architecture import Architecture as Architecture
    from graphbench.contracts.architecture import PositionalEncoder as PositionalEncoder
    from graphbench.contracts.architecture import Representation as Representation
    from graphbench.contracts.benchmark import Benchmark as Benchmark
    from graphbench.contracts.encoding import Encoded as Encoded
    from graphbench.contracts.encoding import Encoding as Encoding
    from graphbench.contracts.spec import BenchmarkSpec as BenchmarkSpec
    from graphbench.contracts.spec import Features as Features
    from graphbench.contracts.table import Column as Column
    from graphbench.contracts.table import GraphBatch as GraphBatch
    from graphbench.contracts.table import GraphTable as GraphTable
    from graphbench.contracts.trace import LayerTrace as LayerTrace
    from graphbench.contracts.trace import Traced as Traced

_HOME = {
    "Architecture": "architecture",
    "PositionalEncoder": "architecture",
    "Representation": "architecture",
    "Benchmark": "benchmark",
    "Encoded": "encoding",
    "Encoding": "encoding",
    "BenchmarkSpec": "spec",
    "Features": "spec",
    "Column": "table",
    "GraphBatch": "table",
    "GraphTable": "table",
    "LayerTrace": "trace",
    "Traced": "trace",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
