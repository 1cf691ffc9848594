"""Resistor networks: fresh graphs in every batch, with the potentials, resistances or heat to recover."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
