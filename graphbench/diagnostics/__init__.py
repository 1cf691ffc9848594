"""Inspect a model: pure functions on tensors, and `record`, which collects the tensors.

Everything works on one graph or on many at once; functions named `..._per_graph` accept the rows of all graphs in one
tensor with the graph of each row, and return for every graph what it would get alone. Names are listed in
`__init__.pyi` and loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
