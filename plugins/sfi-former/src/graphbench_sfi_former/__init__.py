"""SFi-Former and its exact sparse flow for graphbench.

Which solver of the flow runs when:

| what is asked for | solver and its modules | computed in |
|---|---|---|
| models and `SparseFlowAttention`, traces included, | fused: a water level by Newton's method | float32, or float64 |
| `sparse_flow_attention`, `sparse_flow_weights` | (`blockwise`, `fused`, `rows`, `waterfill`) | for such inputs |
| the rows of these whose condition is beyond that | sorting, in logarithms (`steep`, `logarithmic`) | float64 |
| `sparse_flow`, `sparse_flow_edges`, frictions given | sorting, in logarithms (`flow`, `logarithmic`) | float64 |
| `solver: proximal`, `sparse_flow_proximal` | T steps of the paper's iteration (`proximal`) | as the first |

The composed form, softmaxes and `sparse_flow` in plain operations (`sparse_flow_attention(..., solver=sparse_flow)`),
is the reference of the fused one where a softmax can hold the resistances.
"""

from __future__ import annotations

from graphbench_sfi_former.adjacency import NormalisedAdjacency
from graphbench_sfi_former.attention import flow_resistance, sparse_flow_attention, sparse_flow_weights
from graphbench_sfi_former.edges import sparse_flow_edges, with_virtual_nodes
from graphbench_sfi_former.flow import sparse_flow
from graphbench_sfi_former.gradient_norm import GradientNorm
from graphbench_sfi_former.iteration import ProximalOptions
from graphbench_sfi_former.layers import DenseFlowAttention, SparseFlowAttention
from graphbench_sfi_former.model import DFiFormer, SFiFormer
from graphbench_sfi_former.proximal import sparse_flow_proximal
from graphbench_sfi_former.sparsity import FlowSparsity
from graphbench_sfi_former.statistics import FlowStatistics, flow_statistics
from graphbench_sfi_former.steps import FlowSteps, flow_steps

__all__ = [
    "DFiFormer",
    "DenseFlowAttention",
    "FlowSparsity",
    "FlowStatistics",
    "FlowSteps",
    "GradientNorm",
    "NormalisedAdjacency",
    "ProximalOptions",
    "SFiFormer",
    "SparseFlowAttention",
    "flow_resistance",
    "flow_statistics",
    "flow_steps",
    "sparse_flow",
    "sparse_flow_attention",
    "sparse_flow_edges",
    "sparse_flow_proximal",
    "sparse_flow_weights",
    "with_virtual_nodes",
]
