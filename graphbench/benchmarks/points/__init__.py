"""Point clouds: published sets, parametric solids, and readers of meshes and labelled clouds."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
