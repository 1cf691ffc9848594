"""NodeFormer: attention over all nodes with random features and Gumbel noise, and a relational bias along edges.

Wu et al., "NodeFormer: A Scalable Graph Structure Learning Transformer for Node Classification", NeurIPS 2022,
arXiv 2306.08385.

Legend: T nodes of all graphs, n nodes of a graph, H heads, each as wide as the model d, M random features, K samples.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import scatter

from graphbench import Architecture, BenchmarkSpec, GraphBatch, LayerTrace, PositionalEncoder, Representation, Traced
from graphbench.errors import check_choice, check_range
from graphbench.nn import Categorical, DenseLayout, NodeEncoder, NormName, make_norm, mixed_values
from graphbench_large_graphs.linear import attention_matrices, linear_attention
from graphbench_large_graphs.propagation import WeightedEdges, hop_edges, hop_pairs

BiasName = Literal["sigmoid", "identity"]
#: Lower bound of random features as a share of their largest value, in the released code.
_SMALLEST_FEATURE = 1e-6
#: Initial values of the relational bias.
_BIAS_START = {"sigmoid": 0.1, "identity": 1.0}


def random_projection(num_features: int, dim: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw random directions `[num_features, dim]`, orthogonal within blocks of `dim`, as long as Gaussian vectors.

    Each has a random sign: the signs of a QR decomposition are skewed, and a softmax estimated with them is biased.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> projection = random_projection(5, 3)
        >>> bool((projection[0] @ projection[1]).abs() < 1e-5)
        True
    """
    blocks = torch.randn(math.ceil(num_features / dim), dim, dim, dtype=torch.float32, generator=generator)
    directions = torch.linalg.qr(blocks).Q.transpose(1, 2).flatten(0, 1)[:num_features]
    lengths = torch.randn(num_features, dim, dtype=torch.float32, generator=generator).norm(dim=1, keepdim=True)
    return directions * lengths * torch.randn(num_features, 1, dtype=torch.float32, generator=generator).sign()


