"""SFi-Former and its exact sparse flow for graphbench.

| request | solved by | computed in |
|---|---|---|
| models, layers, `sparse_flow_attention`, `..._weights` | Newton's method, in blocks (`blocks`) | float32, float64 |
| rows of these that are too ill-conditioned for that | sorting, in logarithms (`steep`, `logarithms`) | float64 |
| `sparse_flow`, `sparse_flow_edges`, frictions given | Newton's method (`sparse_flow`) | the same, then as above |
| `solver: proximal`, `sparse_flow_proximal` | T steps of the paper's iteration (`reference`) | as in the first row |

Everything is plain torch. `blocks` lists the operations that kernels may compute faster.
"""

from __future__ import annotations

from graphbench_sfi_former.attention import (
    flow_resistance,
    sparse_flow_attention,
    sparse_flow_edges,
    sparse_flow_weights,
    with_virtual_nodes,
)
from graphbench_sfi_former.diagnostics import (
    FlowSparsity,
    FlowStatistics,
    FlowSteps,
    GradientNorm,
    flow_statistics,
    flow_steps,
)
from graphbench_sfi_former.enhanced import NormalisedAdjacency
from graphbench_sfi_former.layers import DenseFlowAttention, SparseFlowAttention
from graphbench_sfi_former.model import DFiFormer, SFiFormer
from graphbench_sfi_former.reference import ProximalOptions, sparse_flow_proximal
from graphbench_sfi_former.sparse_flow import sparse_flow

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
