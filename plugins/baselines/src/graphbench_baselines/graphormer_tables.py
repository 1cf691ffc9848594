"""What Graphormer embeds: node features with degrees, distances, and the edges on shortest paths.

Ying et al., "Do Transformers Really Perform Badly for Graph Representation?", NeurIPS 2021, section 3.1. Legend: G
graphs, P node pairs, E edges, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import BenchmarkSpec, GraphBatch
from graphbench.encodings import Degree, ShortestPaths, path_edges_in_batch
from graphbench.errors import BadInput
from graphbench.nn import FeatureEncoder, NodeEncoder


@dataclass(frozen=True)
class TableSizes:
    """Rows of the embedding tables of a released code, which published parameter counts include.

    Value x of feature column f reads row `x + first + step * f`; values past the end share the last row.

    Args:
        atoms: rows for features of nodes.
        degrees: rows for in-degrees, and as many for out-degrees.
        edges: rows for features of edges.
        hops: H x H matrices, one a hop.
        distances: rows for distances.
        step: rows between the first values of two feature columns; 0 where only one column fits.
        first: row of value 0 of a node's column 0.
    """

    atoms: int
    degrees: int
    edges: int
    hops: int
    distances: int
    step: int
    first: int

    def check(self, spec: BenchmarkSpec) -> None:
        """Raise `BadInput` for features that the tables cannot hold."""
        columns = max(len(spec.node.vocabularies), len(spec.edge.vocabularies))
        dense = spec.node.dense + spec.edge.dense + spec.coordinates
        if not spec.node.vocabularies or dense or (columns > 1 and not self.step):
            raise BadInput(
                f"released: true reads categorical features only{'' if self.step else ', one column of each'}, but "
                f"{spec.name} has node vocabularies {spec.node.vocabularies}, edge vocabularies "
                f"{spec.edge.vocabularies} and {dense} dense columns and coordinates."
            )

    def rows(self, values: Tensor, first: int, size: int) -> Tensor:
        """Rows of a table of `size` rows for categorical columns `[rows, columns]`."""
        columns = torch.arange(values.shape[1], device=values.device)
        return (values + first + self.step * columns).clamp(max=size - 1)


#: The first code on ZINC, and the second code (for fairseq) as DeepGraph's authors took it.
FIRST_TABLES = TableSizes(atoms=64, degrees=64, edges=64, hops=40, distances=40, step=0, first=1)
SECOND_TABLES = TableSizes(atoms=91, degrees=512, edges=31, hops=128, distances=512, step=10, first=2)


class CentralityEmbedding(nn.Module):
    """`h_i = features(x_i) + z^-[in-degree_i] + z^+[out-degree_i]` (equation 5), `[num_nodes, dim]`.

    Args:
        spec: the benchmark's description.
        dim: width.
        max_degree: larger degrees share its row.
        tables: sizes of a released code; None for tables as large as the benchmark's features.
    """

    def __init__(self, spec: BenchmarkSpec, dim: int, max_degree: int, tables: TableSizes | None = None) -> None:
        super().__init__()
        self.tables = tables
        degrees = max_degree + 1 if tables is None else tables.degrees
        self.encodings = (Degree(degrees - 1),)
        self.features = NodeEncoder(spec, dim, categorical="normal") if tables is None else None
        self.atom = nn.Embedding(tables.atoms, dim) if tables is not None else None
        self.in_degree = nn.Embedding(degrees, dim)
        self.out_degree = nn.Embedding(degrees, dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Vectors of all nodes `[num_nodes, dim]`."""
        centrality = self.in_degree(batch.in_degree) + self.out_degree(batch.out_degree)
        if self.features is not None:
            encoded: Tensor = self.features(batch)
        else:
            assert self.tables is not None
            assert self.atom is not None
            rows = self.tables.rows(batch.x, self.tables.first, self.tables.atoms)
            encoded = F.embedding_bag(rows, self.atom.weight, mode="sum")
        return encoded + centrality


