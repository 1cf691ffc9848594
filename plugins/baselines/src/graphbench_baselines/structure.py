"""Structure extractors of SAT: representations of the subtree or subgraph around a node, using any network.

Chen, O'Bray & Borgwardt, "Structure-Aware Transformer for Graph Representation Learning", ICML 2022, section 4.2.
Legend: P node pairs, S (root, member) pairs of all subgraphs, M their edges, k hops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GraphConv, SAGEConv

from graphbench import GraphBatch, PositionalEncoder
from graphbench.encodings import RWSE, ShortestPaths
from graphbench.errors import check_choice
from graphbench.nn import GCNConvolution, GINConvolution, GINEConvolution, NormName, count_nodes, make_norm, node_pairs
from graphbench_baselines.tower_pna import TowerPNA

#: Message passing inside an extractor. PNA has the aggregators mean, sum and max and no degree scalers, as published.
GNN = Literal["GCN", "GIN", "GINE", "GraphConv", "GraphSAGE", "PNA"]
#: Input of the extractor: k rounds of messages on the whole graph, or on the k-hop subgraph of each node.
Extractor = Literal["subtree", "subgraph"]
#: Networks that read edge vectors.
EDGE_GNNS = ("GINE", "PNA")


class RandomWalkPE(PositionalEncoder):
    """Return probabilities of random walks of 1 .. `num_steps` steps, unmapped, since SAT maps them itself.

    Args:
        num_steps: longest walk; also the width of the result.

    Examples:
        >>> encoder = RandomWalkPE(num_steps=8)
        >>> encoder.dim, encoder.encodings
        (8, (RWSE(num_steps=8),))
    """

    def __init__(self, num_steps: int = 20) -> None:
        super().__init__()
        self.dim = num_steps
        self.encodings = (RWSE(num_steps),)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return features of every node `[num_nodes, num_steps]`."""
        probabilities: Tensor = batch.rwse
        return probabilities


@dataclass(frozen=True)
class Subgraphs:
    """The k-hop subgraphs of all nodes of a batch as one large graph.

    Args:
        root: node whose subgraph a member belongs to `[S]`.
        member: node of each member `[S]`.
        edge_index: edges between members of one subgraph `[2, M]`, numbers below S.
        edge: corresponding edge of the batch `[M]`.
    """

    root: Tensor
    member: Tensor
    edge_index: Tensor
    edge: Tensor


def khop_subgraphs(batch: GraphBatch, num_hops: int) -> Subgraphs:
    """Extract, for every node, the induced subgraph of the nodes that reach it within k edges.

    Args:
        batch: graphs with the distances of `subgraph_distances(k)`.
        num_hops: k.
    """
    member, root = node_pairs(batch, batch.shortest_path_distance.shape[0])
    inside = batch.shortest_path_distance <= num_hops
    # Number of each pair among the members, -1 if farther apart than k.
    number = torch.where(inside, inside.cumsum(0) - 1, -1)
    root, member = root[inside], member[inside]
    source, target = batch.edge_index[0], batch.edge_index[1]
    # Combine each member with the outgoing edges of its node; keep an edge if its other end is in the subgraph.
    by_source = source.argsort(stable=True)
    degree = count_nodes(source, cast(int, batch.num_nodes))
    first = degree.cumsum(0) - degree
    start = torch.repeat_interleave(torch.arange(member.shape[0], device=member.device), degree[member])
    offset = torch.arange(start.shape[0], device=start.device) - (degree[member].cumsum(0) - degree[member])[start]
    edge = by_source[first[member[start]] + offset]
    graph = batch.batch[root[start]]
    position = target[edge] - batch.ptr[graph]
    # Distances are stored from row to column: the pair (member, root) tells whether the member reaches the root.
    pair = batch.pair_ptr[graph] + position * batch.ptr.diff()[graph] + root[start] - batch.ptr[graph]
    end = number[pair]
    both = end >= 0
    return Subgraphs(root, member, torch.stack([start[both], end[both]]), edge[both])


@dataclass(frozen=True)
class NetworkEdges:
    """The edges along which an extractor's network sends messages, sorted by target.

    Args:
        edge_index: edges `[2, M]`, of the graphs or of the subgraphs, targets ascending.
        edge: their vectors `[M, edge_dim]`; None if the network reads none.
        arriving: number of edges into each node or member.
        subgraphs: subgraphs, for the subgraph extractor.
    """

    edge_index: Tensor
    edge: Tensor | None
    arriving: Tensor
    subgraphs: Subgraphs | None = None


