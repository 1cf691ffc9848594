"""Train on your own graphs, from files, tables, functions and named data sets."""

from graphbench.benchmarks.families import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
