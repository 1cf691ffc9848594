"""Encodings: tensors computed once per graph, for many graphs at once, and kept in the store.

The dense ones group graphs by their exact number of nodes and work on `[b, n, n]` stacks in float64, so a graph is
never padded; substructures grow all partial matches of all graphs at once. Either way the result of a graph never
depends on which graphs share its chunk.
"""

from graphbench.encodings._dense import Normalization as Normalization
from graphbench.encodings.degree import Degree as Degree
from graphbench.encodings.effective_resistance import EffectiveResistance as EffectiveResistance
from graphbench.encodings.expander import ExpanderEdges as ExpanderEdges
from graphbench.encodings.lap_pe import LapPE as LapPE
from graphbench.encodings.rrwp import RRWP as RRWP
from graphbench.encodings.rwse import RWSE as RWSE
from graphbench.encodings.shortest_paths import ShortestPaths as ShortestPaths
from graphbench.encodings.substructures import Kind as Kind
from graphbench.encodings.substructures import Pattern as Pattern
from graphbench.encodings.substructures import Substructures as Substructures

__all__ = [
    "RRWP",
    "RWSE",
    "Degree",
    "EffectiveResistance",
    "ExpanderEdges",
    "Kind",
    "LapPE",
    "Normalization",
    "Pattern",
    "ShortestPaths",
    "Substructures",
]
