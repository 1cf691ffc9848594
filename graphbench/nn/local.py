"""Local (message-passing) branches of a layer, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, get_args

from torch import Tensor, nn
from torch_geometric.nn import AntiSymmetricConv, GINConv, GINEConv, MessagePassing, SAGEConv

from graphbench.errors import BadInput, check_choice, check_range
from graphbench.nn.convolution import GCNConvolution, GINEConvolution, GraphConvolution, LoopedGATConv
from graphbench.nn.feed_forward import ACTIVATIONS, Activation
from graphbench.nn.gated_gcn import GatedGCNLayer
from graphbench.nn.norms import NormName, make_norm

LocalName = Literal["GatedGCN", "GINE", "GCN", "GAT", "none"]
#: Where a layer `x' = x + f(x)` applies dropout: to the branch, `x + Drop(f(x))` (GraphGPS); to the output,
#: `Drop(x + f(x))`; or to the input of f, `x + f(Drop(x))`. "Benchmarking Graph Neural Networks" uses the last two.
DropoutPlace = Literal["branch", "output", "input"]
#: Convolutions that accept sources and targets separately, as a pair.
_TWO_SIDED = (SAGEConv, GINConv, GINEConv, GCNConvolution)
#: Layers that read edge vectors.
EDGE_LAYERS = ("GatedGCN", "GINE", "GAT")


class ConvLayer(nn.Module):
    """A residual layer around a PyG convolution; edges pass through unchanged.

    `x + Drop(act(Norm(conv(x))))` unless the options say otherwise.

    Args:
        conv: maps `[num_nodes, dim]` to the same shape.
        dim: width of the nodes.
        dropout: probability of dropout.
        norm: batch, layer or none.
        residual: add `x`.
        reads_edges: the convolution accepts edge vectors of width `dim`.
        activation: act in the equation; None for the identity.
        drops: where dropout is applied, see `DropoutPlace`.
        activation_first: compute `Norm(act(conv(x)))` instead.

    Raises:
        BadInput: `drops` is unknown.

    Examples:
        >>> import torch
        >>> layer = ConvLayer(GraphConvolution(8, 8), 8, norm="batch", activation=torch.relu)
        >>> x, edge = layer(torch.randn(3, 8), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), None)
        >>> x.shape, edge
        (torch.Size([3, 8]), None)
    """

    def __init__(
        self,
        conv: nn.Module,
        dim: int,
        dropout: float = 0.0,
        norm: NormName = "none",
        residual: bool = True,
        reads_edges: bool = False,
        activation: Callable[[Tensor], Tensor] | None = None,
        drops: DropoutPlace = "branch",
        activation_first: bool = False,
    ) -> None:
        super().__init__()
        check_choice("drops", drops, get_args(DropoutPlace))
        self.conv = conv
        self.norm = make_norm(norm, dim)
        self.dropout = nn.Dropout(dropout)
        self.residual = residual
        self.reads_edges = reads_edges
        self.activation = activation
        self.drops = drops
        self.activation_first = activation_first

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge: Tensor | None,
        distances: Tensor | None = None,
        num_targets: int | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return nodes `[num_nodes, dim]` after one round of messages, and the edges unchanged.

        If edges lead only to the first `num_targets` nodes, convolutions with separate sources compute only these.
        """
        entering: Any = self._drop(x, "input")
        if num_targets is not None and isinstance(self.conv, _TWO_SIDED):
            entering, x = (entering, entering[:num_targets]), x[:num_targets]
        new = self.conv(entering, edge_index, edge) if self.reads_edges else self.conv(entering, edge_index)
        new = self.norm(self._act(new)) if self.activation_first else self._act(self.norm(new))
        new = self._drop(new, "branch")
        return self._drop(x + new if self.residual else new, "output"), edge

    def _act(self, x: Tensor) -> Tensor:
        return x if self.activation is None else self.activation(x)

    def _drop(self, x: Tensor, place: DropoutPlace) -> Tensor:
        return self.dropout(x) if place == self.drops else x


