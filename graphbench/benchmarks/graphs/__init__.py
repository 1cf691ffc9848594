"""Graphs of your own: a benchmark by configuration out of files, tables, functions and named data sets."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
