"""Define the classes that plug-ins subclass and that the packages of graphbench pass to each other.

Names are listed in `__init__.pyi` and loaded on first use, so that importing `BenchmarkSpec` does not import torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
