"""Looking inside a model: pure functions on tensors, and `record`, which collects the tensors.

Everything works on one graph or on many at once; functions named `..._per_graph` take the rows of all graphs in one
tensor with the graph of each row, and give every graph what it would get alone.
"""

from graphbench.diagnostics.attention import attention_entropy as attention_entropy
from graphbench.diagnostics.attention import attention_row_sum as attention_row_sum
from graphbench.diagnostics.attention import attention_zeros as attention_zeros
from graphbench.diagnostics.bounds import DecayFactors as DecayFactors
from graphbench.diagnostics.bounds import capacity_bound as capacity_bound
from graphbench.diagnostics.bounds import decay_factors as decay_factors
from graphbench.diagnostics.bounds import decay_factors_per_graph as decay_factors_per_graph
from graphbench.diagnostics.bounds import feed_forward_factor as feed_forward_factor
from graphbench.diagnostics.capacity import attention_capacity as attention_capacity
from graphbench.diagnostics.capacity import attention_capacity_per_graph as attention_capacity_per_graph
from graphbench.diagnostics.capacity import token_capacity as token_capacity
from graphbench.diagnostics.capacity import token_capacity_per_graph as token_capacity_per_graph
from graphbench.diagnostics.gap import generalization_gap as generalization_gap
from graphbench.diagnostics.maps import AttentionMap as AttentionMap
from graphbench.diagnostics.maps import attention_maps as attention_maps
from graphbench.diagnostics.maps import spread_out as spread_out
from graphbench.diagnostics.patterns import Patterns as Patterns
from graphbench.diagnostics.patterns import pattern_matrix as pattern_matrix
from graphbench.diagnostics.rank import effective_rank as effective_rank
from graphbench.diagnostics.rank import effective_rank_per_graph as effective_rank_per_graph
from graphbench.diagnostics.rank import numerical_rank as numerical_rank
from graphbench.diagnostics.rank import numerical_rank_per_graph as numerical_rank_per_graph
from graphbench.diagnostics.rank import rank_one_residual as rank_one_residual
from graphbench.diagnostics.rank import rank_one_residual_per_graph as rank_one_residual_per_graph
from graphbench.diagnostics.rank import singular_values_per_graph as singular_values_per_graph
from graphbench.diagnostics.rank import stable_rank as stable_rank
from graphbench.diagnostics.rank import stable_rank_per_graph as stable_rank_per_graph
from graphbench.diagnostics.recording import Recording as Recording
from graphbench.diagnostics.recording import record as record
from graphbench.diagnostics.similarity import dirichlet_energy as dirichlet_energy
from graphbench.diagnostics.similarity import dirichlet_energy_per_graph as dirichlet_energy_per_graph
from graphbench.diagnostics.similarity import token_similarity as token_similarity
from graphbench.diagnostics.similarity import token_similarity_per_graph as token_similarity_per_graph
from graphbench.diagnostics.summary import LayerSummary as LayerSummary
from graphbench.diagnostics.summary import Summary as Summary
from graphbench.diagnostics.summary import merge as merge
from graphbench.diagnostics.summary import summarise as summarise
from graphbench.diagnostics.summary import summarise_attention as summarise_attention
from graphbench.diagnostics.summary import summarise_capacity as summarise_capacity
from graphbench.diagnostics.summary import summarise_ranks as summarise_ranks
from graphbench.diagnostics.traces import TokenState as TokenState
from graphbench.diagnostics.traces import token_states as token_states

__all__ = [
    "AttentionMap",
    "DecayFactors",
    "LayerSummary",
    "Patterns",
    "Recording",
    "Summary",
    "TokenState",
    "attention_capacity",
    "attention_capacity_per_graph",
    "attention_entropy",
    "attention_maps",
    "attention_row_sum",
    "attention_zeros",
    "capacity_bound",
    "decay_factors",
    "decay_factors_per_graph",
    "dirichlet_energy",
    "dirichlet_energy_per_graph",
    "effective_rank",
    "effective_rank_per_graph",
    "feed_forward_factor",
    "generalization_gap",
    "merge",
    "numerical_rank",
    "numerical_rank_per_graph",
    "pattern_matrix",
    "rank_one_residual",
    "rank_one_residual_per_graph",
    "record",
    "singular_values_per_graph",
    "spread_out",
    "stable_rank",
    "stable_rank_per_graph",
    "summarise",
    "summarise_attention",
    "summarise_capacity",
    "summarise_ranks",
    "token_capacity",
    "token_capacity_per_graph",
    "token_similarity",
    "token_similarity_per_graph",
    "token_states",
]