def softmax_features(x: Tensor, projection: Tensor, temperature: float, layout: DenseLayout | None = None) -> Tensor:
    """Compute positive features f with `E[f(q) . f(k)]` proportional to `exp(q . k / (temperature sqrt(d)))`.

    With `y = x / (sqrt(temperature) d^(1/4))` and rows w of the projection, `f(x) = (exp(w y - |y|^2 / 2 - c) + e) /
    sqrt(M)`. The largest `w y` is c: per row for queries, and per graph for keys, since they share a sum. Both cancel
    in attention except for e = 1e-6, which keeps sums above zero.

    Args:
        x: queries or keys `[T, H, d]`, in float32 or float64.
        projection: `[M, d]`.
        temperature: temperature of the softmax.
        layout: layout of the nodes in padded graphs, for keys; None for queries.

    Returns:
        `[T, H, M]`.

    Examples:
        >>> softmax_features(torch.zeros(1, 1, 3), torch.randn(4, 3), 1.0).flatten()
        tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    y = x * (temperature**-0.5 * x.shape[-1] ** -0.25)
    exponents = y @ projection.to(y.dtype).t()
    # Detached, as it cancels except for e: its gradient would be noise of that size.
    largest = exponents.detach().amax(-1)
    if layout is not None:
        graph_of = layout.graph_of
        largest = scatter(largest, graph_of, 0, layout.num_graphs, reduce="max")[graph_of]
    shifted = exponents - y.square().sum(-1, keepdim=True) / 2 - largest.unsqueeze(-1)
    return (shifted.exp() + _SMALLEST_FEATURE) * projection.shape[0] ** -0.5


class GumbelAttention(Traced):
    """NodeFormer's attention with its relational bias.

        x'_i = O concat_h(mean_s sum_j w_ijs v_j / sum_j w_ijs + sum_r b_hr sum_j A^r_ij v_j)
        w_ijs = f(q_i) . f(k_j) exp(g_js / temperature),       g Gumbel noise, in training only

    f are `softmax_features`, A^r the adjacency of pairs within 2^(r-1) steps (`hop_edges`), b learned, with or without
    the logistic function. In training new random directions are drawn in every step, as in the released code. Those for
    evaluation are drawn once and saved with the weights, so results are reproducible and do not depend on the batch.
    The matrices of the trace are without noise.

    Args:
        dim: width of the nodes and of each head.
        num_heads: heads H.
        num_features: random features M.
        temperature: temperature of the softmax and the noise.
        num_samples: samples of noise K; 0 for none.
        bias_order: powers r of the adjacency.
        bias: sigmoid or identity.

    Raises:
        BadInput: an option is unknown or out of range.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> batch = tiny_table(tiny_spec(), sizes=[3, 4]).batch([0, 1])
        >>> attention = GumbelAttention(8, num_heads=2)
        >>> edges = hop_edges(hop_pairs(batch, 2), 7, torch.float32)
        >>> attention(torch.randn(7, 8), batch, DenseLayout.from_batch(batch), edges).shape
        torch.Size([7, 8])
    """

    projection: Tensor

    def __init__(
        self,
        dim: int,
        num_heads: int = 4,
        num_features: int = 30,
        temperature: float = 0.25,
        num_samples: int = 10,
        bias_order: int = 2,
        bias: BiasName = "sigmoid",
    ) -> None:
        super().__init__()
        check_range("num_features", num_features, at_least=1, whole=True)
        check_range("temperature", temperature, above=0)
        check_range("num_samples", num_samples, at_least=0, whole=True)
        check_range("bias_order", bias_order, at_least=0, whole=True)
        check_choice("bias", bias, _BIAS_START)
        self.num_heads, self.temperature, self.num_samples, self.bias_name = num_heads, temperature, num_samples, bias
        self.qkv_map = nn.Linear(dim, 3 * num_heads * dim)
        self.out = nn.Linear(num_heads * dim, dim)
        self.bias = nn.Parameter(torch.full((bias_order, num_heads), _BIAS_START[bias])) if bias_order else None
        self.register_buffer("projection", random_projection(num_features, dim))

    def forward(
        self,
        x: Tensor,
        batch: GraphBatch,
        layout: DenseLayout,
        edges: list[WeightedEdges],
        projection: Tensor | None = None,
    ) -> Tensor:
        """Return mixed nodes `[T, dim]`; `projection [num_features, dim]` replaces the layer's directions."""
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)) for part in self.qkv_map(x).chunk(3, dim=-1))
        with torch.autocast(x.device.type, enabled=False):
            precision = torch.promote_types(v.dtype, torch.float32)
            directions = self.projection if projection is None else projection.to(self.projection)
            queries = softmax_features(q.to(precision), directions, self.temperature)
            keys = softmax_features(k.to(precision), directions, self.temperature, layout)
            mixed = self._mix(queries, keys, v.to(precision), layout)
            for number, pairs in enumerate(edges):
                mixed = mixed + self._bias_weights(number, precision) * pairs.mix(v.to(precision))
        out: Tensor = self.out(mixed.to(v.dtype).flatten(1))
        self.trace(lambda: self._record(x, queries, keys, batch, layout, out))
        return out

    def _mix(self, queries: Tensor, keys: Tensor, v: Tensor, layout: DenseLayout) -> Tensor:
        """Mix values `[T, H, d]`, in training averaged over the samples of noise."""
        if not (self.training and self.num_samples):
            return linear_attention(queries, keys, v, layout)
        graph_of = layout.graph_of
        # Noise per key, not per pair: a factor of the key stays inside the sum that all queries share.
        draws = torch.empty(*keys.shape[:2], self.num_samples, dtype=torch.float32, device=v.device).exponential_()
        noise = -draws.log() / self.temperature
        largest = scatter(noise, graph_of, 0, layout.num_graphs, reduce="max")  # cancels, and exp stays finite
        factors = (noise - largest[graph_of]).exp().to(keys.dtype)
        # Sequentially, since K samples in parallel would need K times the memory of the keys.
        samples = [linear_attention(queries, keys * part[..., None], v, layout) for part in factors.unbind(-1)]
        return torch.stack(samples).mean(0)

    def _bias_weights(self, number: int, dtype: torch.dtype) -> Tensor:
        """Return the learned weights of the heads of one power of the adjacency, `[H, 1]`."""
        assert self.bias is not None
        weights = self.bias[number].to(dtype)
        return (weights.sigmoid() if self.bias_name == "sigmoid" else weights)[:, None]

    @torch.no_grad()
    def _record(
        self, x: Tensor, queries: Tensor, keys: Tensor, batch: GraphBatch, layout: DenseLayout, out: Tensor
    ) -> LayerTrace:
        return LayerTrace(
            tokens=out.detach(),
            batch=batch.batch,
            values=mixed_values(x, self.qkv_map.weight.chunk(3)[2], self.out.weight, self.num_heads),
            attention=attention_matrices(queries, keys, layout),
            num_nodes=batch.ptr.diff(),
            input=x,
        )


