"""The Sampling Foundational Transformer for graphbench."""

from graphbench_sft.attention import SampledAttention
from graphbench_sft.layer import SFTLayer
from graphbench_sft.leaky import leaky_relu_attention
from graphbench_sft.maxout import maxout_scores
from graphbench_sft.model import SFT
from graphbench_sft.relative import edge_relations
from graphbench_sft.sampler import DifferentiableSampler, Sample

__all__ = [
    "SFT",
    "DifferentiableSampler",
    "SFTLayer",
    "Sample",
    "SampledAttention",
    "edge_relations",
    "leaky_relu_attention",
    "maxout_scores",
]
