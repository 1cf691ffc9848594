"""Sequences of tokens: the tasks of "Long Range Arena" (Tay et al., 2021), generated or read as bytes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
