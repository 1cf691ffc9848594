"""PPGT: a plain transformer whose attention measures distances and is modulated by random walks between nodes.

Ma, Pal, Zhang, Torr & Coates, "Plain Transformers Can be Powerful Graph Learners", TMLR 2026,
https://openreview.net/forum?id=bEmDvP0fdv. Equations are those of the released code.

Legend: N nodes, P pairs of nodes of the same graph, H heads, d head width, dim = H d. Pair (i, j): node i attends to
node j; the pairs of a graph are ordered row by row, `i * n + j`.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import scatter, softmax

from graphbench import Architecture, BenchmarkSpec, GraphBatch, LayerTrace, Representation, Traced
from graphbench.encodings import RRWP
from graphbench.errors import check_divides, check_range
from graphbench.nn import Categorical, EdgeEncoder, FeedForward, NodeEncoder, mixed_values
from graphbench_baselines.grit import Pairs, make_pairs

#: Added to mean squares, as in the authors' code.
_EPSILON = 1e-6
#: Standard deviation of initial weights, as in vision transformers.
_DEVIATION = 0.02


class AdaRMSNorm(nn.Module):
    """Root mean square norm whose scale depends on the normalised row.

        y = x / rms(x) * rms(alpha * x + beta),      rms(a) = sqrt(mean(a^2) + 1e-6)

    With alpha = 0 and beta = 1, its initial values, it is RMSNorm; with alpha = 1 and beta = 0 it is the identity, so a
    layer can keep the magnitudes of its tokens. `2 dim` parameters.

    Args:
        dim: width of the rows.

    Examples:
        >>> round(AdaRMSNorm(2)(torch.tensor([[3.0, 4.0]])).square().mean().item(), 4)
        1.0
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise rows `[..., dim]`."""
        # The scale is positive for all alpha and beta: a row is never reversed, only scaled.
        scale = (x * self.alpha + self.beta).square().mean(-1, keepdim=True).add(_EPSILON).sqrt()
        return F.rms_norm(x, x.shape[-1:], eps=_EPSILON) * scale


class PPGTAttention(Traced):
    """Attention based on distances, with a bias and a factor for each pair of nodes.

        s_ij = q_i . k_j - |k_j|^2 / (2 sqrt(d)) + (P_r e_ij)
        w_ij = Drop(softmax_j(s_ij) (1 + P_d e_ij))
        x'_i = O sum_j w_ij v_j

    per head up to O. The first two terms of s_ij are a negative squared distance of q_i and k_j, except for a term that
    softmax cancels; the released code scales only the second term. `4 dim^2 + 4 dim + 2 H (dim + 1)` parameters.

    Args:
        dim: width of nodes and pairs.
        num_heads: heads; must divide `dim`.
        dropout: probability of Drop.

    Raises:
        BadInput: `num_heads` does not divide `dim`.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        check_divides("num_heads", num_heads, "hidden_dim", dim)
        self.num_heads, self.dropout = num_heads, nn.Dropout(dropout)
        self.qkv_map, self.out_map = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.pair_map = nn.Linear(dim, 2 * num_heads)  # P_r and P_d

    def forward(self, x: Tensor, pair: Tensor, pairs: Pairs, batch: GraphBatch) -> Tensor:
        """Return mixed nodes `[N, dim]` of nodes `[N, dim]` and pairs `[P, dim]`, without the residual."""
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)) for part in self.qkv_map(x).chunk(3, dim=-1))
        bias, factor = self.pair_map(pair).chunk(2, dim=-1)  # [P, H] each
        # As in the released code, not divided by sqrt(d), unlike the length of keys below.
        product = (q.index_select(0, pairs.query) * k.index_select(0, pairs.key)).sum(-1)
        length = k.square().sum(-1) / (2 * math.sqrt(k.shape[-1]))  # [N, H]
        logits = product - length.index_select(0, pairs.key) + bias
        # Sums over the nodes of a graph, in float32: in bfloat16 they may end at 256 times a term.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        weights = softmax(logits, pairs.query, num_nodes=x.shape[0])
        # After the softmax: rows need not sum to one.
        weights = weights * (1 + factor)
        dropped = self.dropout(weights).unsqueeze(-1)
        mixed = scatter(dropped * v.index_select(0, pairs.key), pairs.query, 0, x.shape[0], reduce="sum")
        out = self.out_map(mixed.flatten(1).to(v.dtype))
        self.trace(lambda: self._record(x, weights, batch, out))
        return out

    @torch.no_grad()
    def _record(self, x: Tensor, weights: Tensor, batch: GraphBatch, out: Tensor) -> LayerTrace:
        sizes = batch.ptr.diff()
        parts = weights.detach().split((sizes**2).tolist())
        return LayerTrace(
            tokens=out.detach(),
            batch=batch.batch,
            values=mixed_values(x, self.qkv_map.weight.chunk(3)[2], self.out_map.weight, self.num_heads),
            attention=[part.T.reshape(self.num_heads, n, n) for part, n in zip(parts, sizes.tolist(), strict=True)],
            num_nodes=sizes,
            input=x,
        )


