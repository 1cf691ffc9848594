"""Images as graphs of superpixels: published sets, your own images, satellite pictures, and the readers they need."""

from graphbench.benchmarks.families import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
