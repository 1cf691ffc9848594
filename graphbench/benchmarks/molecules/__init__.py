"""Benchmarks of molecules: published sets, stand-ins without a network, and a file of your own."""

from graphbench.benchmarks.families import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