class PPGTLayer(nn.Module):
    """Attention and a feed-forward network, each after a norm and with stochastic depth.

        y = x + Path(attention(Norm(x), e))      x' = y + Path(W2 GELU(W1 Norm(y) + b1) + b2)

    Path drops the branch of whole graphs. `8 dim^2 + 11 dim + 2 H (dim + 1)` parameters.

    Args:
        dim: width of nodes and pairs.
        num_heads: heads; must divide `dim`.
        attention_dropout: probability of dropping an attention weight.
        drop_path: probability that a graph skips a branch.
    """

    def __init__(self, dim: int, num_heads: int, attention_dropout: float, drop_path: float) -> None:
        super().__init__()
        self.drop_path = drop_path
        self.attention = PPGTAttention(dim, num_heads, attention_dropout)
        self.feed_forward = FeedForward(dim, 2 * dim, activation="gelu")
        self.attention_norm, self.norm = AdaRMSNorm(dim), AdaRMSNorm(dim)

    def forward(self, x: Tensor, pair: Tensor, pairs: Pairs, batch: GraphBatch) -> Tensor:
        """Return nodes `[N, dim]`."""
        x = x + self._path(self.attention(self.attention_norm(x), pair, pairs, batch), batch)
        return x + self._path(self.feed_forward(self.norm(x)), batch)

    def _path(self, branch: Tensor, batch: GraphBatch) -> Tensor:
        if not self.training or not self.drop_path:
            return branch
        # Dropout of ones: one draw per graph, and kept branches are divided by 1 - p.
        mask = F.dropout(branch.new_ones(batch.num_graphs, 1), self.drop_path)
        return branch * mask.index_select(0, batch.batch)


class PairStem(nn.Module):
    """Encode pairs using waves of random-walk probabilities, degrees and the size of the graph.

        p_ij = [(P^0)_ij, ..., (P^(K-1))_ij, 1 / n, 1 / deg_j, 1 / deg_i]
        s_ij = [p_ij, sin(2^l pi p_ij), cos(2^l pi p_ij)],   l = 0, 1, 2
        e_ij = Norm(F_2(F_1(W_2 GELU(W_1 s_ij + b_1) + b_2 + edge_ij))),   F(a) = a + FeedForward(Norm(a))

    edge_ij is the sum of the encoded edges j -> i; 1 / 0 is 0, as in the authors' code.

    Args:
        spec: the benchmark's description.
        dim: width of the pairs.
        num_steps: K, with the identity.
        categorical: how categorical features of edges enter.
    """

    waves: Tensor

    def __init__(self, spec: BenchmarkSpec, dim: int, num_steps: int, categorical: Categorical) -> None:
        super().__init__()
        self.register_buffer("waves", math.pi * 2.0 ** torch.arange(3), persistent=False)
        self.edge_encoder = EdgeEncoder(spec, dim, categorical)
        self.expand, self.contract = nn.Linear(7 * (num_steps + 3), 2 * dim), nn.Linear(2 * dim, dim)
        self.blocks = nn.ModuleList(FeedForward(dim, 2 * dim, activation="gelu") for _ in range(2))
        self.norms = nn.ModuleList(AdaRMSNorm(dim) for _ in range(3))

    def forward(self, walks: Tensor, pairs: Pairs, batch: GraphBatch) -> Tensor:
        """Return pairs `[P, dim]` of their walks `[P, K]`."""
        size = batch.ptr.diff().index_select(0, batch.batch).index_select(0, pairs.query)[:, None]
        degree = torch.expm1(pairs.log_degree)
        inverse = torch.where(degree > 0.5, 1 / degree.clamp(min=1), 0.0)  # [N, 1]
        ends = (inverse.index_select(0, pairs.key), inverse.index_select(0, pairs.query))
        # Waves in bfloat16 would be noise: half a unit of 2^2 pi p is a hundredth.
        features = torch.cat([walks.float(), 1 / size, *ends], dim=-1)
        phases = (features.unsqueeze(-1) * self.waves.float()).flatten(1)
        features = torch.cat([features, phases.sin(), phases.cos()], dim=-1).to(self.expand.weight.dtype)
        pair = self.contract(F.gelu(self.expand(features)))
        pair = pair.index_add(0, pairs.edge, self.edge_encoder(batch).to(pair.dtype))
        # The last of the three norms has no block: it ends the stem.
        for norm, block in zip(self.norms, self.blocks, strict=False):
            pair = pair + block(norm(pair))
        return self.norms[-1](pair)


