"""SigGate-GT: attention with element-wise gated heads, after a sum over neighbours gated in the same way.

Guo, Wu & Yiu, "SigGate-GT: Taming Over-Smoothing in Graph Transformers via Sigmoid-Gated Attention", arXiv 2604.17324
(its second version is "Capacity-Controlled Global Attention for Graph Transformers"). Equations are those of the
released code, github.com/bettyguo/SigGate-GT.

Legend: T nodes of all graphs, H heads, d head width, dim = H d. Node i receives from node j along edge j -> i.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphbench import Architecture, BenchmarkSpec, GraphBatch, PositionalEncoder, Representation
from graphbench.nn import (
    BatchNorm,
    Categorical,
    DenseLayout,
    EdgeEncoder,
    FeedForward,
    MultiHeadAttention,
    NodeEncoder,
    gated_messages,
)

#: Initial bias of the gates: sigmoid(0.5) = 0.62, more open than closed.
GATE_BIAS = 0.5


class SigGateAttention(MultiHeadAttention):
    """Softmax attention within each graph, whose heads pass through gates set by the attending node.

        z_i = sum_j softmax_j(q_i . k_j / sqrt(d)) v_j        per head
        x'_i = O (z_i * sigmoid(W_g x_i + b_g))               O and W_g over all heads

    A row of softmax sums to one, so an open head always adds a mean of values; a closed one adds nothing.
    `5 dim^2 + 5 dim` parameters. The trace contains the values that attention mixes, before the gates.

    Args:
        dim: width of the nodes.
        num_heads: heads H; must divide `dim`.
        dropout: probability of dropping an attention weight.
        gated: False omits the gates and their `dim^2 + dim` parameters.

    Raises:
        BadInput: `num_heads` does not divide `dim`.

    Examples:
        >>> attention = SigGateAttention(8, num_heads=2)
        >>> attention(torch.randn(3, 8), torch.tensor([0, 0, 1])).shape
        torch.Size([3, 8])
    """

    def __init__(self, dim: int, num_heads: int, dropout: float = 0.0, gated: bool = True) -> None:
        super().__init__(dim, num_heads, dropout)
        self.in_proj.reset_parameters()  # initialise like four plain maps, not like torch's attention
        self.out_proj.reset_parameters()
        self.gate_map = nn.Linear(dim, dim) if gated else None
        if self.gate_map is not None:
            nn.init.xavier_uniform_(self.gate_map.weight)
            nn.init.constant_(self.gate_map.bias, GATE_BIAS)

    def gate(self, heads: Tensor, x: Tensor) -> Tensor:
        """Gate z, the concatenated heads `[T, dim]`, with the attending nodes `[T, dim]`."""
        return heads if self.gate_map is None else heads * self.gate_map(x).sigmoid()


class SigGateLayer(nn.Module):
    """Gated messages, gated attention and a feed-forward network, in sequence.

        s_ij = sigmoid(D x_i + E x_j + C e_ij)
        x    = Norm(x + Drop(ReLU(BN(A x_i + sum_j s_ij * B x_j / (sum_j s_ij + 1e-6)))))
        x    = Norm(x + Drop(attention(x)))
        x'   = Norm(x + Drop(W2 Drop(GELU(W1 x + b1)) + b2)),      Norm a LayerNorm, W1 to width 2 dim
        e'   = ReLU(BN(F s_ij + f))

    GraphGPS adds its two branches; here attention reads the output of messages, as in the released code. Edges have no
    residual and keep only their gates. `15 dim^2 + 24 dim` parameters with gates in attention.

    Args:
        dim: width of nodes and edges.
        num_heads: heads; must divide `dim`.
        dropout: probability of every Drop; applied twice to the branches of messages and of the network.
        attention_dropout: probability of dropping an attention weight.
        gated: whether attention has gates; messages always have gates.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float, attention_dropout: float, gated: bool) -> None:
        super().__init__()
        self.node_maps = nn.Linear(dim, 4 * dim)  # A, B, D, E
        self.edge_map, self.edge_out = nn.Linear(dim, dim), nn.Linear(dim, dim)  # C and F
        self.node_norm, self.edge_norm = BatchNorm(dim), BatchNorm(dim)
        self.attention = SigGateAttention(dim, num_heads, attention_dropout, gated)
        self.feed_forward = FeedForward(dim, 2 * dim, dropout, "gelu")
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, edge: Tensor, batch: GraphBatch, layout: DenseLayout) -> tuple[Tensor, Tensor]:
        """Return nodes `[T, dim]` and edges `[num_edges, dim]`."""
        summed, logits = gated_messages(self.node_maps(x), batch.edge_index, self.edge_map(edge), None)
        # Twice, as in the released code: in the network of messages, and before its residual.
        messages = self.dropout(self.dropout(self.node_norm(summed).relu()))
        x = self.norms[0](x + messages)
        x = self.norms[1](x + self.dropout(self.attention(x, layout)))
        x = self.norms[2](x + self.dropout(self.feed_forward(x)))
        return x, self.edge_norm(self.edge_out(logits.sigmoid())).relu()


class SigGateGT(Architecture):
    """SigGate-GT (Guo et al. 2026); defaults are the released ZINC model without positions.

    Time and memory: `B L ((N + E) d^2 + N^2 (d + H))`, `B L ((N + E) d + H N^2)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and edges.
        num_layers: layers.
        num_heads: heads; must divide `hidden_dim`.
        dropout: probability of every dropout except that of attention weights.
        attention_dropout: probability of dropping an attention weight.
        gated: False omits the gates of attention, as a control.
        positional_encoders: one linear map reads their outputs and the features, as if they were columns of one table.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: there is no layer, or `num_heads` does not divide `hidden_dim`.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = SigGateGT(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        num_layers: int = 10,
        num_heads: int = 8,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        gated: bool = True,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "one_hot",
    ) -> None:
        super().__init__(spec, hidden_dim)
        self.node_encoder = NodeEncoder(spec, hidden_dim, categorical=categorical)
        self.edge_encoder = EdgeEncoder(spec, hidden_dim, categorical)
        self.edge_dim = hidden_dim
        self.positional = nn.ModuleList(positional_encoders or ())
        width = sum(encoder.dim for encoder in positional_encoders or ())
        # Without a bias: the map of the features has one for both.
        self.position_map = nn.Linear(width, hidden_dim, bias=False) if width else None
        self.layers = nn.ModuleList(
            SigGateLayer(hidden_dim, num_heads, dropout, attention_dropout, gated) for _ in range(num_layers)
        )

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[T, hidden_dim]` and edges `[num_edges, hidden_dim]`."""
        x, edge = self.node_encoder(batch), self.edge_encoder(batch)
        if self.position_map is not None:
            # Encoders without weights return stored values, float32 whatever the model's precision.
            positions = torch.cat([encoder(batch) for encoder in self.positional], dim=-1)
            x = x + self.position_map(positions.to(self.position_map.weight.dtype))
        layout = DenseLayout.from_batch(batch)
        for layer in self.layers:
            x, edge = layer(x, edge, batch, layout)
        return Representation(node=x, edge=edge)
