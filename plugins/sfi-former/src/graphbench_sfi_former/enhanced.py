"""The layer that combines any attention matrix with the adjacency matrix: equation (13) of SFi-Former.

Li et al., 2025, section 4.2, for H heads and any attention matrix Z:

    X' = X + (1 + gamma)^-1 sum_h [A~ + gamma Z_h] X W_V^h W_O^h

The residual branch X belongs to the GPS layer around it. Everything else is in this module: the heads, and the matrix
A~ = D^-1/2 (A + I) D^-1/2 with the degrees D of A + I, as in GCN (section 4.1), built once per batch for all layers.
"""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch_geometric.data import Data

from graphbench import GraphBatch, LayerTrace, Traced
from graphbench.contracts.devices import is_apple
from graphbench.contracts.kernels import in_program
from graphbench.errors import BadInput, check_choice, check_range
from graphbench.nn import DenseLayout, gcn_edges, mixed_values

Terms = Literal["both", "flow", "adjacency"]


_FIELD = "normalised_adjacency"


@dataclass(frozen=True)
class NormalisedAdjacency:
    """A~ of all graphs of a batch as one block-diagonal matrix of compressed rows, with its transpose.

    A product with compressed rows took 1.4 ms forward and backward, gathering and scattering the edges 17 ms (32 graphs
    of 119 nodes and 5,950 edges, width 40, one CPU core). Building both matrices takes as long as one of the latter.

    Args:
        matrix: A~ `[T, T]`, compressed rows; entry (i, j) belongs to edge j -> i.
        transposed: its transpose, also in compressed rows, for the backward pass.

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

        Every node gets a loop unless it has one; parallel edges add up. In directed graphs D counts incoming edges.

        Args:
            edge_index: `[2, E]`, sources and targets.
            num_nodes: T.
            dtype: dtype of the entries, float32 or float64.
        """
        edges, weights = gcn_edges(edge_index, num_nodes, dtype)
        shape = (num_nodes, num_nodes)
        return cls(
            _compressed_rows(edges[1], edges[0], weights, shape), _compressed_rows(edges[0], edges[1], weights, shape)
        )

    def mix(self, x: Tensor) -> Tensor:
        """Compute A~ x of nodes `[T, d]`, in the dtype of `x`; half precision is computed in float32."""
        with torch.autocast(x.device.type, enabled=False):
            mixed: Tensor = _Product.apply(x.to(self.matrix.dtype), self)
        return mixed.to(x.dtype)


def with_adjacency(batch: GraphBatch, dtype: torch.dtype) -> GraphBatch:
    """Return a shallow copy of the batch with its A~, shared by all layers; unchanged if no matrix is built."""
    if in_program() or not _has_compressed_rows(batch.ptr.device):
        return batch
    shared: GraphBatch = copy.copy(batch)
    shared[_FIELD] = NormalisedAdjacency.from_edges(*_graph(batch), dtype)
    return shared


def adjacency_of(batch: Data, dtype: torch.dtype) -> NormalisedAdjacency:
    """Return A~ of the batch: the stored one, or a new one."""
    shared: NormalisedAdjacency | None = batch.get(_FIELD, None)
    if shared is None or shared.matrix.dtype != dtype:
        return NormalisedAdjacency.from_edges(*_graph(batch), dtype)
    return shared


def adjacency_dtype(x: Tensor) -> torch.dtype:
    """Return float64 for float64 nodes, else float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def edge_mask(batch: Data, layout: DenseLayout) -> Tensor:
    """Mark the nodes (columns) from which each node (row) has an edge, itself included: bool `[B, 1, N, N]`."""
    size = layout.max_nodes
    # Slots are numbered over all graphs: a target's is already its row of B N, a source's is reduced to a column.
    source, target = layout.index[_graph(batch)[0]]
    mask = torch.eye(size, dtype=torch.bool, device=source.device).repeat(layout.num_graphs, 1)
    mask[target, source % size] = True
    return mask.view(layout.num_graphs, 1, size, size)


def _graph(batch: Data) -> tuple[Tensor, int]:
    """Return the edges and the number of nodes."""
    if batch.edge_index is None or batch.num_nodes is None:
        raise BadInput("The batch must have edge_index [2, E] and its number of nodes (x, batch or num_nodes).")
    return batch.edge_index, int(batch.num_nodes)


def _has_compressed_rows(device: torch.device) -> bool:
    """Return whether PyTorch multiplies matrices of compressed rows on a device: not on Apple's GPUs or `meta`."""
    return device.type != "meta" and not is_apple(device)


