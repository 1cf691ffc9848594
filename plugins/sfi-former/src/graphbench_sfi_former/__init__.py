"""SFi-Former and its exact sparse flow for graphbench."""

from __future__ import annotations

from graphbench_sfi_former.attention import sparse_flow_attention, sparse_flow_weights
from graphbench_sfi_former.flow import sparse_flow
from graphbench_sfi_former.proximal import sparse_flow_proximal
from graphbench_sfi_former.statistics import FlowStatistics, flow_statistics

__all__ = [
    "FlowStatistics",
    "flow_statistics",
    "sparse_flow",
    "sparse_flow_attention",
    "sparse_flow_proximal",
    "sparse_flow_weights",
]
