"""Graphs of your own: a benchmark by configuration out of files, tables, functions and named data sets."""

from graphbench.benchmarks.families import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
