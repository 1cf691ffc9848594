"""Images as graphs of superpixels: published sets, your own images, satellite pictures, and the readers they need."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