def as_local_layer(layer: nn.Module, dim: int, dropout: float = 0.0) -> nn.Module:
    """Return a local layer unchanged, and a PyG convolution wrapped in the residual layer `x + Drop(conv(x))`.

    Args:
        layer: maps `(x, edge_index, edge, distances)` to nodes and edges, like the layers of `make_local_layer`; or a
            convolution that maps `(x, edge_index)` or `(x, edge_index, edge_attr)` to `[num_nodes, dim]`. Edge vectors
            are passed if it accepts `edge_attr`, unless it was created with `edge_dim=None`.
        dim: width of nodes and edges.
        dropout: probability of dropout before the residual of a convolution.

    Examples:
        >>> import torch
        >>> from torch_geometric.nn import GATv2Conv
        >>> layer = as_local_layer(GATv2Conv(8, 4, heads=2, edge_dim=8), dim=8)
        >>> layer(torch.randn(3, 8), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.randn(4, 8))[0].shape
        torch.Size([3, 8])
    """
    if not isinstance(layer, (MessagePassing, AntiSymmetricConv)):
        return layer
    takes_edges = "edge_attr" in inspect.signature(layer.forward).parameters
    # Without a width for edges a convolution accepts none, whatever its signature says.
    without = any(getattr(layer, option, dim) is None for option in ("edge_dim", "in_edge_channels"))
    return ConvLayer(layer, dim, dropout, reads_edges=takes_edges and not without)


def make_local_layer(
    name: LocalName,
    dim: int,
    num_heads: int = 1,
    dropout: float = 0.0,
    norm: NormName = "batch",
    gated_by_distance: bool = False,
    activation: Activation = "relu",
) -> nn.Module | None:
    """Create the local layer called `name`, residual included: `(x, edge_index, edge, distances) -> (x, edge)`.

    Args:
        name: GatedGCN (`5 dim^2 + 9 dim` parameters), GINE (`2 dim^2 + 2 dim`), GCN, GAT or none.
        dim: width of nodes and edges.
        num_heads: heads of GAT.
        dropout: probability of dropout before the residual.
        norm: norm inside GatedGCN; the others have none.
        gated_by_distance: multiply GatedGCN's gates by a function of distances (ES-LapPE).
        activation: relu or gelu, in GatedGCN and in GINE's MLP; GCN and GAT do not use it.

    Returns:
        The layer, or None for "none".

    Raises:
        BadInput: the name or the activation is unknown, GAT's heads do not divide `dim`, or distance gates are
            requested for a layer other than GatedGCN.

    Examples:
        >>> import torch
        >>> layer = make_local_layer("GAT", 8, num_heads=2)
        >>> x, edge = layer(torch.randn(3, 8), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.randn(4, 8))
        >>> x.shape, edge.shape
        (torch.Size([3, 8]), torch.Size([4, 8]))
    """
    check_choice("local_layer", name, get_args(LocalName))
    check_choice("activation", activation, ACTIVATIONS)
    if gated_by_distance and name != "GatedGCN":
        raise BadInput(f"Only the local layer GatedGCN can be gated by distances (gate_encoder), but got {name!r}.")
    if name == "none":
        return None
    if name == "GatedGCN":
        return GatedGCNLayer(
            dim, dropout, norm, gated_by_distance=gated_by_distance, activation=ACTIVATIONS[activation]
        )
    if name == "GINE":
        # Without the batch norm that is usual in GIN's MLPs: GraphGPS has none here, the branch's norm follows.
        act = nn.GELU() if activation == "gelu" else nn.ReLU()
        mlp = nn.Sequential(nn.Linear(dim, dim), act, nn.Linear(dim, dim))
        return ConvLayer(GINEConvolution(mlp), dim, dropout, reads_edges=True)
    if name == "GCN":
        return ConvLayer(GraphConvolution(dim, dim), dim, dropout)
    check_range("num_heads", num_heads, at_least=1, whole=True)
    if dim % num_heads:
        raise BadInput(f"num_heads must divide the width, but got num_heads={num_heads} and width {dim}.")
    # The concatenated heads have width `dim`, so that the residual fits.
    conv = LoopedGATConv(dim, dim // num_heads, num_heads, edge_dim=dim)
    return ConvLayer(conv, dim, dropout, reads_edges=True)
