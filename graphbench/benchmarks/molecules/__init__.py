"""Molecule benchmarks: published data sets, stand-ins that need no network, and your own file."""

from graphbench.benchmarks.families import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
