"""Local (message passing) branches of a layer, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINEConv

from graphbench.errors import BadInput
from graphbench.nn.gated_gcn import GatedGCNLayer
from graphbench.nn.norms import NormName, make_norm

LocalName = Literal["GatedGCN", "GINE", "GCN", "GAT", "none"]
#: Layers that read edge vectors.
EDGE_LAYERS = ("GatedGCN", "GINE", "GAT")


class ConvLayer(nn.Module):
    """`x + Drop(act(Norm(conv(x))))` around a convolution of PyG; edges pass unchanged.

    Args:
        conv: maps `[num_nodes, dim]` to the same shape.
        dim: width of the nodes.
        dropout: probability of dropout before the residual.
        norm: batch, layer or none.
        residual: add `x`.
        reads_edges: the convolution takes edge vectors of width `dim`.
        activation: act of the equation; None for the identity.
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
    ) -> None:
        super().__init__()
        self.conv = conv
        self.norm = make_norm(norm, dim)
        self.dropout = dropout
        self.residual = residual
        self.reads_edges = reads_edges
        self.activation = activation

    def forward(
        self, x: Tensor, edge_index: Tensor, edge: Tensor | None, distances: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Nodes `[num_nodes, dim]` after one round of messages, and the edges as they came."""
        new = self.norm(self.conv(x, edge_index, edge) if self.reads_edges else self.conv(x, edge_index))
        if self.activation is not None:
            new = self.activation(new)
        new = F.dropout(new, self.dropout, self.training)
        return (x + new if self.residual else new), edge


def make_local_layer(
    name: LocalName,
    dim: int,
    num_heads: int = 1,
    dropout: float = 0.0,
    norm: NormName = "batch",
    gated_by_distance: bool = False,
) -> nn.Module | None:
    """The local layer called `name`, with its own residual: `(x, edge_index, edge, distances) -> (x, edge)`.

    Args:
        name: GatedGCN (`5 dim^2 + 9 dim` parameters), GINE (`2 dim^2 + 2 dim`), GCN, GAT or none.
        dim: width of nodes and edges.
        num_heads: heads of GAT.
        dropout: probability of dropout before the residual.
        norm: norm inside GatedGCN; the others have none.
        gated_by_distance: multiply GatedGCN's gates by a function of distances (ES-LapPE).

    Returns:
        The layer, or None for "none".

    Raises:
        BadInput: the name is not known, GAT's heads do not divide `dim`, or another layer than GatedGCN is asked for
            distance gates.
    """
    if gated_by_distance and name != "GatedGCN":
        raise BadInput(f"Only the local layer GatedGCN can be gated by distances (gate_encoder), but got {name!r}.")
    if name == "none":
        return None
    if name == "GatedGCN":
        return GatedGCNLayer(dim, dropout, norm, gated_by_distance=gated_by_distance)
    if name == "GINE":
        mlp = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        return ConvLayer(GINEConv(mlp), dim, dropout, reads_edges=True)
    if name == "GCN":
        return ConvLayer(GCNConv(dim, dim), dim, dropout)
    if name == "GAT":
        if dim % num_heads:
            raise BadInput(f"num_heads must divide the width, but got num_heads={num_heads} and width {dim}.")
        conv = GATConv(dim, dim // num_heads, num_heads, edge_dim=dim)
        return ConvLayer(conv, dim, dropout, reads_edges=True)
    raise BadInput(f"local_layer must be GatedGCN, GINE, GCN, GAT or none, but got {name!r}.")
