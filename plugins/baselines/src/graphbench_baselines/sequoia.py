"""Sequoia on graphs: a learned hierarchy of two levels, nodes and clusters, with attention within clusters.

Trang, Ngo, Sonnery, Vo, Ravanbakhsh & Hy, "Scalable Hierarchical Self-Attention with Learnable Hierarchy for Long-Range
Interactions", TMLR 2024, https://openreview.net/forum?id=qH4YFMyhce, with the settings and layers of its released code.

Legend: T nodes of all graphs, B graphs, C clusters of each, M edges, P edges between clusters; S is the assignment
`[T, C]` of nodes to clusters, with a single 1 per row. Cluster c of graph g has the number `g C + c`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import scatter

from graphbench import Architecture, BenchmarkSpec, GraphBatch, LayerTrace, PositionalEncoder, Representation, Traced
from graphbench.errors import check_divides, check_range
from graphbench.nn import (
    Categorical,
    DenseLayout,
    EdgeEncoder,
    GatedGCNLayer,
    GPSLayer,
    NodeEncoder,
    NormName,
    Pooling,
    attend_within_graphs,
    attention_weights,
    make_norm,
    mixed_values,
)


@dataclass(frozen=True)
class Clusters:
    """Clusters of the nodes, an order of nodes by cluster for attention, and the pairs of clusters that share an edge.

    Args:
        assignment: S `[T, C]`, at least float32; gradients reach the logits as if S were their softmax.
        number: number of the cluster of each node `[T]`.
        order: nodes, sorted by cluster `[T]`.
        place: place of each node in that order `[T]`.
        layout: layout of the sorted nodes in padded non-empty clusters, or with biases in padded graphs.
        biases: None, or minus infinity between clusters of such a graph, `[B, 1, N, N]`.
        edge_index: edges between different clusters, ascending; padded with zeros `[2, P]`.
        pair_of: pair of each edge, counted from 1; 0 for edges within a cluster `[M]`.
    """

    assignment: Tensor
    number: Tensor
    order: Tensor
    place: Tensor
    layout: DenseLayout
    biases: tuple[Tensor, ...] | None
    edge_index: Tensor
    pair_of: Tensor

    @property
    def weight(self) -> Tensor:
        """Return the entry of S at the cluster of each node `[T]`: ones that carry gradients."""
        return self.assignment.gather(1, (self.number % self.assignment.shape[1])[:, None]).squeeze(1)


def assign(logits: Tensor, training: bool) -> Tensor:
    """Assign each node a cluster, with the gradient of a softmax (straight-through Gumbel softmax at temperature 1).

        p = softmax(l + G)    S_i = the unit vector of argmax_c p_ic      dS := dp       G_ic = -log(E), E ~ Exp(1)

    Outside training G is zero, so a node is in the cluster of its largest logit.

    Args:
        logits: l `[T, C]`.
        training: draw G, from torch's generator.

    Returns:
        S `[T, C]`, exactly zeros and ones, at least float32.

    Examples:
        >>> assign(torch.tensor([[0.1, 0.3], [2.0, 1.0]]), training=False)
        tensor([[0., 1.],
                [1., 0.]])
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if training:
        logits = logits - torch.empty_like(logits).exponential_().log()
    soft = logits.softmax(-1)
    hard = torch.zeros_like(soft).scatter_(1, soft.argmax(-1, keepdim=True), 1.0)
    # The bracket is exactly 0; `hard + soft - soft` would round, and S would not be exactly zeros and ones.
    return hard + (soft - soft.detach())


