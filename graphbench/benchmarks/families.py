"""Load the names of a family lazily: base classes from its listing, benchmarks from the listing of all benchmarks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lazy_loader


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a family, which load listed names on first use.

    Saved configurations name benchmarks by their family, so benchmarks are also loaded here, although they are listed
    only in `graphbench/benchmarks/__init__.pyi`.

    Examples:
        >>> from graphbench.benchmarks import block_models
        >>> block_models.CSL.__module__, block_models.__all__
        ('graphbench.benchmarks.block_models.csl', ['BlockModelBenchmark'])
    """
    has_listing = Path(file).with_suffix(".pyi").is_file()
    listed, names, public = lazy_loader.attach_stub(package, file) if has_listing else lazy_loader.attach(package)

    def load(name: str) -> Any:
        try:
            return listed(name)
        except AttributeError:
            # Not imported at the top: the listing of all benchmarks imports its families, so this would be circular.
            benchmarks = sys.modules[package.rpartition(".")[0]]
            cls = getattr(benchmarks, name) if name in benchmarks.__all__ else None
            if not getattr(cls, "__module__", "").startswith(f"{package}."):
                raise
            return cls

    return load, names, public
