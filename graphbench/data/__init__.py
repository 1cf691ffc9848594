"""Share among benchmarks the on-disk store, encoding of many graphs, splits, bucketed sampling and loading.

The part that benchmarks outside this package need is listed in `__init__.pyi` and loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
