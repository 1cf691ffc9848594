"""DeepGraph: substructure tokens for deep graph transformers, for graphbench."""

from graphbench_deepgraph.layer import DeepGraphLayer, RelativeBias
from graphbench_deepgraph.model import DeepGraph
from graphbench_deepgraph.sampler import CoverageSampler
from graphbench_deepgraph.substructure_encoder import SubstructureEncoder

__all__ = [
    "CoverageSampler",
    "DeepGraph",
    "DeepGraphLayer",
    "RelativeBias",
    "SubstructureEncoder",
]
