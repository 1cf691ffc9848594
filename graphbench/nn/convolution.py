"""PyG's convolutions with sums from `ops`, and the edges they need, computed once per batch for all layers.

PyG's convolutions normalise edges and add self-loops in every layer, and on a GPU each of these calls waits for the
device to read how many loops a graph already has. Here existing loops get the weight 0 and every node gets a new one,
so that nothing is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import nn as pyg
from torch_geometric.utils import degree

from graphbench.nn.ops import sum_neighbours, sum_rectified


def gcn_edges(
    edge_index: Tensor,
    num_nodes: int,
    dtype: torch.dtype = torch.float32,
    self_loops: bool = True,
    mean: bool = False,
    arriving: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return edges of graph convolutions and their weights `1 / sqrt(d_i d_j)`, with d the number of incoming edges.

    The result is that of PyG's `gcn_norm` (Kipf & Welling 2017), for `GCNConv(normalize=False)`, except for edges of
    weight 0 at the graph's original self-loops.

    Args:
        edge_index: sources and targets `[2, E]`.
        num_nodes: T.
        dtype: dtype of the weights; degrees are counted in float32 at least.
        self_loops: give every node one loop, even if the graph has none or several; False leaves edges unchanged.
        mean: use weights `1 / d_i` at the target i, which gives the mean over neighbours.
        arriving: degrees `[T]` from `count_arriving`, if the edges are only a part of a graph's.

    Returns:
        Edges `[2, E + T]`, or `[2, E]` without loops, and a weight for each; 0 if the target or the source has no
        incoming edge.

    Examples:
        >>> index, weight = gcn_edges(torch.tensor([[0, 1, 1], [1, 0, 1]]), 2)
        >>> index
        tensor([[0, 1, 1, 0, 1],
                [1, 0, 1, 0, 1]])
        >>> weight
        tensor([0.5000, 0.5000, 0.0000, 0.5000, 0.5000])
    """
    edge_index, weight = _with_loops(edge_index, num_nodes, dtype, self_loops)
    if arriving is None:
        arriving = weight.new_zeros(num_nodes).index_add_(0, edge_index[1], weight)
    arriving = arriving.to(weight.dtype)
    if mean:
        return edge_index, (weight / arriving.clamp(min=1)[edge_index[1]]).to(dtype)
    scale = arriving.rsqrt().masked_fill(arriving == 0, 0.0)  # rsqrt(0) is infinite, and 0 times it is NaN
    return edge_index, (scale[edge_index[0]] * weight * scale[edge_index[1]]).to(dtype)


def count_arriving(edge_index: Tensor, num_nodes: int, self_loops: bool = True) -> Tensor:
    """Count the incoming edges of each node as `gcn_edges` does, float32 `[T]`.

    Examples:
        >>> count_arriving(torch.tensor([[0, 1, 1], [1, 0, 1]]), 2)
        tensor([2., 2.])
    """
    edge_index, weight = _with_loops(edge_index, num_nodes, torch.float32, self_loops)
    return weight.new_zeros(num_nodes).index_add_(0, edge_index[1], weight)


def _with_loops(edge_index: Tensor, num_nodes: int, dtype: torch.dtype, self_loops: bool) -> tuple[Tensor, Tensor]:
    """Return the edges of `gcn_edges` before they are normalised, with weights of 1 and 0."""
    # bfloat16 counts exactly only to 256, float16 to 2,048: hubs have more neighbours.
    precision = torch.promote_types(dtype, torch.float32)
    weight = torch.ones(edge_index.shape[1], dtype=precision, device=edge_index.device)
    if self_loops:
        loops = torch.arange(num_nodes, device=edge_index.device)
        weight = torch.cat([weight.masked_fill(edge_index[0] == edge_index[1], 0.0), weight.new_ones(num_nodes)])
        edge_index = torch.cat([edge_index, loops.expand(2, -1)], dim=1)
    return edge_index, weight


class GCNConvolution(pyg.GCNConv):
    """PyG's `GCNConv`, computed by `sum_neighbours`; arguments are PyG's.

    Examples:
        >>> index, weight = gcn_edges(torch.tensor([[0, 1], [1, 0]]), 2)
        >>> GCNConvolution(4, 8, normalize=False)(torch.randn(2, 4), index, weight).shape
        torch.Size([2, 8])
    """

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Return nodes `[T, out_channels]`; `x` as in PyG, or a pair: all nodes, and the first T as targets."""
        if not self.normalize and isinstance(x, tuple):  # W sum_j w_ij x_j: one product per target, none per source
            new = self.lin(sum_neighbours(x[0], edge_index, edge_weight)[: len(x[1])])
        elif self.normalize or not _are_nodes_and_edges(x, edge_index):
            return super().forward(x, edge_index, edge_weight)
        else:
            new = sum_neighbours(self.lin(x), edge_index, edge_weight)
        return new if self.bias is None else new + self.bias


class GINConvolution(pyg.GINConv):
    """PyG's `GINConv`, computed by `sum_neighbours`; arguments are PyG's.

    Examples:
        >>> GINConvolution(torch.nn.Identity())(torch.eye(2), torch.tensor([[0], [1]]))
        tensor([[1., 0.],
                [1., 1.]])
    """

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """Return nodes `[T, out_channels]`; arguments are PyG's."""
        if size is not None or not _are_nodes_and_edges(x, edge_index):
            return super().forward(x, edge_index, size)
        return self.nn(_with_own(sum_neighbours, self, x, edge_index))