def clusters_of(assignment: Tensor, batch: Data, layout: DenseLayout) -> Clusters:
    """Group the nodes by an assignment, and the edges by the clusters of their ends.

    Sizes of clusters, and the number of pairs that share an edge, depend on weights. On a GPU they need a host-device
    sync, and torch.compile would make them part of the program: in these cases nodes stay in padded graphs, and edges
    between clusters are padded to the number of edges of the graphs.

    Args:
        assignment: S `[T, C]`.
        batch: the graphs, with the graph of each node; edges are (i, j).
        layout: layout of their nodes.

    Examples:
        >>> choice = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
        >>> batch = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), batch=torch.tensor([0, 0, 1]))
        >>> clusters = clusters_of(choice, batch, DenseLayout.from_batch(batch))
        >>> clusters.number, clusters.order, clusters.edge_index.tolist()
        (tensor([1, 0, 3]), tensor([1, 0, 2]), [[0, 1], [1, 0]])
    """
    num_nodes, num_clusters = assignment.shape
    total = layout.num_graphs * num_clusters
    number = batch.batch * num_clusters + assignment.argmax(-1)
    ends = number[batch.edge_index]
    # One sort of three kinds of keys: nodes by cluster, below `total`; edges within a cluster, `total`, with an
    # additional one so that their run is never empty; edges between clusters by pair, above `total`.
    edges = torch.where(ends[0] == ends[1], total, (ends[0] + 1) * total + ends[1])
    ordered, order = torch.cat([number, number.new_full((1,), total), edges]).sort(stable=True)
    # Equal keys form a run: runs of nodes number the clusters in use, runs after that of `total` the pairs.
    run = (ordered.diff(prepend=ordered[:1]) != 0).cumsum(0)
    place = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device))
    order, pair_of = order[:num_nodes], run[place[num_nodes + 1 :]] - run[num_nodes]
    pairs = ends.new_zeros(2, 1 + ends.shape[1]).index_copy_(1, pair_of, ends)[:, 1:]  # zeros after the last one
    if run.device.type == "cpu" and not torch.compiler.is_compiling():
        sizes = run[:num_nodes].bincount()
        layout = DenseLayout.from_rows(run[:num_nodes], F.pad(sizes.cumsum(0), (1, 0)), max(sizes.tolist(), default=0))
        biases, pairs = None, pairs[:, : int(run[-1] - run[num_nodes])]
    else:
        biases = (_between_clusters(ordered[:num_nodes], layout),)
    return Clusters(assignment, number, order, place[:num_nodes], layout, biases, pairs, pair_of)


def _between_clusters(number: Tensor, layout: DenseLayout) -> Tensor:
    """Return 0 within clusters `[T]`, of which padding is one more, and minus infinity elsewhere, `[B, 1, N, N]`."""
    dense = layout.to_dense(number[:, None] + 1)
    return (dense == dense.transpose(1, 2)).log()[:, None]


def cluster_edges(edge_index: Tensor, edge: Tensor, weight: Tensor, clusters: Clusters) -> tuple[Tensor, Tensor]:
    """Merge the edges between the nodes of two clusters into one with their mean vector.

    Edges within a cluster are omitted. `e_cd = sum_(i in c, j in d) w_i w_j e_ij / sum_(i in c, j in d) w_i w_j`.

    Args:
        edge_index: edges (i, j) of the graphs `[2, M]`.
        edge: their vectors `[M, dim]`.
        weight: w `[T]`.
        clusters: clusters of the nodes.

    Returns:
        Vectors of `clusters.edge_index` `[P, dim]`, and 1 for each edge, 0 for padding `[P, 1]`.

    Examples:
        >>> index, edge = torch.tensor([[0, 1, 0], [2, 2, 1]]), torch.tensor([[1.0], [3.0], [9.0]])
        >>> choice = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> graph = Data(edge_index=index, batch=torch.tensor([0, 0, 0]))
        >>> clusters = clusters_of(choice, graph, DenseLayout.from_batch(graph))
        >>> cluster_edges(index, edge, torch.ones(3), clusters)
        (tensor([[2.]]), tensor([[1.]]))
    """
    first, second = weight[edge_index]
    share, rows = (first * second)[:, None], clusters.edge_index.shape[1] + 1  # float32: bfloat16 sums end at 256
    # Row 0 contains the edges within clusters. Weights have the value 1: a sum of 0 has no edges.
    both = scatter(torch.cat([share * edge, share], dim=1), clusters.pair_of, 0, rows, reduce="sum")[1:]
    sums, weights = both.split([edge.shape[1], 1], dim=1)
    present = weights.detach().sign()
    return (sums / (weights + (1 - present))).to(edge.dtype), present.to(edge.dtype)