class PathEdges(nn.Module):
    """Bias from the edges on a shortest path (equation 7): `[P, H]`.

    `c_ij = 1/k sum_{h=1..k} q(e_h) W_h`, with e_h the h-th edge of one shortest path i -> j and k the number of its
    edges, at most `max_hops`; 0 for i = j and where no path leads. `q(e) W_h` is computed once for every edge and hop,
    then gathered and summed in one pass, so no `[P, max_hops, H]` tensor exists.

    Args:
        spec: the benchmark's description; its edges have features.
        num_heads: heads H.
        max_hops: edges of a path that count.
        tables: sizes of a released code, whose columns are averaged; None for a table as large as the features.
    """

    def __init__(self, spec: BenchmarkSpec, num_heads: int, max_hops: int, tables: TableSizes | None = None) -> None:
        super().__init__()
        self.max_hops, self.tables = max_hops, tables
        self.features = FeatureEncoder(spec.edge, num_heads, categorical="normal") if tables is None else None
        self.table = nn.Embedding(tables.edges, num_heads) if tables is not None else None
        hops = max_hops if tables is None else tables.hops
        self.hops = nn.Parameter(torch.empty(hops, num_heads, num_heads))

    def edges(self, batch: GraphBatch) -> Tensor:
        """The vector q of every edge `[E, H]`."""
        if self.features is not None:
            encoded: Tensor = self.features(batch.get("edge_attr"), batch.get("edge_dense"))
            return encoded
        assert self.tables is not None
        assert self.table is not None
        rows = self.tables.rows(batch.edge_attr, self.tables.first + 1, self.tables.edges)
        return F.embedding_bag(rows, self.table.weight, mode="mean")

    def forward(self, batch: GraphBatch) -> Tensor:
        """The term of every node pair `[P, H]`."""
        by_hop = torch.einsum("eh,khg->ekg", self.edges(batch), self.hops[: self.max_hops]).flatten(0, 1)
        path = path_edges_in_batch(batch)
        inside = path >= 0
        # Row 0 stands for "no edge".
        row = torch.where(inside, path * self.max_hops + torch.arange(self.max_hops, device=path.device) + 1, 0)
        table = torch.cat([by_hop.new_zeros(1, by_hop.shape[1]), by_hop])
        total = F.embedding_bag(row, table, mode="sum", padding_idx=0)
        return total / inside.sum(1, keepdim=True).clamp(min=1)


class SpatialBias(nn.Module):
    """What Graphormer adds to attention logits (equations 6 and 7), the same in all layers.

    Node pair (i, j): `D[distance_ij, h]` + edge term; the graph token to anything and anything to it: `t[h]`. Pairs
    that no path joins have a row of D of their own and no edge term.

    Args:
        spec: the benchmark's description.
        num_heads: heads H.
        max_distance: larger distances share its row.
        max_hops: edges of a path that count; 0 leaves the edge term out, as do edges without features.
        tables: sizes of a released code; they decide `max_distance` too. Without edge features its edge tables are
            carried, but not read: the released term is then a constant for each distance.
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        num_heads: int,
        max_distance: int,
        max_hops: int,
        tables: TableSizes | None = None,
    ) -> None:
        super().__init__()
        has_edges = bool(spec.edge.vocabularies or spec.edge.dense)
        if tables is not None:
            max_distance = tables.distances - 3  # one row stands for padding, one for unreachable pairs
        self.reads_edges = has_edges and max_hops > 0
        paths = ShortestPaths(max_distance, with_edges=max_hops if self.reads_edges else 0)
        self.encodings = (paths,)
        self.distance = nn.Embedding(paths.num_distances if tables is None else tables.distances, num_heads)
        self.token = nn.Embedding(1, num_heads)
        self.edge_term = None
        if self.reads_edges or tables is not None:
            self.edge_term = PathEdges(spec, num_heads, max_hops, tables)

    def pairs(self, batch: GraphBatch) -> Tensor:
        """The bias of every node pair `[P, H]`, pair `i * n + j` of a graph."""
        rows: Tensor = self.distance(batch.shortest_path_distance)
        if self.edge_term is not None and self.reads_edges:
            rows = rows + self.edge_term(batch)
        return rows

    def forward(self, batch: GraphBatch, node_slots: Tensor, padded: int) -> Tensor:
        """The bias `[G, H, N, N]` in the precision of the parameters, rows are queries; padding is arbitrary.

        Args:
            batch: the graphs.
            node_slots: slot of each node among the `G * N` padded ones `[num_nodes]`.
            padded: padded tokens N of a graph.
        """
        with torch.autocast(batch.ptr.device.type, enabled=False):
            everything = batch.num_graphs * padded**2
            bias = self.token.weight.repeat(everything, 1)
            bias = bias.index_copy(0, _pair_slots(batch, node_slots, padded), self.pairs(batch))
            return bias.view(-1, padded, padded, bias.shape[-1]).permute(0, 3, 1, 2).contiguous()


def _pair_slots(batch: GraphBatch, node_slots: Tensor, padded: int) -> Tensor:
    """Place of every node pair among all `G * N * N` pairs of slots `[P]`."""
    sizes, first = batch.ptr.diff(), batch.pair_ptr
    graph = torch.repeat_interleave(
        torch.arange(batch.num_graphs, device=first.device), first.diff(), output_size=len(batch.shortest_path_distance)
    )
    rank = torch.arange(len(graph), device=first.device) - first[graph]
    start, size = batch.ptr[graph], sizes[graph]
    query, key = node_slots[start + rank // size], node_slots[start + rank % size]
    return query * padded + key % padded
