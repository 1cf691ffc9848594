"""Benchmark of resistor networks: fresh graphs in every batch, whose potentials, resistances or heat are predicted."""

from graphbench.benchmarks.families import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