def count_links(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return sources and targets of the entries of A + I `[2, P]`, and the entries `[P]`; A counts edges.

    Examples:
        >>> count_links(torch.tensor([[0, 0], [1, 1]]), 2)
        (tensor([[0, 0, 1],
                [0, 1, 1]]), tensor([1, 2, 1]))
    """
    node = torch.arange(num_nodes, device=edge_index.device)
    entries = torch.cat([edge_index[0] * num_nodes + edge_index[1], node * (num_nodes + 1)])
    pairs, counts = entries.unique(return_counts=True)
    return torch.stack([pairs // max(num_nodes, 1), pairs % max(num_nodes, 1)]), counts


def link_loss(
    assignment: Tensor, batch: Data, layout: DenseLayout, links: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Compare clusters with edges: return the mean over graphs of `|A - (S S^T - I)|_F / n^2`.

    A counts the edges between nodes, n is the number of nodes. Since `|S S^T|_F = |S^T S|_F` no matrix over node pairs
    is needed: `|A + I - S S^T|^2 = |A + I|^2 - 2 sum_ij (A + I)_ij S_i . S_j + |S^T S|^2`.

    Args:
        assignment: S `[T, C]`.
        batch: the graphs.
        layout: layout of their nodes.
        links: `count_links` of the batch, if already counted.

    Returns:
        A scalar.

    Examples:
        >>> pair = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)  # both ends of the edge in one cluster
        >>> link_loss(torch.ones(2, 1), pair, DenseLayout.from_batch(pair))
        tensor(0.)
    """
    sizes = layout.ptr.diff()
    (source, target), counts = count_links(batch.edge_index, len(assignment)) if links is None else links
    counts = counts.to(assignment.dtype)
    # S_i . S_j only at the entries of A + I: everywhere else the cross term is 0.
    common = (assignment.index_select(0, source) * assignment.index_select(0, target)).sum(-1)
    parts = counts.square() - 2 * counts * common
    with torch.autocast(assignment.device.type, enabled=False):  # bfloat16 cannot count nodes
        dense = layout.to_dense(assignment)
        shared = (dense.transpose(1, 2) @ dense).square().sum((1, 2))
    squared = shared + scatter(parts, layout.graph_of[source], 0, layout.num_graphs, reduce="sum")
    apart = squared > 0.5  # an integer, except for rounding; at 0 the norm has no gradient
    norm = torch.where(apart, squared, 1.0).sqrt() * apart
    return (norm / sizes.square()).mean()


class ClusterAttention(Traced):
    """Softmax attention among the nodes of the same cluster; `4 dim^2 + 4 dim` parameters.

    Initial values are those of `graphbench.nn.MultiHeadAttention`. Its trace has one matrix per graph, zero between
    clusters.

    Args:
        dim: width of the nodes.
        num_heads: heads; must divide `dim`.
        dropout: probability of dropping an attention weight.

    Raises:
        BadInput: `num_heads` does not divide `dim`.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        check_divides("num_heads", num_heads, "hidden_dim", dim)
        self.num_heads, self.dropout = num_heads, dropout
        self.in_proj = nn.Linear(dim, 3 * dim)
        self.out_proj = nn.Linear(dim, dim)
        nn.init.xavier_uniform_(self.in_proj.weight)
        nn.init.zeros_(self.in_proj.bias)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, x: Tensor, batch: GraphBatch, layout: Clusters) -> Tensor:
        """Return mixed nodes `[T, dim]`."""
        within, dropout = layout.layout, self.dropout if self.training else 0.0
        qkv = self.in_proj(x)
        ordered = qkv.index_select(0, layout.order)
        mixed = attend_within_graphs(ordered, within, self.num_heads, layout.biases, dropout)
        out: Tensor = self.out_proj(mixed.index_select(0, layout.place))
        self.trace(lambda: self._record(x, qkv, batch, layout, out))
        return out

    @torch.no_grad()
    def _record(self, x: Tensor, qkv: Tensor, batch: GraphBatch, clusters: Clusters, out: Tensor) -> LayerTrace:
        layout = DenseLayout.from_batch(batch)
        biases = layout.block_biases(_between_clusters(clusters.number, layout))
        heads = layout.to_block_heads(qkv, 3, self.num_heads)
        weights = [attention_weights(q, k, bias) for (q, k, _), bias in zip(heads, biases, strict=True)]
        return LayerTrace(
            tokens=out.detach(),
            batch=batch.batch,
            values=mixed_values(x, self.in_proj.weight.chunk(3)[2], self.out_proj.weight, self.num_heads),
            attention=layout.matrices_of_graphs(weights),
            num_nodes=batch.ptr.diff(),
            input=x,
        )


class Sequoia(Architecture):
    """Sequoia (Trang et al., TMLR 2024); defaults are the released code's for Peptides.

    With x_i the encoded node plus `ReLU(Norm(W p_i))` of its positions p_i, and e_ij the encoded edge:

        S     = assign(Norm(FFN(GPS_1(x, e))))               one of C clusters for each node, see `assign`
        y     = GPS_2(x, e)                                  with attention among the nodes of a cluster
        z_c   = GPS_3(sum_(i in c) y_i, means of e)          on the clusters of a graph, see `cluster_edges`
        node  = y_i + z_(cluster of i)                       graph = sum_c z_c
        penalty = link_weight * link_loss(S)

    The three are GPS layers around GatedGCN, the first and the third without attention; the first is used only for the
    assignment. Clusters without nodes are included, as zeros before GPS_3. As in the released code, S has gradients
    from the link loss, and from means of edge vectors if edges have only dense features. Differences from that code:

    * In evaluation a node is in the cluster of its largest logit; that code draws clusters, so its results vary.
    * Its output for nodes is not released; here a node has the vector of its cluster added.
    * The link loss is a mean over graphs; in that code it is one norm of all graphs, padded to the largest with nodes
      in random clusters, divided by the square of its size.
    * It averages the codes of categorical edge features and truncates them to integers, which confuses categories and
      blocks gradients; here their vectors are averaged, also without gradient.
    * Means of edges give S a gradient only at a node's own cluster; in that code, also at other clusters.
    * Its attention has a node of ones in every empty cluster, which enters the batch norms; here there is none.

    Time and memory: `B ((N + E + m) d^2 + N m (d + m) + N^2 (d + H))`, `B ((N + E + m) d + N m + m^2 + H N^2)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes, edges and clusters.
        num_heads: heads of the attention; must divide `hidden_dim`.
        num_clusters: clusters C of each graph, some of which may stay empty.
        link_weight: weight of the link loss; with 0 clusters learn only from dense edge features.
        dropout: probability of every dropout except that of attention weights.
        attention_dropout: probability of dropping an attention weight.
        norm: batch, layer or none.
        positional_encoders: their outputs are concatenated, mapped to `hidden_dim` and added to the node features:
            `RandomWalkPE`, or `graphbench.nn.LapPEEncoder` with `model: raw`.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is out of range, or `num_heads` does not divide `hidden_dim`.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = Sequoia(tiny_spec(), hidden_dim=16, num_clusters=4)
        >>> model(tiny_batch(model)).graph.shape  # 4 graphs of a few nodes
        torch.Size([4, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 96,
        num_heads: int = 4,
        num_clusters: int = 32,
        link_weight: float = 1.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.5,
        norm: NormName = "batch",
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        super().__init__(spec, hidden_dim)
        check_range("num_clusters", num_clusters, at_least=1, whole=True)
        check_range("link_weight", link_weight, at_least=0)
        self.num_clusters, self.link_weight, self.pooling = num_clusters, link_weight, Pooling("add")
        self.edges_teach = not spec.edge.vocabularies
        self.node_encoder = NodeEncoder(spec, hidden_dim, categorical=categorical)
        self.edge_encoder = EdgeEncoder(spec, hidden_dim, categorical)
        self.edge_dim = hidden_dim
        self.positional = nn.ModuleList(positional_encoders or ())
        positions = sum(encoder.dim for encoder in positional_encoders or ())
        self.position_map = nn.Linear(positions, hidden_dim, bias=False) if positions else None
        self.position_norm = make_norm(norm, hidden_dim) if positions else None

        def layer(attention: nn.Module | None = None, gate: nn.Module | None = None) -> GPSLayer:
            local = GatedGCNLayer(hidden_dim, dropout, norm)
            local.gate = gate
            return GPSLayer(hidden_dim, local, attention, dropout, norm)

        self.before = layer()
        self.logits = nn.Sequential(
            nn.Linear(hidden_dim, 2 * hidden_dim),
            nn.ReLU(),
            nn.Linear(2 * hidden_dim, num_clusters),
            make_norm(norm, num_clusters),
        )
        self.within = layer(ClusterAttention(hidden_dim, num_heads, attention_dropout))
        # Gates of padding edges are 0. The norm of edges also reads them, but its output is unused.
        self.among = layer(gate=nn.Identity())

    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """Count the links that the loss compares with clusters, in training."""
        if generator is None or not self.link_weight:
            return {}
        links, counts = count_links(batch.edge_index, len(batch.batch))
        return {"links": links, "link_counts": counts}

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes, edges and graphs, `[..., hidden_dim]`."""
        x, edge = self._encode(batch), self.edge_encoder(batch)
        assignment = assign(self.logits(self.before(x, edge, batch)[0]), self.training)
        layout = DenseLayout.from_batch(batch)
        clusters = clusters_of(assignment, batch, layout)
        weight = clusters.weight if self.edges_teach else clusters.weight.detach()
        # Means of the encoded edges, before GPS_2 updates them.
        between, present = cluster_edges(batch.edge_index, edge, weight, clusters)
        # A GPS layer passes the layout to its attention without inspecting it.
        x, edge = self.within(x, edge, batch, cast(DenseLayout, clusters))
        sums = self.pooling(x, clusters.number, batch.num_graphs * self.num_clusters)
        # Without attention the layer reads only the edges of its batch; torch.compile cannot create a `Data`.
        cluster, _ = self.among(sums, between, cast(Data, clusters), distances=present)
        penalty = None
        if self.link_weight and self.training:
            penalty = self.link_weight * link_loss(assignment, batch, layout, (batch.links, batch.link_counts))
        node, graph = x + cluster.index_select(0, clusters.number), cluster.unflatten(0, (-1, self.num_clusters)).sum(1)
        return Representation(node=node, edge=edge, graph=graph, penalty=penalty)

    def _encode(self, batch: GraphBatch) -> Tensor:
        x: Tensor = self.node_encoder(batch)
        if self.position_map is None or self.position_norm is None:
            return x
        positions = torch.cat([encoder(batch) for encoder in self.positional], dim=-1)
        return x + self.position_norm(self.position_map(positions.to(self.position_map.weight.dtype))).relu()
