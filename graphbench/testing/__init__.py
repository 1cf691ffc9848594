"""What authors of plug-ins test with: contracts to inherit and tiny data that fits any specification.

    from graphbench.testing import ArchitectureContract

    class TestMyModel(ArchitectureContract):
        architecture = MyModel
        options = {"hidden_dim": 16, "num_layers": 2}

pytest collects the inherited `test_*` methods. Nothing here imports pytest; a check that does not apply raises
`unittest.SkipTest`, which pytest reports as skipped. Names are loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphbench.testing.architectures import ArchitectureContract as ArchitectureContract
    from graphbench.testing.architectures import check_architecture as check_architecture
    from graphbench.testing.benchmarks import BenchmarkContract as BenchmarkContract
    from graphbench.testing.benchmarks import check_batch as check_batch
    from graphbench.testing.encodings import EncodingContract as EncodingContract
    from graphbench.testing.encodings import PositionalEncoderContract as PositionalEncoderContract
    from graphbench.testing.tiny import FEATURE_KINDS as FEATURE_KINDS
    from graphbench.testing.tiny import encode as encode
    from graphbench.testing.tiny import permute_nodes as permute_nodes
    from graphbench.testing.tiny import tiny_batch as tiny_batch
    from graphbench.testing.tiny import tiny_spec as tiny_spec
    from graphbench.testing.tiny import tiny_table as tiny_table

_HOME = {
    "ArchitectureContract": "architectures",
    "BenchmarkContract": "benchmarks",
    "EncodingContract": "encodings",
    "FEATURE_KINDS": "tiny",
    "PositionalEncoderContract": "encodings",
    "check_architecture": "architectures",
    "check_batch": "benchmarks",
    "encode": "tiny",
    "permute_nodes": "tiny",
    "tiny_batch": "tiny",
    "tiny_spec": "tiny",
    "tiny_table": "tiny",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
