"""The Sampling Foundational Transformer for graphbench."""

from graphbench_sft.attention import SampledAttention
from graphbench_sft.model import SFT, SFTLayer
from graphbench_sft.relative import edge_relations
from graphbench_sft.sampler import DifferentiableSampler, Sample
from graphbench_sft.scores import leaky_relu_attention, maxout_scores

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
