"""The Long Range Graph Benchmark (Dwivedi et al., NeurIPS 2022): its five data sets and their published files."""

from graphbench.benchmarks.families import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
