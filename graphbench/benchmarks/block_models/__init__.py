"""Graphs sampled from models: PATTERN and CLUSTER (stochastic blocks), CSL (circulant graphs) and CYCLES."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
