"""DeepGraph: substructure tokens for deep graph transformers, for graphbench."""

from graphbench_deepgraph.layer import DeepGraphLayer as DeepGraphLayer
from graphbench_deepgraph.layer import RelativeBias as RelativeBias
from graphbench_deepgraph.model import DeepGraph as DeepGraph
from graphbench_deepgraph.sampler import CoverageSampler as CoverageSampler
from graphbench_deepgraph.substructure_encoder import SubstructureEncoder as SubstructureEncoder

__all__ = [
    "CoverageSampler",
    "DeepGraph",
    "DeepGraphLayer",
    "RelativeBias",
    "SubstructureEncoder",
]
