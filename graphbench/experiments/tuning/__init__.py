"""Search for options by validation scores: a space, a study with many processes, and pruning of poor trials.

Names are listed in `__init__.pyi` and loaded on first use, so that mistakes are reported before torch is imported.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
