"""Encodings: tensors computed once per graph, for many graphs at once, and kept in the store.

The dense ones group graphs by their exact number of nodes and work on `[b, n, n]` stacks in float64, so a graph is
never padded; substructures grow all partial matches of all graphs at once. Either way the result of a graph never
depends on which graphs share its chunk. Names are listed in `__init__.pyi` and loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
