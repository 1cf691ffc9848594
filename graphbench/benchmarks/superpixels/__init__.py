"""Images as graphs of superpixels: published data sets, your own images, satellite pictures, and their readers."""

from graphbench.benchmarks.families import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
