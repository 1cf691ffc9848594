"""Edges of graphs as the models use them: the matrix A~, and flows over edges alone.

SFi-Former (Li et al., 2025, section 4.1): A~ = D^-1/2 (A + I) D^-1/2 with the degrees D of A + I, as in GCN. It is
built once a batch and applied in every layer. In a flow over a given graph the edges into a node are a row, and nothing
of nodes times nodes is made.
"""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch_geometric.data import Data

from graphbench import GraphBatch
from graphbench.errors import BadInput
from graphbench.nn import DenseLayout, gcn_edges
from graphbench_sfi_former.sparse_flow import sparse_flow

_FIELD = "normalised_adjacency"


@dataclass(frozen=True)
class NormalisedAdjacency:
    """A~ of all graphs of a batch as one block-diagonal matrix of compressed rows, beside its transpose.

    A product with compressed rows took 1.4 ms forward and backward where gathering and scattering the edges took 17 ms
    (32 graphs of 119 nodes and 5,950 edges, width 40, one CPU core); building both takes as long as one of the latter.

    Args:
        matrix: A~ `[T, T]`, compressed rows; entry (i, j) belongs to edge j -> i.
        transposed: its transpose, likewise, for the backward pass.

    Examples:
        >>> adjacency = NormalisedAdjacency.from_edges(torch.tensor([[0, 1], [1, 0]]), num_nodes=2, dtype=torch.float32)
        >>> adjacency.mix(torch.tensor([[1.0], [3.0]]))  # with loops, D^-1/2 (A + I) D^-1/2
        tensor([[2.0000],
                [2.0000]])
    """

    matrix: Tensor
    transposed: Tensor

    @classmethod
    def from_edges(cls, edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> NormalisedAdjacency:
        """Build A~ of any graph.

        Every node gets a loop unless the graph has one; parallel edges add up. In directed graphs D counts what
        arrives at a node.

        Args:
            edge_index: `[2, E]`, sources and targets.
            num_nodes: T.
            dtype: of the entries, float32 or float64.
        """
        edges, weights = gcn_edges(edge_index, num_nodes, dtype)
        shape = (num_nodes, num_nodes)
        return cls(
            _compressed_rows(edges[1], edges[0], weights, shape), _compressed_rows(edges[0], edges[1], weights, shape)
        )

    @torch.compiler.disable
    def mix(self, x: Tensor) -> Tensor:
        """Compute A~ x of nodes `[T, d]`, in the dtype of `x`; half precision is computed in float32."""
        with torch.autocast(x.device.type, enabled=False):
            mixed: Tensor = _Product.apply(x.to(self.matrix.dtype), self)
        return mixed.to(x.dtype)


@torch.compiler.disable  # the compiler has no sparse matrices
def with_adjacency(batch: GraphBatch, dtype: torch.dtype) -> GraphBatch:
    """Return the batch (a shallow copy) with its A~, for all layers to share."""
    shared: GraphBatch = copy.copy(batch)
    shared[_FIELD] = NormalisedAdjacency.from_edges(*_graph(batch), dtype)
    return shared


@torch.compiler.disable
def adjacency_of(batch: Data, dtype: torch.dtype) -> NormalisedAdjacency:
    """Return A~ of the batch: the one it carries, or a new one."""
    shared: NormalisedAdjacency | None = batch.get(_FIELD, None)
    if shared is None or shared.matrix.dtype != dtype:
        return NormalisedAdjacency.from_edges(*_graph(batch), dtype)
    return shared


def adjacency_dtype(x: Tensor) -> torch.dtype:
    """float64 for float64 nodes, else float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def edge_mask(batch: Data, layout: DenseLayout) -> Tensor:
    """Mark the nodes (columns) from which each node (row) has an edge, itself included: bool `[B, 1, N, N]`."""
    size = layout.max_nodes
    source, target = layout.index[_graph(batch)[0]]
    mask = torch.eye(size, dtype=torch.bool, device=source.device).repeat(layout.num_graphs, 1)
    mask[target, source % size] = True
    return mask.view(layout.num_graphs, 1, size, size)


def _graph(batch: Data) -> tuple[Tensor, int]:
    """Edges and number of nodes."""
    if batch.edge_index is None or batch.num_nodes is None:
        raise BadInput("The batch must have edge_index [2, E] and its number of nodes (x, batch or num_nodes).")
    return batch.edge_index, int(batch.num_nodes)


def _compressed_rows(row: Tensor, column: Tensor, weights: Tensor, shape: tuple[int, int]) -> Tensor:
    """Build the matrix `[T, T]` of entries `weights [E]` at these rows and columns `[E]`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)", category=UserWarning)
        # Parallel edges stay beside each other, as products add them up: merging them would wait for the device.
        rows, order = row.sort(stable=True)
        starts = torch._convert_indices_from_coo_to_csr(rows, shape[0])
        return torch.sparse_csr_tensor(starts, column[order], weights[order], shape, check_invariants=False)


