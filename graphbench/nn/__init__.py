"""Layers that several architectures share; plug-ins import them from here.

Names are listed in `__init__.pyi` and loaded on first use, so that a plug-in loads only what it uses.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
