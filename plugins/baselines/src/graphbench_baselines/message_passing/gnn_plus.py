"""GNN+ and the re-tuned networks of LRGB: message passing inside the feed-forward blocks of transformers.

Luo et al., "Can Classic GNNs Be Strong Baselines for Graph-level Tasks?", ICML 2025, arXiv 2502.09263; Toenshoff et
al., "Where Did the Gap Go? Reassessing the Long-Range Graph Benchmark", TMLR 2024, arXiv 2309.00367.

Legend: node i receives from node j along edge j -> i; `edge_index` contains (j, i).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import scatter

from graphbench import BenchmarkSpec, GraphBatch, PositionalEncoder
from graphbench.encodings import RRWP
from graphbench.errors import BadInput, check_choice, check_range
from graphbench.nn import (
    Categorical,
    ConvLayer,
    FeedForward,
    GatedGCNLayer,
    GCNConvolution,
    GINEConvolution,
    NormName,
    gcn_edges,
    make_norm,
)
from graphbench_baselines.message_passing.network import MessagePassingNetwork

PlusLayerName = Literal["GCN", "GINE", "GatedGCN"]
PlusVersion = Literal["GNN+", "LRGB"]
Activation = Literal["relu", "gelu"]
_ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], type[nn.Module]]] = {
    "relu": (F.relu, nn.ReLU),
    "gelu": (F.gelu, nn.GELU),
}


class EdgeGCN(nn.Module):
    """GCN that reads edges, as used by the authors of GNN+: `conv(x)_i = sum_j ReLU(W x_j + e_ij) + b`.

    Unlike GCN it has no self-loops and no degrees: their code disables both if it reads edges. `dim^2 + dim`
    parameters.

    Args:
        dim: width of nodes and edges.

    Examples:
        >>> layer = EdgeGCN(8)
        >>> layer(torch.randn(3, 8), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.randn(4, 8)).shape
        torch.Size([3, 8])
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor, edge_index: Tensor, edge: Tensor) -> Tensor:
        """Return nodes `[num_nodes, dim]` from nodes and edges `[num_edges, dim]`."""
        messages = F.relu(self.linear(x).index_select(0, edge_index[0]) + edge)
        precise = messages.to(torch.promote_types(messages.dtype, torch.float32))  # bfloat16 sums may end at 256
        return scatter(precise, edge_index[1], 0, x.shape[0], reduce="sum").to(messages.dtype) + self.bias


class EdgeWalks(nn.Module):
    """Edge vectors plus `W p_e + b`, p_e the probabilities of walks between the ends of the edge (`RRWP`).

    Args:
        features: computes the edge vectors `[num_edges, dim]`.
        dim: their width.
        num_steps: longest walk.
        bias: add b; if the features are a linear map, its bias is b, and no second one is needed.
    """

    def __init__(self, features: nn.Module, dim: int, num_steps: int, bias: bool) -> None:
        super().__init__()
        self.encodings = (RRWP(num_steps, rows="edges"),)
        self.features = features
        self.walks = nn.Linear(num_steps, dim, bias=bias)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return vectors of all edges `[num_edges, dim]`."""
        out: Tensor = self.features(batch) + self.walks(batch.edge_rrwp.to(self.walks.weight.dtype))
        return out


class PlusLayer(nn.Module):
    """A residual message passing layer, then a feed-forward network with a norm on either side.

        y = Norm(message(x))        x' = Norm(y + FFN(y)),      FFN of width 2 dim

    The norm of y comes after the residual of the message passing layer, which has another norm inside.

    Args:
        message: `(x, edge_index, edge) -> (x, edge)`, with its residual.
        dim: width of the nodes.
        dropout: probability of dropout in the feed-forward network.
        norm: batch, layer or none.
        activation: activation of the feed-forward network.
    """

    def __init__(self, message: nn.Module, dim: int, dropout: float, norm: NormName, activation: Activation) -> None:
        super().__init__()
        self.message = message
        self.message_norm = make_norm(norm, dim)
        self.feed_forward = FeedForward(dim, 2 * dim, dropout, activation)
        self.norm = make_norm(norm, dim)

    def forward(self, x: Tensor, edge_index: Tensor, edge: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return nodes `[num_nodes, dim]` and edges `[num_edges, dim]`, of the same shapes."""
        x, edge = self.message(x, edge_index, edge)
        x = self.message_norm(x)
        return self.norm(x + self.feed_forward(x)), edge