class _Product(torch.autograd.Function):
    """A~ x, whose backward pass uses the transpose that is already there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, adjacency: NormalisedAdjacency) -> Tensor:
        """`[T, d]`."""
        ctx.adjacency = adjacency
        return adjacency.matrix @ x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        """A~^T upstream."""
        with torch.autocast(upstream.device.type, enabled=False):  # a backward pass may run inside of one
            return ctx.adjacency.transposed @ upstream.contiguous(), None


def sparse_flow_edges(
    resistance: Tensor,
    friction: Tensor,
    target: Tensor,
    num_nodes: int,
    penalty: float | Tensor,
    alpha: float | None = None,
) -> Tensor:
    """Compute the flow of least energy into every node over the edges of a graph, exactly.

    As `sparse_flow` (SFi-Former, equations 7 and 11), which does the work, where node i draws on the sources of the
    edges that end in it: a row of the matrix is the set of edges with one target. Any edges will do: those of the
    graph, loops, shortcuts, or virtual nodes (`with_virtual_nodes`). Nodes of similar degree are solved together, their
    rows padded to at most twice their length.

    Args:
        resistance: r `[E, ...]`, positive, floating point; further dimensions, such as heads, are solved side by side.
        friction: f `[E, ...]`, non-negative, floating point.
        target: node that each edge ends in, int64 `[E]`, in any order.
        num_nodes: nodes.
        penalty: weight of the friction, non-negative: a number, or one per node `[num_nodes]`.
        alpha: weight of the unit-inflow term, positive; None for the hard constraint.

    Returns:
        Flow `[E, ...]` in the dtype of `resistance`, computed in float64.

    Raises:
        BadInput: shapes, dtypes or values that do not fit.

    Examples:
        >>> import torch
        >>> from graphbench_sfi_former import sparse_flow_edges
        >>> friction, target = torch.tensor([0.0, 0.5, 0.5]), torch.tensor([0, 0, 1])
        >>> sparse_flow_edges(torch.ones(3), friction, target, num_nodes=2, penalty=1.0)
        tensor([0.7500, 0.2500, 1.0000])
    """
    _check(resistance, friction, target, num_nodes, penalty, alpha)
    if resistance.numel() == 0:
        return resistance * friction
    shape, width = resistance.shape, math.prod(resistance.shape[1:])
    links, tolls = (x.reshape(-1, width) for x in (resistance, friction))
    weights = torch.as_tensor(penalty, dtype=torch.float64, device=links.device).expand(num_nodes)
    order = target.argsort(stable=True)
    degree = target.bincount(minlength=num_nodes)
    first = degree.cumsum(0) - degree
    edges, flows = [], []
    for size in degree[degree > 0].double().log2().ceil().unique().exp2().long().tolist():
        nodes = ((degree <= size) & (2 * degree > size)).nonzero().view(-1)
        place = torch.arange(size, device=target.device)
        mask = place < degree[nodes, None]
        own = order[(first[nodes, None] + place).clamp_max(len(order) - 1)]
        r, f = (x[own].movedim(-1, 1) for x in (links, tolls))  # [nodes, width, size]
        flow = sparse_flow(r, f, weights[nodes, None, None], alpha, mask[:, None])
        edges.append(own[mask])
        flows.append(flow.movedim(1, -1)[mask])
    return torch.empty_like(links).index_copy(0, torch.cat(edges), torch.cat(flows)).reshape(shape)


def with_virtual_nodes(edge_index: Tensor, graph_of: Tensor, num_graphs: int, num_virtual: int = 1) -> Tensor:
    """Return the edges of a batch and those of virtual nodes, each joined to all nodes of its graph in both directions.

    Virtual node v of graph g has number `T + g * num_virtual + v`, behind the T nodes.

    Args:
        edge_index: `[2, E]`.
        graph_of: graph of each node `[T]`.
        num_graphs: graphs.
        num_virtual: virtual nodes of each graph.

    Returns:
        `[2, E + 2 T num_virtual]`.

    Examples:
        >>> with_virtual_nodes(torch.tensor([[0], [1]]), torch.tensor([0, 0]), num_graphs=1)  # node 2 is virtual
        tensor([[0, 0, 1, 2, 2],
                [1, 2, 2, 0, 1]])
    """
    num_nodes = graph_of.shape[0]
    node = torch.arange(num_nodes, device=graph_of.device).repeat_interleave(num_virtual)
    own = graph_of.repeat_interleave(num_virtual) * num_virtual
    virtual = num_nodes + own + torch.arange(num_virtual, device=graph_of.device).repeat(num_nodes)
    joined = torch.stack((node, virtual))
    return torch.cat((edge_index, joined, joined.flip(0)), dim=1)


def _check(
    resistance: Tensor, friction: Tensor, target: Tensor, num_nodes: int, penalty: float | Tensor, alpha: float | None
) -> None:
    if resistance.shape != friction.shape or resistance.dim() < 1 or target.shape != resistance.shape[:1]:
        raise BadInput(
            "resistance and friction must have one shape [E, ...] and target [E], but have "
            f"{tuple(resistance.shape)}, {tuple(friction.shape)} and {tuple(target.shape)}."
        )
    if target.numel() and not 0 <= int(target.min()) <= int(target.max()) < num_nodes:
        raise BadInput(
            f"target must lie in 0 .. {num_nodes - 1}, but lies in {int(target.min())} .. {int(target.max())}."
        )
    for name, tensor in (("resistance", resistance), ("friction", friction)):
        if not tensor.is_floating_point():
            raise BadInput(f"{name} must be a floating-point tensor, but has dtype {tensor.dtype}.")
    number = torch.as_tensor(penalty)
    if number.dim() and number.shape != (num_nodes,):
        raise BadInput(f"penalty must be a number or one per node [{num_nodes}], but has shape {tuple(number.shape)}.")
    for name, tensor in (("friction", friction), ("penalty", number), ("resistance", resistance)):
        if not bool((tensor >= 0).all()):
            raise BadInput(f"{name} must be non-negative, but its least value is {float(tensor.min())}.")
    if alpha is not None and not 0 < alpha < math.inf:
        raise BadInput(f"alpha must be positive and finite, or None for the hard constraint, but is {alpha}.")
