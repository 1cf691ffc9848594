"""How a family loads its names: what others build on is listed by the family, the benchmarks in the listing of all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lazy_loader


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a family.

    Listed names are loaded on first use, as `lazy_loader.attach_stub` does. A benchmark of the family is found here
    too, as saved configurations name it, but it is written down once, in `graphbench/benchmarks/__init__.pyi`.

    Args:
        package: `__name__` of the family.
        file: its `__file__`; the listing is the `.pyi` beside it, where there is one.

    Examples:
        >>> from graphbench.benchmarks import block_models
        >>> block_models.CSL.__module__, block_models.__all__
        ('graphbench.benchmarks.block_models.csl', ['BlockModelBenchmark'])
    """
    has_listing = Path(file).with_suffix(".pyi").is_file()
    listed, names, public = lazy_loader.attach_stub(package, file) if has_listing else lazy_loader.attach(package)

    def find(name: str) -> Any:
        try:
            return listed(name)
        except AttributeError:
            every = sys.modules[package.rpartition(".")[0]]
            found = getattr(every, name) if name in every.__all__ else None
            if not getattr(found, "__module__", "").startswith(f"{package}."):
                raise
            return found

    return find, names, public