class GNNPlus(MessagePassingNetwork):
    """GCN+, GIN+ and GatedGCN+ (Luo et al., ICML 2025), and the networks of Toenshoff et al. (TMLR 2024).

    With act the activation, the layers are

        GCN         y = x + Drop(act(Norm(conv(x)))),   conv of `EdgeGCN`, or of GCN where edges are not read
        GINE        y = x + Drop(ReLU(MLP(x_i + sum_j ReLU(x_j + e_ij)))),  MLP of two maps with ReLU
        GatedGCN    that of `graphbench.nn.GatedGCNLayer`, always with ReLU: the released layer gets no other

    each followed by the feed-forward network of `PlusLayer` unless that is disabled. `version="LRGB"` is Toenshoff et
    al.: no feed-forward network, no norm in GCN, no edges in GCN, and `y = x + Drop(W2 Drop(act(W1 .)))` for GINE.
    Defaults are for GatedGCN+ on ZINC without encodings; the widths of the others are in the configurations.

    Time and memory: `B L (N + E) d^2`, `B L (N + E) d`.

    Args:
        spec: the benchmark's description.
        layer: GCN, GINE or GatedGCN.
        version: GNN+ or LRGB, see above.
        hidden_dim: width of nodes and edges.
        num_layers: layers.
        dropout: probability of every dropout.
        activation: relu or gelu, for the feed-forward network, GCN and LRGB's GINE.
        norm: batch, layer or none.
        residual: add each message passing layer's input to its output, also for edges of GatedGCN, which the released
            networks of LRGB always add (no published run is without residuals).
        feed_forward: a feed-forward network after each layer; LRGB has none.
        edge_features: read the benchmark's edge features. Without them GCN reads no edges, and for GINE and GatedGCN
            all edges share one learned row.
        edge_walks: longest random walk between the ends of an edge whose probabilities are added to the edge's vector;
            0 for none. The released GNN+ does so whenever it has RWSE, except on peptides.
        positional_encoders: outputs are concatenated to the node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is unknown, LRGB is used with `feed_forward`, or `edge_walks` with layers without edges.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = GNNPlus(tiny_spec(), layer="GCN", hidden_dim=16, num_layers=2, edge_walks=4)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        layer: PlusLayerName = "GatedGCN",
        version: PlusVersion = "GNN+",
        hidden_dim: int = 70,
        num_layers: int = 9,
        dropout: float = 0.05,
        activation: Activation = "relu",
        norm: NormName = "batch",
        residual: bool = True,
        feed_forward: bool = True,
        edge_features: bool = True,
        edge_walks: int = 0,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        check_choice("layer", layer, get_args(PlusLayerName))
        check_choice("version", version, get_args(PlusVersion))
        check_choice("activation", activation, _ACTIVATIONS)
        check_range("edge_walks", edge_walks, at_least=0, whole=True)
        plus = version == "GNN+"
        if feed_forward and not plus:
            raise BadInput("The networks of version=LRGB have no feed-forward network: set feed_forward=false.")
        reads_edges = layer != "GCN" or (plus and edge_features)
        if edge_walks and not reads_edges:
            raise BadInput(f"edge_walks={edge_walks} has no effect: layer=GCN reads no edges with these options.")

        def make_layer() -> nn.Module:
            act, act_module = _ACTIVATIONS[activation]
            message: nn.Module
            conv: nn.Module
            if layer == "GatedGCN":
                message = GatedGCNLayer(hidden_dim, dropout, norm, residual)  # ReLU, whatever `activation` is
            elif layer == "GINE":
                conv = GINEConvolution(_plus_mlp(hidden_dim) if plus else _lrgb_mlp(hidden_dim, dropout, act_module))
                # LRGB's MLP ends with dropout, and nothing follows it.
                last, rate = (F.relu, dropout) if plus else (None, 0.0)
                message = ConvLayer(conv, hidden_dim, rate, "none", residual, True, activation=last)
            else:
                conv = EdgeGCN(hidden_dim) if reads_edges else GCNConvolution(hidden_dim, hidden_dim, normalize=False)
                # GCN+ has a norm before the activation, and `PlusLayer` another one after the residual.
                conv_norm: NormName = norm if plus else "none"
                message = ConvLayer(conv, hidden_dim, dropout, conv_norm, residual, True, activation=act)
            return PlusLayer(message, hidden_dim, dropout, norm, activation) if feed_forward else message

        super().__init__(
            spec,
            hidden_dim,
            num_layers,
            make_layer,
            positional_encoders,
            categorical,
            reads_edges,
            edge_features,
            make_edges=None if reads_edges else gcn_edges,
        )
        if edge_walks and self.edge_encoder is not None:
            linear = edge_features and spec.edge.dense > 0
            self.edge_encoder = EdgeWalks(self.edge_encoder, hidden_dim, edge_walks, bias=not linear)


def _plus_mlp(dim: int) -> nn.Module:
    return nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))


def _lrgb_mlp(dim: int, dropout: float, activation: type[nn.Module]) -> nn.Module:
    drop = nn.Dropout(dropout)
    return nn.Sequential(nn.Linear(dim, dim), activation(), drop, nn.Linear(dim, dim), nn.Dropout(dropout))
