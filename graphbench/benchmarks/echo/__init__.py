"""ECHO for long-range propagation (Miglior et al., ICLR 2026): distances in generated graphs, and quantum chemistry."""

from graphbench.benchmarks.families import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