def _compressed_rows(row: Tensor, column: Tensor, weights: Tensor, shape: tuple[int, int]) -> Tensor:
    """Build the matrix `[T, T]` with entries `weights [E]` at these rows and columns `[E]`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)", category=UserWarning)
        # Parallel edges are not merged, since products add them up and merging would wait for the device.
        rows, order = row.sort(stable=True)
        starts = torch._convert_indices_from_coo_to_csr(rows, shape[0])
        return torch.sparse_csr_tensor(starts, column[order], weights[order], shape, check_invariants=False)


class _Product(torch.autograd.Function):
    """A~ x; the backward pass uses the stored transpose."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, adjacency: NormalisedAdjacency) -> Tensor:
        """`[T, d]`."""
        ctx.adjacency = adjacency
        return adjacency.matrix @ x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        """A~^T upstream."""
        with torch.autocast(upstream.device.type, enabled=False):  # a backward pass may run inside autocast
            return ctx.adjacency.transposed @ upstream.contiguous(), None


def _mix_neighbours(values: Tensor, batch: Data) -> Tensor:
    """Return A~ V of values `[T, H dim]`."""
    dtype = adjacency_dtype(values)
    if not in_program() and _has_compressed_rows(values.device):
        return adjacency_of(batch, dtype).mix(values)
    edges, weights = gcn_edges(*_graph(batch), dtype)
    if not _has_compressed_rows(values.device):
        sent = values.to(dtype).index_select(0, edges[0]) * weights[:, None]
        return torch.zeros_like(values, dtype=dtype).index_add(0, edges[1], sent).to(values.dtype)
    mixed: Tensor = _multiply(values.to(dtype), edges, weights)
    return mixed.to(values.dtype)


