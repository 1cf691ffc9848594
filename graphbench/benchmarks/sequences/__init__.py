"""Sequences of tokens: the tasks of "Long Range Arena" (Tay et al., 2021), generated or read as bytes."""

from graphbench.benchmarks.families import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
