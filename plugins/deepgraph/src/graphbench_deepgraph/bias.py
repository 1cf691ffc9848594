"""Who attends to whom and with which bias; built once per forward pass and shared by all layers.

Legend: G graphs, N padded tokens, H heads, P node pairs, E edges, K memberships of nodes in drawn substructures.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import BenchmarkSpec, GraphBatch
from graphbench.encodings import ShortestPaths, path_edges_in_batch
from graphbench.errors import BadInput
from graphbench.nn import FeatureEncoder
from graphbench_deepgraph.features import EMBEDDING_STD, released_rows
from graphbench_deepgraph.tokens import TokenLayout

#: Edges of a shortest path that enter the edge term.
MAX_HOPS = 5
#: Rows of the released tables of edges, hops and distances.
_RELEASED_EDGES, _RELEASED_HOPS, _RELEASED_DISTANCES = 31, 128, 512


class PathEdgeTerm(nn.Module):
    """Bias from the edges on a shortest path (Graphormer, equation 7): `[P, H]`.

    `c_ij = 1/k sum_{h=1..k} q(e_h) W_h`, with e_h the h-th edge of one shortest path i -> j and k the number of its
    edges, at most 5; 0 for i = j and where no path leads. `q(e) W_h` is computed once for every edge and hop and then
    gathered and summed in one pass, so no `[P, 5, H]` tensor exists. Parameters: q and `5 H^2`.

    Args:
        spec: the benchmark's description; its edges have features.
        num_heads: heads H.
    """

    def __init__(self, spec: BenchmarkSpec, num_heads: int) -> None:
        super().__init__()
        self.features = FeatureEncoder(spec.edge, num_heads, categorical="normal")
        self.hops = nn.Parameter(torch.empty(MAX_HOPS, num_heads, num_heads))
        nn.init.normal_(self.hops, std=EMBEDDING_STD)
        if self.features.table is not None:
            nn.init.normal_(self.features.table, std=EMBEDDING_STD)

    def edges(self, batch: GraphBatch) -> Tensor:
        """The vector q of every edge `[E, H]`."""
        return self.features(batch.get("edge_attr"), batch.get("edge_dense"))

    def forward(self, batch: GraphBatch) -> Tensor:
        """The term of every node pair `[P, H]`."""
        edges = self.edges(batch)
        by_hop = torch.einsum("eh,khg->ekg", edges, self.hops[:MAX_HOPS]).flatten(0, 1)
        path = path_edges_in_batch(batch)
        inside = path >= 0
        # Row 0 stands for "no edge".
        row = torch.where(inside, path * MAX_HOPS + torch.arange(MAX_HOPS, device=path.device) + 1, 0)
        table = torch.cat([by_hop.new_zeros(1, by_hop.shape[1]), by_hop])
        total = F.embedding_bag(row, table, mode="sum", padding_idx=0)
        return total / inside.sum(1, keepdim=True).clamp(min=1)


class ReleasedPathEdgeTerm(PathEdgeTerm):
    """The same with the released tables: 31 edges and 128 hops, of which 5 are read.

    Without edge features nothing is read at all: the released term is then a constant for each distance.

    Args:
        spec: the benchmark's description.
        num_heads: heads H.

    Raises:
        BadInput: edges have dense features, which the table cannot hold.
    """

    def __init__(self, spec: BenchmarkSpec, num_heads: int) -> None:
        nn.Module.__init__(self)
        if spec.edge.dense:
            raise BadInput(f"released: true reads categorical edge features only, but {spec.name} has dense ones.")
        self.table = nn.Embedding(_RELEASED_EDGES, num_heads)
        self.hops = nn.Parameter(torch.empty(_RELEASED_HOPS, num_heads, num_heads))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=EMBEDDING_STD)

    def edges(self, batch: GraphBatch) -> Tensor:
        """Mean over the feature columns `[E, H]`."""
        rows = released_rows(batch.edge_attr, first=3, size=_RELEASED_EDGES)
        return F.embedding_bag(rows, self.table.weight, mode="mean")


class RelativeBias(nn.Module):
    """What is added to attention logits, minus infinity where no attention is allowed: `[G, H, N, N]`.

    | query, key | bias of head h |
    |---|---|
    | node, node | `D[distance, h]` + edge term |
    | graph token, any; any, graph token | `t[h]` |
    | substructure, its node; node, its substructure | `D[member, h]` |
    | everything else | minus infinity |

    So nodes attend to all nodes of their graph, but a substructure to its own nodes and the graph token only, not even
    to itself (section 5). Padded queries see the graph token, which keeps their softmax finite.

    Args:
        spec: the benchmark's description.
        num_heads: heads H.
        max_distance: larger distances share its row; unreachable pairs have their own.
        members: whether there are substructures.
        released: take the released tables, see `ReleasedPathEdgeTerm`; substructures then share the row of pairs that
            no path joins.
    """

    def __init__(
        self, spec: BenchmarkSpec, num_heads: int, max_distance: int, members: bool = True, released: bool = False
    ) -> None:
        super().__init__()
        has_edges = bool(spec.edge.vocabularies or spec.edge.dense)
        if released:
            max_distance = _RELEASED_DISTANCES - 3  # one row stands for padding, one for unreachable pairs
        paths = ShortestPaths(max_distance, with_edges=MAX_HOPS if has_edges else 0)
        self.encodings = (paths,)
        num_distances = _RELEASED_DISTANCES if released else paths.num_distances
        self.member_row = paths.unreachable if released else num_distances
        self.distance = nn.Parameter(torch.empty(num_distances + (members and not released), num_heads))
        self.graph = nn.Parameter(torch.empty(1, num_heads))
        nn.init.normal_(self.distance, std=EMBEDDING_STD)
        nn.init.normal_(self.graph, std=EMBEDDING_STD)
        self.has_edges = has_edges
        self.edge_term: PathEdgeTerm | None = None
        if released:
            self.edge_term = ReleasedPathEdgeTerm(spec, num_heads)
        elif has_edges:
            self.edge_term = PathEdgeTerm(spec, num_heads)

    def forward(self, batch: GraphBatch, tokens: TokenLayout) -> Tensor:
        """The bias `[G, H, N, N]` in the precision of the parameters, rows are queries."""
        with torch.autocast(batch.ptr.device.type, enabled=False):
            hidden = self.graph.new_full((1, self.graph.shape[1]), -torch.inf)
            table = torch.cat([self.distance, self.graph, hidden])
            pairs = _pair_slots(batch, tokens)
            rows = F.embedding(self._codes(batch, tokens, pairs), table)
            if self.edge_term is not None and self.has_edges:
                rows = rows.index_add(0, pairs, self.edge_term(batch))
            padded = tokens.dense.max_nodes
            return rows.view(-1, padded, padded, rows.shape[-1]).permute(0, 3, 1, 2).contiguous()

    def _codes(self, batch: GraphBatch, tokens: TokenLayout, pairs: Tensor) -> Tensor:
        """Row of the table for every pair of slots `[G * N * N]`."""
        dense, padded = tokens.dense, tokens.dense.max_nodes
        graph_row, hidden_row = len(self.distance), len(self.distance) + 1
        codes = torch.full((dense.num_graphs * padded**2,), hidden_row, device=pairs.device)
        codes[pairs] = batch.shortest_path_distance
        node, substructure = dense.index[tokens.member_node], dense.index[tokens.member_substructure]
        codes[substructure * padded + node % padded] = self.member_row
        codes[node * padded + substructure % padded] = self.member_row
        graph = dense.index[tokens.graph]
        everything = torch.arange(dense.num_graphs * padded, device=pairs.device)
        codes[everything * padded + (graph % padded).repeat_interleave(padded)] = graph_row
        codes[graph[tokens.batch] * padded + dense.index % padded] = graph_row
        return codes


def _pair_slots(batch: GraphBatch, tokens: TokenLayout) -> Tensor:
    """Place of every node pair among all pairs of slots `[P]`."""
    padded, first = tokens.dense.max_nodes, batch.pair_ptr
    numbers = torch.arange(batch.num_graphs, device=first.device)
    graph = torch.repeat_interleave(numbers, first.diff(), output_size=len(batch.shortest_path_distance))
    rank = torch.arange(len(graph), device=first.device) - first[graph]
    size = tokens.num_nodes[graph]
    query, key = rank // size, rank % size
    return (graph * padded + query) * padded + key
