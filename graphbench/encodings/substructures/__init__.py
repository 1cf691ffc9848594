"""Find cycles, paths, stars and neighbourhoods of graphs once, and store them as ragged sets."""

from graphbench.encodings.substructures.encoding import Substructures as Substructures
from graphbench.encodings.substructures.hashing import below as below
from graphbench.encodings.substructures.hashing import mix as mix
from graphbench.encodings.substructures.hashing import structure_hash as structure_hash
from graphbench.encodings.substructures.vocabulary import Kind as Kind
from graphbench.encodings.substructures.vocabulary import Pattern as Pattern

__all__ = ["Kind", "Pattern", "Substructures", "below", "mix", "structure_hash"]