class NodeFormer(Architecture):
    """NodeFormer (Wu et al., NeurIPS 2022); defaults are for Cora, with Pubmed's `bias_order`.

    `x0 = Drop(ELU(Norm(encode)))`, then `Drop(act(Norm(x + attention(x))))` per layer, see `GumbelAttention`. The
    network does not include the paper's second loss, which regularises attention using the input's edges.

    Time and memory: `B L H (N d^2 + m N d + D E d)`, `B L H (m N d + D E d)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the nodes and of each head.
        num_layers: layers of attention.
        num_heads: heads.
        num_features: random features.
        temperature: temperature of the softmax and the noise.
        num_samples: samples of Gumbel noise in training; 0 for none.
        bias_order: adjacencies of the relational bias; the r-th contains pairs within 2^(r-1) steps. A hub of degree
            d adds d^2 pairs to the second, so graphs with large hubs need 1, as in the released runs on
            ogbn-proteins and Amazon2M.
        bias: function applied to its learned numbers, sigmoid or identity.
        dropout: probability of every dropout.
        norm: layer, batch or none.
        residual: add each layer's input to its output.
        activation: act is ELU; False: the identity.
        concatenate: represent a node by the concatenated states of all depths.
        positional_encoders: their outputs are concatenated to the node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is unknown or out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = NodeFormer(tiny_spec(), hidden_dim=16)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 32,
        num_layers: int = 2,
        num_heads: int = 4,
        num_features: int = 30,
        temperature: float = 0.25,
        num_samples: int = 10,
        bias_order: int = 2,
        bias: BiasName = "sigmoid",
        dropout: float = 0.0,
        norm: NormName = "layer",
        residual: bool = True,
        activation: bool = False,
        concatenate: bool = False,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        super().__init__(spec, hidden_dim * (num_layers + 1) if concatenate else hidden_dim)
        self.node_encoder = NodeEncoder(spec, hidden_dim, positional_encoders or (), categorical)
        self.layers = nn.ModuleList(
            GumbelAttention(hidden_dim, num_heads, num_features, temperature, num_samples, bias_order, bias)
            for _ in range(num_layers)
        )
        self.norms = nn.ModuleList(make_norm(norm, hidden_dim) for _ in range(num_layers + 1))
        self.bias_order, self.dropout, self.residual = bias_order, nn.Dropout(dropout), residual
        self.activation, self.concatenate = activation, concatenate

    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """List pairs within 1, 2, 4, ... steps; in training also draw the random directions of each layer."""
        fields = {f"within_{number}": pairs for number, pairs in enumerate(hop_pairs(batch, self.bias_order))}
        if generator is not None:
            for number, layer in enumerate(self.layers):
                assert isinstance(layer, GumbelAttention)
                num_features, width = layer.projection.shape
                drawn = random_projection(num_features, width, generator)
                fields[f"projection_{number}"] = drawn.to(batch.ptr.device)
        return fields

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, dim]`."""
        layout = DenseLayout.from_batch(batch)
        x = self.dropout(F.elu(self.norms[0](self.node_encoder(batch))))
        pairs = [batch[f"within_{number}"] for number in range(self.bias_order)]
        edges = hop_edges(pairs, len(x), x.dtype)
        states = [x]
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms[1:], strict=True)):
            new = layer(x, batch, layout, edges, batch.get(f"projection_{number}", None))
            x = norm(x + new if self.residual else new)
            x = self.dropout(F.elu(x) if self.activation else x)
            states.append(x)
        return Representation(node=torch.cat(states, dim=-1) if self.concatenate else x)
