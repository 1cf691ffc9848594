"""Provide what all benchmarks share: the on-disk store, encodings, splits, bucketed sampling and loading.

The names that benchmarks outside this package need are listed in `__init__.pyi` and loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
