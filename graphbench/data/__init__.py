"""What all benchmarks share: the on-disk store, encoding many graphs, splits, bucketed sampling and loading.

What benchmarks outside this package need of it is listed in `__init__.pyi` and loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