class GINEConvolution(pyg.GINEConv):
    """PyG's `GINEConv`, computed by `sum_rectified`; arguments are PyG's.

    Examples:
        >>> GINEConvolution(torch.nn.Identity())(torch.eye(2), torch.tensor([[0], [1]]), torch.tensor([[-3.0, 2.0]]))
        tensor([[1., 0.],
                [0., 3.]])
    """

    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor | None = None, size: Any = None) -> Tensor:
        """Return nodes `[T, out_channels]`; arguments are PyG's."""
        if size is None and edge_attr is not None and _are_nodes_and_edges(x, edge_index):
            edges: Tensor = edge_attr if self.lin is None else self.lin(edge_attr)
            if edges.shape[-1] == x.shape[-1]:
                return self.nn(_with_own(sum_rectified, self, x, edge_index, edges))
        return super().forward(x, edge_index, edge_attr, size)  # which also reports mismatched shapes


def _with_own(sums: Callable[..., Tensor], conv: GINConvolution | GINEConvolution, x: Tensor, *edges: Tensor) -> Tensor:
    """Return `(1 + eps) x_i` plus the incoming messages; a fixed eps is a Python number and part of the sum."""
    if "eps" not in conv._buffers:  # eps is learned; FSDP replaces the parameter by a view of its shard
        return sums(x, *edges) + (1 + conv.eps) * x
    return sums(x, *edges, own=1 + conv.initial_eps)


def _are_nodes_and_edges(x: Any, edge_index: Any) -> bool:
    """Distinguish nodes `[T, C]` and edges `[2, E]` from the pairs and sparse matrices that PyG also accepts."""
    tensors = isinstance(x, Tensor) and isinstance(edge_index, Tensor)
    return tensors and x.dim() == 2 and edge_index.layout is torch.strided


class GraphConvolution(GCNConvolution):
    """PyG's `GCNConv` with the same weights, which calls `gcn_edges` itself; for layers without prepared edges.

    Examples:
        >>> GraphConvolution(4, 8)(torch.randn(2, 4), torch.tensor([[0, 1], [1, 0]])).shape
        torch.Size([2, 8])
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, normalize=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        """Map nodes `[T, in_channels]` to `[T, out_channels]`."""
        return super().forward(x, *gcn_edges(edge_index, x.shape[0], x.dtype))


def loop_edges(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Give every node one self-loop `[2, E + T]`, without the sync of PyG's `add_remaining_self_loops`.

    Loops that the graph already has are moved to an extra node, number T, whose output must be dropped: their
    number is not read, and the messages to other nodes do not change.

    Examples:
        >>> loop_edges(torch.tensor([[0, 1], [1, 1]]), 2)
        tensor([[0, 2, 0, 1],
                [1, 2, 0, 1]])
    """
    moved = edge_index.masked_fill(edge_index[0] == edge_index[1], num_nodes)
    return torch.cat([moved, torch.arange(num_nodes, device=edge_index.device).expand(2, -1)], dim=1)


class LoopedGATConv(pyg.GATConv):
    """PyG's `GATConv` with the same self-loops and weights, which does not wait for the device.

    The vector of a loop is the mean of the node's incoming edge vectors, as in PyG by default.

    Examples:
        >>> conv = LoopedGATConv(8, 4, heads=2, edge_dim=8)
        >>> conv(torch.randn(2, 8), torch.tensor([[0, 1], [1, 1]]), torch.randn(2, 8)).shape
        torch.Size([2, 8])
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options, add_self_loops=False)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Return nodes `[T, heads * d]`; edges `[2, E]`, with vectors `[E, edge_dim]`, may include loops."""
        num_nodes = x.shape[0]
        index = loop_edges(edge_index, num_nodes)
        if edge_attr is not None:
            arrive = index[1, : edge_attr.shape[0]]
            rows = edge_attr.to(torch.promote_types(edge_attr.dtype, torch.float32))
            total = rows.new_zeros(num_nodes + 1, rows.shape[1]).index_add_(0, arrive, rows)
            # The extra node collects the moved loops; it is dropped, since loops do not count in their node's mean.
            mean = total / count_nodes(arrive, num_nodes + 1).clamp(min=1)[:, None]
            edge_attr = torch.cat([edge_attr, mean[:-1].to(edge_attr.dtype)])
        return super().forward(F.pad(x, (0, 0, 0, 1)), index, edge_attr)[:-1]


def count_nodes(index: Tensor, num_nodes: int) -> Tensor:
    """Count how often each node occurs in `index`, int64 `[num_nodes]`; `bincount` would wait for the device.

    Examples:
        >>> count_nodes(torch.tensor([0, 2, 2]), 4)
        tensor([1, 0, 2, 0])
    """
    return degree(index, num_nodes, torch.int64)