class PPGT(Architecture):
    """PPGT (Ma et al., TMLR 2026); defaults are the released ZINC model, with 493,185 parameters including its head.

    Nodes start as their encoded features plus maps of their walks to themselves, `log(1 + deg)` and `log(1 + n)`; pairs
    are encoded once (`PairStem`) and modulate every layer (`PPGTAttention`).

    Time and memory: `B L N^2 (d^2 + H)`, `B L N^2 (d + H)`. `RRWP` stores K - 1 numbers per pair on disk.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and pairs.
        num_layers: layers.
        num_heads: heads; must divide `hidden_dim`.
        num_steps: K, with the identity, at least 2.
        attention_dropout: probability of dropping an attention weight.
        drop_path: probability that a graph skips the branch of a layer.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is out of range, or `num_heads` does not divide `hidden_dim`.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = PPGT(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        num_layers: int = 12,
        num_heads: int = 8,
        num_steps: int = 25,
        attention_dropout: float = 0.2,
        drop_path: float = 0.1,
        categorical: Categorical = "normal",
    ) -> None:
        super().__init__(spec, hidden_dim)
        check_range("num_steps", num_steps, at_least=2, whole=True)
        check_range("drop_path", drop_path, at_least=0, below=1)
        self.encodings = (RRWP(num_steps - 1),)
        self.node_encoder = NodeEncoder(spec, hidden_dim, categorical=categorical)
        self.node_walks = nn.Linear(num_steps, hidden_dim)
        self.node_degree, self.node_size = nn.Linear(1, hidden_dim), nn.Linear(1, hidden_dim)
        self.pair_stem = PairStem(spec, hidden_dim, num_steps, categorical)
        self.layers = nn.ModuleList(
            PPGTLayer(hidden_dim, num_heads, attention_dropout, drop_path) for _ in range(num_layers)
        )
        self.norm = AdaRMSNorm(hidden_dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights of layers and blocks with deviation 0.02, of encodings according to fan-in; biases are 0."""
        for module in (*self.layers.modules(), *self.pair_stem.blocks.modules()):
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=_DEVIATION)
                nn.init.zeros_(module.bias)
        for linear in (self.node_walks, self.node_degree, self.node_size, self.pair_stem.contract):
            nn.init.kaiming_uniform_(linear.weight, nonlinearity="linear")
            nn.init.zeros_(linear.bias)
        nn.init.kaiming_uniform_(self.pair_stem.expand.weight)
        nn.init.zeros_(self.pair_stem.expand.bias)

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[N, hidden_dim]`."""
        pairs = make_pairs(batch)
        itself = (pairs.query == pairs.key)[:, None]
        walks = torch.cat([itself.to(batch.rrwp.dtype), batch.rrwp], dim=-1)
        size = torch.log1p(batch.ptr.diff().float()).index_select(0, batch.batch)[:, None]
        x = self.node_encoder(batch)
        for linear, values in (
            (self.node_walks, walks.index_select(0, pairs.loop)),
            (self.node_degree, pairs.log_degree),
            (self.node_size, size),
        ):
            x = x + linear(values.to(linear.weight.dtype))
        pair = self.pair_stem(walks, pairs, batch)
        for layer in self.layers:
            x = layer(x, pair, pairs, batch)
        return Representation(node=self.norm(x))