def network_edges(batch: GraphBatch, edge: Tensor | None, subgraphs: Subgraphs | None = None) -> NetworkEdges:
    """Collect the edges of the graphs, or of all subgraphs, sorted by target; once for all layers.

    Args:
        batch: the graphs.
        edge: vectors of its edges `[num_edges, edge_dim]`.
        subgraphs: subgraphs of its nodes.
    """
    index, nodes = batch.edge_index, cast(int, batch.num_nodes)
    if subgraphs is not None:
        index, nodes = subgraphs.edge_index, subgraphs.member.shape[0]
    order = index[1].argsort(stable=True)
    index = index[:, order]
    numbers = order if subgraphs is None else subgraphs.edge[order]
    vectors = None if edge is None else edge.index_select(0, numbers)
    return NetworkEdges(index, vectors, count_nodes(index[1], nodes), subgraphs)


class MessagePassing(nn.Module):
    """k rounds of messages, each followed by ReLU.

    Args:
        gnn: kind of network.
        dim: width of the nodes.
        num_layers: rounds k.
        edge_dim: width of edge vectors; None if there are none.
        num_towers: towers of PNA; must divide `dim`.

    Raises:
        BadInput: the name is unknown, or `num_towers` does not divide `dim`.
    """

    def __init__(self, gnn: GNN, dim: int, num_layers: int, edge_dim: int | None, num_towers: int) -> None:
        super().__init__()
        check_choice("gnn", gnn, get_args(GNN))
        self.reads_edges = gnn in EDGE_GNNS and edge_dim is not None
        self.layers = nn.ModuleList(_make_convolution(gnn, dim, edge_dim, num_towers) for _ in range(num_layers))

    def forward(self, x: Tensor, edges: NetworkEdges) -> list[Tensor]:
        """Return the nodes `[num_nodes, dim]` before the first and after each round."""
        index, edge = edges.edge_index, edges.edge if self.reads_edges else None
        states = [x]
        for layer in self.layers:
            if isinstance(layer, TowerPNA):
                new = layer(states[-1], index, edge, edges.arriving)
            else:
                new = layer(states[-1], index) if edge is None else layer(states[-1], index, edge)
            states.append(F.relu(new))
        return states


class SubtreeExtractor(nn.Module):
    """`W Norm([x, h^1, ..., h^k]) + b`, h^l the nodes after l rounds of messages on the whole graph.

    Args:
        network: the k rounds.
        dim: width of the nodes.
        norm: batch, layer or none.
    """

    def __init__(self, network: MessagePassing, dim: int, norm: NormName) -> None:
        super().__init__()
        self.network = network
        width = (len(network.layers) + 1) * dim
        self.norm = make_norm(norm, width)
        self.linear = nn.Linear(width, dim)

    def forward(self, x: Tensor, edges: NetworkEdges) -> Tensor:
        """Return the structure of every node `[num_nodes, dim]`."""
        out: Tensor = self.linear(self.norm(torch.cat(self.network(x, edges), dim=-1)))
        return out


class SubgraphExtractor(nn.Module):
    """`W Norm([x, sum_{j in N_k(i)} h_j^(i)]) + b`, h^(i) the nodes of the subgraph of i after k rounds within it.

    Args:
        network: the k rounds.
        dim: width of the nodes.
        norm: batch, layer or none.
        released: include an unused norm and map of the authors' code; `dim^2 + 3 dim` parameters.
    """

    def __init__(self, network: MessagePassing, dim: int, norm: NormName, released: bool = False) -> None:
        super().__init__()
        self.network = network
        self.norm = make_norm(norm, 2 * dim)
        self.linear = nn.Linear(2 * dim, dim)
        self.unused = nn.ModuleList([make_norm(norm, dim), nn.Linear(dim, dim)] if released else [])

    def forward(self, x: Tensor, edges: NetworkEdges) -> Tensor:
        """Return the structure of every node `[num_nodes, dim]`."""
        subgraphs = edges.subgraphs
        assert subgraphs is not None
        member = self.network(x[subgraphs.member], edges)[-1]
        member = member.to(torch.promote_types(member.dtype, torch.float32))  # bfloat16 sums may end at 256
        pooled = torch.zeros_like(x, dtype=member.dtype).index_add(0, subgraphs.root, member)
        out: Tensor = self.linear(self.norm(torch.cat([x, pooled.to(x.dtype)], dim=-1)))
        return out


def subgraph_distances(num_hops: int) -> ShortestPaths:
    """Return the encoding of `khop_subgraphs`; its largest distance, k + 1, represents all larger ones."""
    return ShortestPaths(max_distance=num_hops + 1)


def _make_convolution(gnn: GNN, dim: int, edge_dim: int | None, num_towers: int) -> nn.Module:
    if gnn in ("GIN", "GINE"):
        mlp = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        if gnn == "GINE" and edge_dim is not None:
            return GINEConvolution(mlp, train_eps=True, edge_dim=edge_dim)
        return GINConvolution(mlp, train_eps=True)
    if gnn == "PNA":
        return TowerPNA(dim, edge_dim, num_towers)
    plain = {"GCN": GCNConvolution, "GraphConv": GraphConv, "GraphSAGE": SAGEConv}
    made: nn.Module = plain[gnn](dim, dim)
    return made
