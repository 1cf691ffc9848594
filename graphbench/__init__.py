"""graphbench: train, compare and look inside graph transformers.

Everything here is loaded on first use, so that `import graphbench` and the light commands do without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphbench.contracts import Architecture as Architecture
    from graphbench.contracts import Benchmark as Benchmark
    from graphbench.contracts import BenchmarkSpec as BenchmarkSpec
    from graphbench.contracts import Column as Column
    from graphbench.contracts import Encoded as Encoded
    from graphbench.contracts import Encoding as Encoding
    from graphbench.contracts import Features as Features
    from graphbench.contracts import GraphBatch as GraphBatch
    from graphbench.contracts import GraphTable as GraphTable
    from graphbench.contracts import LayerTrace as LayerTrace
    from graphbench.contracts import PositionalEncoder as PositionalEncoder
    from graphbench.contracts import Representation as Representation
    from graphbench.contracts import Traced as Traced
    from graphbench.module import BenchmarkModule as BenchmarkModule
    from graphbench.module import build as build

    __version__: str

#: Public name -> module that defines it.
_HOME = {
    "Architecture": "contracts",
    "Benchmark": "contracts",
    "BenchmarkModule": "module",
    "BenchmarkSpec": "contracts",
    "Column": "contracts",
    "Encoded": "contracts",
    "Encoding": "contracts",
    "Features": "contracts",
    "GraphBatch": "contracts",
    "GraphTable": "contracts",
    "LayerTrace": "contracts",
    "PositionalEncoder": "contracts",
    "Representation": "contracts",
    "Traced": "contracts",
    "build": "module",
}
#: Rooms that `import graphbench` reaches as attributes (`graphbench.registry.load(...)`).
_ROOMS = ("benchmarks", "contracts", "data", "diagnostics", "encodings", "errors", "nn", "registry", "testing")
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    elif name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    elif name == "__version__":
        value = _version()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_ROOMS, "__version__"})


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("graphbench-lightning")
    except metadata.PackageNotFoundError:
        raise AttributeError(
            f"graphbench is imported from {__path__[0]}, which is not installed, so its version and its plug-ins are "
            "unknown. Install it: pip install -e FOLDER_OF_THE_CLONE"
        ) from None
