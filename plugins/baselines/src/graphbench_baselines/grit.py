"""GRIT: attention over all pairs of nodes, whose vectors start as random-walk probabilities and are updated.

Ma et al., "Graph Inductive Biases in Transformers without Message Passing", ICML 2023, arXiv 2305.17589.

Legend: N nodes, P pairs of nodes of the same graph, H heads, d head width, dim = H d. Pair (i, j): node i attends to
node j; the pairs of a graph are ordered row by row, `i * n + j`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import scatter, softmax

from graphbench import Architecture, BenchmarkSpec, GraphBatch, LayerTrace, Representation, Traced
from graphbench.encodings import RRWP
from graphbench.errors import check_divides, check_range
from graphbench.nn import (
    Categorical,
    EdgeEncoder,
    FeedForward,
    NodeEncoder,
    NormName,
    count_nodes,
    make_norm,
    mixed_values,
    node_pairs,
)

#: Logits are clamped to this absolute value, as in the authors' code.
_LARGEST_LOGIT = 5.0
#: Below this a signed root has no gradient; that of the plain root is infinite at 0, and NaN if multiplied by 0.
_SMALLEST_ROOT = 1e-12


class Pairs(NamedTuple):
    """All pairs of nodes of the same graph.

    Args:
        query: node i of each pair `[P]`, ascending.
        key: node j `[P]`.
        loop: pair of each node with itself `[N]`.
        edge: pair (i, j) of each edge j -> i `[num_edges]`.
        log_degree: log(1 + out-degree) of each node `[N, 1]`.
    """

    query: Tensor
    key: Tensor
    loop: Tensor
    edge: Tensor
    log_degree: Tensor


def make_pairs(batch: GraphBatch) -> Pairs:
    """List the pairs of a batch in the order of its fields on the axis "pair"."""
    sizes, device = batch.ptr.diff(), batch.ptr.device
    query, key = node_pairs(batch, batch.rrwp.shape[0])
    source, target = batch.edge_index[0], batch.edge_index[1]
    graph_of = batch.batch
    position = torch.arange(graph_of.shape[0], device=device) - batch.ptr[graph_of]  # of a node in its graph
    row = batch.pair_ptr[graph_of] + position * sizes[graph_of]  # first pair of each node as the query
    degree = count_nodes(source, graph_of.shape[0])
    # The edge j -> i is the pair (i, j): the target is the query, the source the key.
    return Pairs(query, key, row + position, row[target] + position[source], torch.log1p(degree.float())[:, None])


class GRITAttention(Traced):
    """Attention of every node to all nodes of its graph, based on pair vectors, which it updates.

        u_ij = ReLU(root((Q x_i + K x_j) * W_w e_ij) + W_b e_ij),          root(a) = sign(a) sqrt(|a|)
        a_ij = softmax_j(clamp(w . u_ij, -5, 5))
        x'_i = O (y_i * c_1 + log(1 + deg_i) y_i * c_2),   y_i = Drop(sum_j Drop_a(a_ij) (V x_j + W_v u_ij))
        e'_ij = O_e Drop(u_ij)

    per head up to O and O_e; all vector products except that with w are element-wise (equations 2 and 3 of the paper).

    Args:
        dim: width of nodes and pairs.
        num_heads: heads; must divide `dim`.
        dropout: probability of Drop.
        attention_dropout: probability of Drop_a.

    Raises:
        BadInput: `num_heads` does not divide `dim`.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        check_divides("num_heads", num_heads, "hidden_dim", dim)
        self.num_heads = num_heads
        self.dropout, self.attention_dropout = nn.Dropout(dropout), nn.Dropout(attention_dropout)
        width = dim // num_heads
        # Q x_i + K x_j needs one bias; V has none, as in the authors' code.
        self.query_map, self.key_map = nn.Linear(dim, dim), nn.Linear(dim, dim, bias=False)
        self.value_map = nn.Linear(dim, dim, bias=False)
        self.pair_map = nn.Linear(dim, 2 * dim)  # W_w and W_b of each head, concatenated
        # Shapes are the authors': the order of the axes determines Xavier's fans and so the initial scale.
        self.score = nn.Parameter(torch.empty(width, num_heads, 1))  # w
        self.pair_value = nn.Parameter(torch.empty(width, num_heads, width))  # W_v
        self.degree = nn.Parameter(torch.empty(1, dim, 2))  # c_1 and c_2
        for module in (self.query_map, self.key_map, self.value_map, self.pair_map):
            nn.init.xavier_normal_(module.weight)
        for parameter in (self.score, self.pair_value, self.degree):
            nn.init.xavier_normal_(parameter)
        self.node_out, self.pair_out = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor, pair: Tensor, pairs: Pairs, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Return mixed nodes `[N, dim]` and pairs `[P, dim]`, without residuals."""
        q, k, v = (m(x).unflatten(-1, (self.num_heads, -1)) for m in (self.query_map, self.key_map, self.value_map))
        scale, shift = self.pair_map(pair).unflatten(-1, (self.num_heads, -1)).chunk(2, dim=-1)
        # Addition, then an element-wise product with the pair: GRIT uses no dot products of queries and keys.
        product = (q.index_select(0, pairs.query) + k.index_select(0, pairs.key)) * scale
        vectors = F.relu(signed_root(product) + shift)  # [P, H, d]
        logits = torch.einsum("phd,dhc->phc", vectors, self.score).squeeze(-1)
        # Sums over the nodes of a graph, in float32: in bfloat16 they may end at 256 times a term.
        logits = logits.clamp(-_LARGEST_LOGIT, _LARGEST_LOGIT).to(torch.promote_types(logits.dtype, torch.float32))
        weights = softmax(logits, pairs.query, num_nodes=x.shape[0])
        dropped = self.attention_dropout(weights).unsqueeze(-1)
        mixed = scatter(dropped * v.index_select(0, pairs.key), pairs.query, 0, x.shape[0], reduce="sum").to(v.dtype)
        # sum_j a_ij W_v u_ij = W_v sum_j a_ij u_ij: the map is applied to N rows instead of P.
        gathered = scatter(dropped * vectors, pairs.query, 0, x.shape[0], reduce="sum").to(vectors.dtype)
        mixed = mixed + torch.einsum("nhd,dhc->nhc", gathered, self.pair_value)
        mixed = self.dropout(mixed.flatten(1))
        # Weights that sum to one cannot distinguish degrees; this restores them (GRIT's degree scaler).
        plain, scaled = self.degree.squeeze(0).unbind(-1)
        out = self.node_out(mixed * plain + mixed * pairs.log_degree.to(mixed.dtype) * scaled)
        self.trace(lambda: self._record(x, weights, batch, out))
        return out, self.pair_out(self.dropout(vectors.flatten(1)))

    @torch.no_grad()
    def _record(self, x: Tensor, weights: Tensor, batch: GraphBatch, out: Tensor) -> LayerTrace:
        sizes = batch.ptr.diff()
        parts = weights.detach().split((sizes**2).tolist())
        return LayerTrace(
            tokens=out.detach(),
            batch=batch.batch,
            values=mixed_values(x, self.value_map.weight, self.node_out.weight, self.num_heads),
            attention=[part.T.reshape(self.num_heads, n, n) for part, n in zip(parts, sizes.tolist(), strict=True)],
            num_nodes=sizes,
            input=x,
        )


class GRITLayer(nn.Module):
    """Attention, then a feed-forward network for the nodes; residuals, and a norm after each.

        y = Norm(x + attention(x, e))      x' = Norm(y + W2 Drop(ReLU(W1 y + b1)) + b2)      e' = Norm(e + e^)

    e^ are the updated pairs of `GRITAttention`. Parameters with batch norm: `11 dim^2 + 17 dim + dim d`.

    Args:
        dim: width of nodes and pairs.
        num_heads: heads; must divide `dim`.
        dropout: probability of dropout on the output of attention and inside the feed-forward network.
        attention_dropout: probability of dropping an attention weight.
        norm: batch, layer or none.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float, attention_dropout: float, norm: NormName) -> None:
        super().__init__()
        self.attention = GRITAttention(dim, num_heads, dropout, attention_dropout)
        self.node_norm, self.pair_norm, self.norm = (make_norm(norm, dim) for _ in range(3))
        self.feed_forward = FeedForward(dim, 2 * dim, activation_dropout=dropout)

    def forward(self, x: Tensor, pair: Tensor, pairs: Pairs, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Return nodes `[N, dim]` and pairs `[P, dim]`, of the same shapes."""
        mixed, renewed = self.attention(x, pair, pairs, batch)
        x = self.node_norm(x + mixed)
        return self.norm(x + self.feed_forward(x)), self.pair_norm(pair + renewed)


class GRIT(Architecture):
    """GRIT (Ma et al., ICML 2023); defaults are the paper's ZINC model, with 473,473 parameters including its head.

    With P_ij = [(i = j), (P^1)_ij, ..., (P^(K-1))_ij] the probabilities of random walks (`RRWP`), nodes start as their
    encoded features plus `W_n P_ii`, and pairs as `W_e P_ij` plus the vectors of all edges j -> i.

    Time and memory: `B L N^2 (d^2 + H)`, `B L N^2 (d + H)`. `RRWP` stores K - 1 numbers per pair on disk.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and pairs.
        num_layers: layers.
        num_heads: heads; must divide `hidden_dim`.
        num_steps: K, with the identity, at least 2.
        dropout: probability of dropout on the output of attention and inside the feed-forward networks.
        attention_dropout: probability of dropping an attention weight.
        norm: batch, layer or none.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is out of range, or `num_heads` does not divide `hidden_dim`.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = GRIT(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        num_layers: int = 10,
        num_heads: int = 8,
        num_steps: int = 21,
        dropout: float = 0.0,
        attention_dropout: float = 0.2,
        norm: NormName = "batch",
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        super().__init__(spec, hidden_dim)
        check_range("num_steps", num_steps, at_least=2, whole=True)
        self.edge_dim = hidden_dim
        self.encodings = (RRWP(num_steps - 1),)
        self.node_encoder = NodeEncoder(spec, hidden_dim, categorical=categorical)
        self.edge_encoder = EdgeEncoder(spec, hidden_dim, categorical)
        self.node_walks, self.pair_walks = (nn.Linear(num_steps, hidden_dim, bias=False) for _ in range(2))
        for module in (self.node_walks, self.pair_walks):
            nn.init.xavier_uniform_(module.weight)
        self.layers = nn.ModuleList(
            GRITLayer(hidden_dim, num_heads, dropout, attention_dropout, norm) for _ in range(num_layers)
        )

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[N, hidden_dim]`; edges `[num_edges, hidden_dim]` are the vectors of their pairs."""
        pairs = make_pairs(batch)
        # P^0 is the identity and is not stored.
        itself = (pairs.query == pairs.key)[:, None]
        walks = torch.cat([itself.to(batch.rrwp.dtype), batch.rrwp], dim=-1).to(self.pair_walks.weight.dtype)
        x = self.node_encoder(batch) + self.node_walks(walks.index_select(0, pairs.loop))
        pair = self.pair_walks(walks)
        # Pairs without an edge have zeros here, as padded by the authors; parallel edges add up.
        pair = pair.index_add(0, pairs.edge, self.edge_encoder(batch).to(pair.dtype))
        for layer in self.layers:
            x, pair = layer(x, pair, pairs, batch)
        return Representation(node=x, edge=pair.index_select(0, pairs.edge))


def signed_root(x: Tensor) -> Tensor:
    """Compute `sign(x) sqrt(|x|)` of any shape; its gradient is zero if |x| is tiny.

    Examples:
        >>> signed_root(torch.tensor([4.0, 0.0, -9.0]))
        tensor([ 2.,  0., -3.])
    """
    smallest = max(_SMALLEST_ROOT, torch.finfo(x.dtype).tiny)
    return x.sign() * x.abs().clamp(min=smallest).sqrt()
