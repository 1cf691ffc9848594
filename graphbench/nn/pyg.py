"""Encodings for plain graphs of PyG, beside the layers that read them."""

from graphbench.contracts.encoding import add_encodings

__all__ = ["add_encodings"]
