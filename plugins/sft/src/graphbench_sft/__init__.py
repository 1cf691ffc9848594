"""The Sampling Foundational Transformer for graphbench."""

from graphbench_sft.attention import SampledAttention as SampledAttention
from graphbench_sft.layer import SFTLayer as SFTLayer
from graphbench_sft.leaky import leaky_relu_attention as leaky_relu_attention
from graphbench_sft.maxout import maxout_scores as maxout_scores
from graphbench_sft.model import SFT as SFT
from graphbench_sft.relative import edge_relations as edge_relations
from graphbench_sft.sampler import DifferentiableSampler as DifferentiableSampler
from graphbench_sft.sampler import Sample as Sample
