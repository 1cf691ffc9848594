"""Point clouds: published data sets, parametric solids, and readers of meshes and labelled clouds."""

from graphbench.benchmarks.families import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
