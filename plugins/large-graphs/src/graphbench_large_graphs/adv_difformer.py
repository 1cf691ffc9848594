"""AdvDIFFormer: diffusion over all pairs of nodes with advection along edges, as a series.

Wu et al., "Advective Diffusion Transformers for Topological Generalization in Graph Learning", arXiv 2310.06417.

Legend: T nodes of all graphs, n nodes of a graph, H heads, each as wide as the model, K order of the series.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import Architecture, BenchmarkSpec, GraphBatch, LayerTrace, PositionalEncoder, Representation, Traced
from graphbench.errors import check_range
from graphbench.nn import Categorical, DenseLayout, NodeEncoder, NormName, make_norm
from graphbench_large_graphs.linear import attention_matrices, check_width, linear_attention
from graphbench_large_graphs.propagation import WeightedEdges, row_edges


class AdvectiveAttention(Traced):
    """K steps of attention with advection, all mapped to the output.

        z_0 = x        z_{k+1} = S z_k + b A z_k        x' = O [z_0, ..., z_K]_all heads / H
        S_ij = (1 + q_i . k_j) / sum_j (1 + q_i . k_j),      queries and keys of length 1

    A takes the mean over neighbours. The trace's matrices are S.

    Args:
        dim: width of the nodes and of each head.
        num_heads: heads H.
        order: K.
        beta: weight b of advection.

    Raises:
        BadInput: `dim` is 1, `order` is not a positive integer, or `beta` is negative or infinite.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> batch = tiny_table(tiny_spec(), sizes=[3, 4]).batch([0, 1])
        >>> attention = AdvectiveAttention(8, num_heads=2)
        >>> attention(torch.randn(7, 8), batch, DenseLayout.from_batch(batch), row_edges(batch, torch.float32)).shape
        torch.Size([7, 8])
    """

    def __init__(self, dim: int, num_heads: int = 1, order: int = 3, beta: float = 0.5) -> None:
        super().__init__()
        check_width(dim)
        check_range("order", order, at_least=1, whole=True)
        check_range("beta", beta, at_least=0, below=math.inf)
        self.num_heads, self.order, self.beta = num_heads, order, beta
        self.qk_map = nn.Linear(dim, 2 * num_heads * dim)
        self.out = nn.Linear(num_heads * (order + 1) * dim, dim)

    def forward(self, x: Tensor, batch: GraphBatch, layout: DenseLayout, edges: WeightedEdges) -> Tensor:
        """Return mixed nodes `[T, dim]`."""
        q, k = (
            F.normalize(part.unflatten(-1, (self.num_heads, -1)), dim=-1) for part in self.qk_map(x).chunk(2, dim=-1)
        )
        # q and k are those of x in all K steps: the powers are of one matrix S + b A.
        states = [x[:, None].expand_as(q)]
        for _ in range(self.order):
            z = states[-1]
            # For unit vectors 1 + q . k is not negative, so rows of S are probabilities.
            states.append(linear_attention(q, k, z, layout, uniform=1.0) + self.beta * edges.mix(z))
        # Each power has its own part of O, so each head learns the coefficients of its series.
        out: Tensor = self.out(torch.cat(states, dim=-1).flatten(1)) / self.num_heads
        self.trace(lambda: self._record(x, q, k, batch, layout, out))
        return out

    @torch.no_grad()
    def _record(
        self, x: Tensor, q: Tensor, k: Tensor, batch: GraphBatch, layout: DenseLayout, out: Tensor
    ) -> LayerTrace:
        return LayerTrace(
            tokens=out.detach(),
            batch=batch.batch,
            attention=attention_matrices(q, k, layout, uniform=1.0),
            num_nodes=batch.ptr.diff(),
            input=x,
        )


class AdvDIFFormer(Architecture):
    """AdvDIFFormer-s (Wu et al., arXiv 2310.06417): `Drop(ReLU(Norm(x + attention(x))))` per layer.

    This is the series, one of the paper's two solvers, which is linear in the nodes; the other inverts a matrix of all
    pairs. Defaults are those of the released model.

    Time and memory: `B L H k (N d^2 + E d)`, `B L H k (N d + E d + d^2)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the nodes and of each head.
        num_layers: layers, see `AdvectiveAttention`.
        num_heads: heads.
        order: order of the series.
        beta: weight of advection along edges.
        dropout: probability of every dropout.
        norm: batch, layer or none.
        residual: add each layer's input to its output.
        positional_encoders: their outputs are concatenated to the node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is unknown or out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = AdvDIFFormer(tiny_spec(), hidden_dim=16)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        num_layers: int = 1,
        num_heads: int = 1,
        order: int = 3,
        beta: float = 0.5,
        dropout: float = 0.5,
        norm: NormName = "batch",
        residual: bool = True,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        super().__init__(spec, hidden_dim)
        self.node_encoder = NodeEncoder(spec, hidden_dim, positional_encoders or (), categorical)
        self.layers = nn.ModuleList(AdvectiveAttention(hidden_dim, num_heads, order, beta) for _ in range(num_layers))
        self.norms = nn.ModuleList(make_norm(norm, hidden_dim) for _ in range(num_layers + 1))
        self.dropout, self.residual = nn.Dropout(dropout), residual

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]`."""
        layout = DenseLayout.from_batch(batch)
        x = self.dropout(self.norms[0](self.node_encoder(batch)).relu())
        edges = row_edges(batch, x.dtype)
        for layer, norm in zip(self.layers, self.norms[1:], strict=True):
            new = layer(x, batch, layout, edges)
            x = self.dropout(norm(x + new if self.residual else new).relu())
        return Representation(node=x)
