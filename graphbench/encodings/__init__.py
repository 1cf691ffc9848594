"""Encodings: tensors computed once per graph, for many graphs at once, and kept in the store.

Dense encodings group graphs by their exact number of nodes and work on `[b, n, n]` stacks in float64, so a graph is
never padded; substructures grow all partial matches of all graphs at once. In both cases the result for a graph never
depends on the other graphs in its chunk. Names are listed in `__init__.pyi` and loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
