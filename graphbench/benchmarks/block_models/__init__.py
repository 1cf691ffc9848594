"""Benchmarks of sampled graphs: PATTERN and CLUSTER (stochastic blocks), CSL (circulant graphs), CYCLES and TSP."""

from graphbench.benchmarks.families import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
