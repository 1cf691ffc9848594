"""Benchmark of resistor networks: fresh graphs in every batch, with the potentials, resistances or heat to recover."""

from graphbench.benchmarks.families import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
