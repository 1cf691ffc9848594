"""Find cycles, paths, stars and neighbourhoods of graphs once, and store them as ragged sets."""

from graphbench.encodings.substructures.encoding import Substructures
from graphbench.encodings.substructures.hashing import below, mix, structure_hash
from graphbench.encodings.substructures.vocabulary import Kind, Pattern

__all__ = ["Kind", "Pattern", "Substructures", "below", "mix", "structure_hash"]
