"""Encodings for plain PyG graphs, next to the layers that read them."""

from graphbench.contracts.encoding import add_encodings

__all__ = ["add_encodings"]
