"""The Long Range Graph Benchmark (Dwivedi et al., NeurIPS 2022): its five sets and the files they are published in."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
