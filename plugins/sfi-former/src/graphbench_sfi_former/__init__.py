"""SFi-Former and its exact sparse flow for graphbench."""

from __future__ import annotations

from graphbench_sfi_former.adjacency import NormalisedAdjacency
from graphbench_sfi_former.attention import flow_resistance, sparse_flow_attention, sparse_flow_weights
from graphbench_sfi_former.edges import sparse_flow_edges, with_virtual_nodes
from graphbench_sfi_former.flow import sparse_flow
from graphbench_sfi_former.iteration import ProximalOptions
from graphbench_sfi_former.layers import DenseFlowAttention, SparseFlowAttention
from graphbench_sfi_former.model import DFiFormer, SFiFormer
from graphbench_sfi_former.proximal import sparse_flow_proximal
from graphbench_sfi_former.sparsity import FlowSparsity
from graphbench_sfi_former.statistics import FlowStatistics, flow_statistics

__all__ = [
    "DFiFormer",
    "DenseFlowAttention",
    "FlowSparsity",
    "FlowStatistics",
    "NormalisedAdjacency",
    "ProximalOptions",
    "SFiFormer",
    "SparseFlowAttention",
    "flow_resistance",
    "flow_statistics",
    "sparse_flow",
    "sparse_flow_attention",
    "sparse_flow_edges",
    "sparse_flow_proximal",
    "sparse_flow_weights",
    "with_virtual_nodes",
]