@torch.library.custom_op("graphbench_sfi_former::multiply", mutates_args=())
def _multiply(x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
    """`sum_(j -> i) w_ij x_j` `[T, d]` by a matrix of compressed rows."""
    return _compressed_rows(edges[1], edges[0], weights, (len(x), len(x))) @ x


@_multiply.register_fake
def _(x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _multiply_gradients(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
    edges, weights = ctx.saved_tensors
    return _multiply(upstream.contiguous(), edges.flip(0), weights), None, None


_multiply.register_autograd(
    _multiply_gradients, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[1:])
)


class Heads(nn.Module):
    """Several linear maps with bias in one product, each to H heads.

    Args:
        dim: width of the nodes.
        num_heads: heads H.
        num_maps: how many maps.
        head_dim: width of a head.
    """

    def __init__(self, dim: int, num_heads: int, num_maps: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads, self.num_maps = num_heads, num_maps
        self.linear = nn.Linear(dim, num_maps * num_heads * head_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map nodes `[T, dim]` to `[T, num_maps H head_dim]`."""
        projected: Tensor = self.linear(x)
        return projected

    def split(self, projected: Tensor, layout: DenseLayout) -> list[tuple[Tensor, ...]]:
        """Split the result of `forward`: for each of `layout.blocks` one padded `[b, H, n, head_dim]` per map."""
        return layout.to_block_heads(projected, self.num_maps, self.num_heads)


class PaddedGraphs(NamedTuple):
    """Graphs of similar size, as inputs of an attention matrix.

    Args:
        layout: layout of these graphs only.
        maps: Q, K, V and other projections of the layer, `[B, H, N, dim]` each.
        mask: allowed sources, bool, broadcastable to `[B, H, N, N]`; None for all.
        friction: given frictions `[B, H or 1, N, N]`.
        num_nodes: nodes of each graph `[B, 1, 1, 1]`, 1 if it has none.
        batch_ptr: first node of each graph of the whole batch, and the number of nodes `[graphs + 1]`.
    """

    layout: DenseLayout
    maps: tuple[Tensor, ...]
    mask: Tensor | None
    friction: Tensor | None
    num_nodes: Tensor
    batch_ptr: Tensor


class AdjacencyEnhancedAttention(Traced):
    """Equation (13) around any attention matrix; base of the sparse and the dense layer.

    `gamma = exp(log_gamma)` is positive, so `1 + gamma` never vanishes. It is initially 1; the paper gives no initial
    value.

    The published parameter counts have 2 dim + 2 numbers per layer that the maps of the paper do not explain. One is
    gamma. The others are our guess, `extra_parameters`: a scale and a shift of every output channel, initially 1 and 0,
    and a weight of A~, initially 1, so that an untrained layer is exactly equation (13).

    Args:
        dim: width of the nodes.
        num_heads: heads H.
        dropout: probability of dropping a weight of the flow; A~ keeps all its weights.
        terms: "both" as in the paper; "flow" for Z without A~ and gamma, "adjacency" for A~ only (table 3).
        extra_parameters: add the guessed parameters.
        head_dim: width of a head, by default dim as in the paper; GPS has dim / H.

    Raises:
        BadInput: no head, unknown `terms`, or `dropout` is not a probability below 1.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 4,
        dropout: float = 0.0,
        *,
        terms: Terms = "both",
        extra_parameters: bool = True,
        head_dim: int | None = None,
    ) -> None:
        super().__init__()
        check_range("dim", dim, at_least=1, whole=True)
        self.head_dim = dim if head_dim is None else head_dim
        check_range("head_dim", self.head_dim, at_least=1, whole=True)
        check_range("num_heads", num_heads, at_least=1, whole=True)
        check_range("dropout (of attention weights)", dropout, at_least=0, below=1)
        check_choice("terms", terms, ("both", "flow", "adjacency"))
        self.num_heads, self.dropout = num_heads, nn.Dropout(dropout)
        self.with_flow, self.with_adjacency = terms != "adjacency", terms != "flow"
        self.in_proj = Heads(dim, num_heads, 3 if self.with_flow else 1, self.head_dim)
        self.out_proj = nn.Linear(num_heads * self.head_dim, dim)
        self.log_gamma = nn.Parameter(torch.zeros(())) if terms == "both" else None
        weighted = extra_parameters and self.with_adjacency
        self.adjacency_weight = nn.Parameter(torch.ones(())) if weighted else None
        self.scale = nn.Parameter(torch.ones(dim)) if extra_parameters else None
        self.shift = nn.Parameter(torch.zeros(dim)) if extra_parameters else None

    @abstractmethod
    def mix(self, graphs: PaddedGraphs) -> Tensor:
        """Return Z V, `[B, H, N, dim]`, with dropout while training."""

    @abstractmethod
    def weights(self, graphs: PaddedGraphs) -> Tensor:
        """Return Z, `[B, H, N, N]`, without dropout."""

    def mix_all(self, padded: list[PaddedGraphs]) -> list[Tensor]:
        """Return Z V of every group of graphs, for layers that need all groups of a pass."""
        return [self.mix(graphs) for graphs in padded]

    def sources(self, batch: Data, layout: DenseLayout) -> Tensor | None:
        """Return the graph of the flow if `forward` gets none, bool `[B, 1, N, N]`; None for all nodes."""
        return None

    @property
    def gamma(self) -> Tensor | None:
        """Weight of the flow relative to A~; None if the layer has only one of them."""
        return None if self.log_gamma is None else self.log_gamma.exp()

    @property
    def projections(self) -> tuple[Heads, ...]:
        """Maps of the nodes; the first gives Q, K and V, or only V if there is no flow."""
        return (self.in_proj,)

    def forward(
        self,
        x: Tensor,
        batch: Data,
        layout: DenseLayout | None = None,
        graph: Tensor | None = None,
        friction: Tensor | None = None,
    ) -> Tensor:
        """Mix nodes within each graph.

        Args:
            x: nodes `[T, dim]`.
            batch: the graphs, a batch of PyG or of graphbench; A~ is built from their edges.
            layout: places of nodes in padded graphs; by default built from the batch. Layers may share one.
            graph: graph of the flow, bool `[B, H or 1, N, N]`: whether the node of a row may receive flow from that of
                a column; by default from all. Rows without a source get a flow of 0.
            friction: given frictions, non-negative `[B, H or 1, N, N]`, for layers that do not learn their own.

        Returns:
            `[T, dim]`, without the residual branch.
        """
        layout = DenseLayout.from_batch(batch) if layout is None else layout
        graph = self.sources(batch, layout) if graph is None else graph
        projected = [project(x) for project in self.projections]
        padded = self._padded(projected, layout, graph, friction) if self.with_flow else []
        flow = layout.from_block_heads(self.mix_all(padded)) if padded else None
        # W_O is linear and shared by both terms of equation (13), so it is applied once to their sum.
        out = self.out_proj(self._balance(flow, projected[0], batch))
        if self.scale is not None and self.shift is not None:
            out = torch.addcmul(self.shift, out, self.scale)
        self.trace(lambda: self._record(x, layout, padded, out))
        return out

    def _padded(
        self,
        projected: list[Tensor],
        layout: DenseLayout,
        graph: Tensor | None,
        friction: Tensor | None,
    ) -> list[PaddedGraphs]:
        """Pad the graphs of the batch in groups of similar size."""
        padded = []
        each = [heads.split(rows, layout) for heads, rows in zip(self.projections, projected, strict=True)]
        for block, *parts in zip(layout.blocks, *each, strict=True):
            part, allowed, maps = block.layout, block.take_pairs(graph), tuple(chain.from_iterable(parts))
            # Only padded keys are hidden: the rows of padded queries are dropped by `from_block_heads`.
            mask = None if part.is_full else part.mask[:, None, None, :]
            if allowed is not None:
                mask = allowed if mask is None else mask & allowed
            num_nodes = part.divisors[:, None, None, None]
            padded.append(PaddedGraphs(part, maps, mask, block.take_pairs(friction), num_nodes, layout.ptr))
        return padded

    def _balance(self, flow: Tensor | None, projected: Tensor, batch: Data) -> Tensor:
        """Compute (A~ V + gamma Z V) / (1 + gamma) `[T, H dim]`, or only one of the terms."""
        if not self.with_adjacency:
            assert flow is not None
            return flow
        # V is the last map of `in_proj`, whether or not Q and K precede it.
        values = projected[:, -self.out_proj.in_features :]
        near = _mix_neighbours(values, batch)
        if self.adjacency_weight is not None:
            near = near * self.adjacency_weight
        gamma = self.gamma
        if gamma is None or flow is None:
            return near
        return (near + gamma * flow) / (1 + gamma)

    @torch.no_grad()
    def _record(self, x: Tensor, layout: DenseLayout, padded: list[PaddedGraphs], out: Tensor) -> LayerTrace:
        """Record a trace: `attention` contains the flows Z, `values` what they mix, `mixing_weight` is gamma.

        `attention` is omitted if the iteration has left negative flows, which the optimum never has: diagnostics read
        weights.
        """
        attention = layout.matrices_of_graphs([self.weights(graphs) for graphs in padded]) if padded else []
        shown = bool(attention) and all(bool((matrix >= 0).all()) for matrix in attention)
        w_value = self.in_proj.linear.weight[-self.out_proj.in_features :]
        # The guessed scale follows W_O and is folded into it; the shift is not part of any node's value.
        w_out = self.out_proj.weight if self.scale is None else self.scale[:, None] * self.out_proj.weight
        gamma = self.gamma
        return LayerTrace(
            tokens=out.detach(),
            batch=layout.graph_of,
            values=mixed_values(x, w_value, w_out, self.num_heads),
            attention=attention if shown else None,
            num_nodes=layout.ptr.diff(),
            input=x,
            mixing_weight=None if gamma is None else gamma.detach(),
        )
