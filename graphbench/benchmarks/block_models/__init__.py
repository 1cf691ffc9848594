"""Graphs sampled from models: PATTERN and CLUSTER (stochastic blocks), CSL (circulant graphs) and CYCLES."""

from graphbench.benchmarks.families import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
