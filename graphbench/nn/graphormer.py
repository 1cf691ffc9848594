"""Parts shared by Graphormer and later models: degrees, distances, edges on shortest paths, read-out, weights.

Ying et al., "Do Transformers Really Perform Badly for Graph Representation?", NeurIPS 2021, arXiv 2106.05234, section
3.1. Legend: G graphs, N padded tokens, P node pairs, E edges, H heads, d width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench.contracts import BenchmarkSpec, GraphBatch
from graphbench.contracts.trace import ReadsFeatures
from graphbench.encodings import Degree, ShortestPaths, Ties
from graphbench.errors import BadInput, check_choice
from graphbench.nn.features import FeatureEncoder, NodeEncoder
from graphbench.nn.pairs import PathSteps, node_pairs

#: Standard deviation of embeddings at initialisation.
EMBEDDING_STD = 0.02
#: Initialisation of linear maps. "normal": normally distributed weights and zero biases, as in Graphormer's code.
#: "xavier": Xavier-uniform in attention and PyTorch's default elsewhere, as in fairseq's encoder.
WeightInit = Literal["normal", "xavier"]


@dataclass(frozen=True)
class ReleasedTables:
    """Sizes of the embedding tables in a released code, which published parameter counts include.

    Value x of feature column f reads row `x + first + step * f`, so columns overlap: on PCQM4M silicon reads the row of
    a chirality. Values past the end, on which the released code fails, share the last row.

    Args:
        atoms: rows for features of nodes.
        degrees: rows for in-degrees, and as many for out-degrees.
        edges: rows for features of edges.
        hops: H x H matrices, one per hop.
        distances: rows for distances.
        step: rows between the first values of two feature columns; 0 if only one column fits.
        first: row of value 0 of a node's column 0; for edges it is the next row.

    Examples:
        >>> FAIRSEQ_TABLES.max_distance
        509
    """

    atoms: int
    degrees: int
    edges: int
    hops: int
    distances: int
    step: int
    first: int

    @property
    def max_distance(self) -> int:
        """Largest distance with a separate row: one row is for padding, one for pairs without a path."""
        return self.distances - 3

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


#: Sizes in Graphormer's second code, for fairseq, which DeepGraph's authors reused.
FAIRSEQ_TABLES = ReleasedTables(atoms=91, degrees=512, edges=31, hops=128, distances=512, step=10, first=2)


class ReleasedFeatures(ReadsFeatures):
    """Embed categorical columns with one table of a released code: `out = sum_f or mean_f T[row(x_f, f)]`."""

    def __init__(self, size: int, dim: int, first: int, step: int, mode: Literal["sum", "mean"]) -> None:
        super().__init__()
        self.first, self.step, self.mode = first, step, mode
        self.table = nn.Parameter(torch.empty(size, dim))
        nn.init.normal_(self.table, std=EMBEDDING_STD)

    def forward(self, categories: Tensor) -> Tensor:
        """Return the vectors `[num_rows, d]` of columns `[num_rows, columns]`."""
        columns = torch.arange(categories.shape[1], device=categories.device)
        # Clamped because the released code fails on values past its table.
        rows = (categories + self.first + self.step * columns).clamp(max=len(self.table) - 1)
        return F.embedding_bag(rows, self.table, mode=self.mode)


class CentralityEmbedding(nn.Module):
    """`h_i = features(x_i) + z^-[in-degree_i] + z^+[out-degree_i]` (equation 5), `[num_nodes, d]`.

    Args:
        spec: the benchmark's description.
        dim: width d.
        max_degree: larger degrees share its row.
        tables: sizes of a released code, which determine `max_degree` and always have both directions; None for tables
            that fit the benchmark's features.
        directed: False omits `z^+`: in undirected graphs both tables would read the same row.

    Raises:
        BadInput: the released tables cannot hold the features.

    Examples:
        >>> from graphbench.testing import encode, tiny_spec, tiny_table
        >>> spec = tiny_spec(kind="categorical")
        >>> embedding = CentralityEmbedding(spec, dim=8, max_degree=5)
        >>> embedding(encode(tiny_table(spec, sizes=[3, 2]), embedding.encodings).batch([0, 1])).shape
        torch.Size([5, 8])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        dim: int,
        max_degree: int,
        tables: ReleasedTables | None = None,
        directed: bool = True,
    ) -> None:
        super().__init__()
        self.features: NodeEncoder | ReleasedFeatures
        if tables is None:
            self.features = NodeEncoder(spec, dim, categorical="normal")
            degrees = max_degree + 1
        else:
            tables.check(spec)
            self.features = ReleasedFeatures(tables.atoms, dim, tables.first, tables.step, "sum")
            degrees = tables.degrees
        # The last row is for `max_degree` and all larger degrees.
        self.encodings = (Degree(degrees - 1),)
        self.in_degree = nn.Embedding(degrees, dim)
        self.out_degree = nn.Embedding(degrees, dim) if directed or tables is not None else None
        _draw_embeddings(self)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the vectors of all nodes `[num_nodes, d]`."""
        encoded: Tensor = self.features(batch.x if isinstance(self.features, ReleasedFeatures) else batch)
        encoded = encoded + self.in_degree(batch.in_degree)
        return encoded if self.out_degree is None else encoded + self.out_degree(batch.out_degree)


class PathEdgeTerm(nn.Module):
    """Bias from the edges on shortest paths (equation 7): `[P, H]`.

    `c_ij = 1/k sum_{h=1..k} q_ij^h W_h`, with q_ij^h the mean of q(e) over the h-th edges e of all shortest paths
    from i to j and k the number of edges of such a path, at most `max_hops`; 0 for i = j and for pairs without a path.
    Equation 7 is for one shortest path and does not say which; a choice among several would depend on how nodes or
    edges are numbered. Parameters: q and `max_hops H^2`.

    `q^1 = S q` and `q^{h+1} = T q^h`, with sparse matrices S and T that average over the first steps of all shortest
    paths of a pair: S averages values of edges, T values of the pairs of an edge's head and j. So
    `k c = q^1 W_1 + T (q^1 W_2 + T (q^1 W_3 + ...))`, without a list of paths or a `[P, max_hops, H]` tensor.

    Args:
        spec: the benchmark's description; its edges have features.
        num_heads: heads H.
        max_hops: number of edges of a path that count.
        tables: sizes of a released code, which averages the columns and has more W than it reads; None for a table
            that fits the features.

    Examples:
        >>> from graphbench.testing import tiny_spec
        >>> tuple(PathEdgeTerm(tiny_spec(kind="categorical"), num_heads=4, max_hops=2).hops.shape)  # W_1 and W_2
        (2, 4, 4)
    """

    def __init__(
        self, spec: BenchmarkSpec, num_heads: int, max_hops: int, tables: ReleasedTables | None = None
    ) -> None:
        super().__init__()
        self.max_hops = max_hops
        self.features: FeatureEncoder | ReleasedFeatures
        if tables is None:
            self.features = FeatureEncoder(spec.edge, num_heads, categorical="normal")
        else:
            self.features = ReleasedFeatures(tables.edges, num_heads, tables.first + 1, tables.step, "mean")
        self.hops = nn.Parameter(torch.empty(max_hops if tables is None else tables.hops, num_heads, num_heads))
        _draw_embeddings(self)

    def edges(self, batch: GraphBatch) -> Tensor:
        """Return the vector q of every edge `[E, H]`."""
        if isinstance(self.features, ReleasedFeatures):
            return self.features(batch.edge_attr)
        return self.features(batch.get("edge_attr"), batch.get("edge_dense"))

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the term of every node pair `[P, H]`."""
        steps = PathSteps(batch)
        edges = self.edges(batch)
        first = steps.mean_over(steps.edge, edges.shape[0])(edges)
        onward = steps.mean_over(steps.following, first.shape[0])
        maps = self.hops.unbind()
        # From the last hop to the first, as in Horner's rule.
        total = first @ maps[self.max_hops - 1]
        for hop in reversed(range(self.max_hops - 1)):
            total = torch.addmm(onward(total), first, maps[hop])
        # Pairs without a step have an empty sum, which stays 0; `clamp` is only for them.
        return total / steps.lengths(self.max_hops)[:, None].clamp(min=1)


class PairBias(nn.Module):
    """Base class of attention biases: `D[distance_ij, h]` + edge term of node pair (i, j) (equations 6 and 7).

    Pairs without a path have a separate row of D and no edge term. A model provides the bias at the pairs of other
    tokens and calls `place` to insert the node pairs among them.

    Args:
        spec: the benchmark's description.
        num_heads: heads H.
        max_distance: larger distances share its row.
        max_hops: number of edges of a path that count; 0 omits the edge term, as do edges without features.
        tables: sizes of a released code; they also determine `max_distance`. Without edge features its edge tables are
            allocated, but not read: the released term is then a constant for each distance.
        ties: which edges enter the edge term if a pair has several shortest paths: those of all paths, averaged, or
            those of one, see `ShortestPaths`.

    Raises:
        BadInput: the released tables cannot hold the features.

    Examples:
        >>> from graphbench.testing import tiny_spec
        >>> bias = PairBias(tiny_spec(kind="categorical"), num_heads=4, max_distance=5, max_hops=2)
        >>> tuple(bias.distance.weight.shape)  # distances 0 to 5, and pairs without a path
        (7, 4)
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        num_heads: int,
        max_distance: int,
        max_hops: int,
        tables: ReleasedTables | None = None,
        ties: Ties = "all",
    ) -> None:
        super().__init__()
        if tables is not None:
            tables.check(spec)
            max_distance = tables.max_distance
        has_edges = bool(spec.edge.vocabularies or spec.edge.dense)
        self.reads_edges = has_edges and max_hops > 0
        self.paths = ShortestPaths(max_distance, self.reads_edges, ties if self.reads_edges else "all")
        self.encodings = (self.paths,)
        self.distance = nn.Embedding(self.paths.num_distances if tables is None else tables.distances, num_heads)
        nn.init.normal_(self.distance.weight, std=EMBEDDING_STD)
        # The released code has edge tables even if it reads no edge feature; published counts include them.
        carried = self.reads_edges or tables is not None
        self.edge_term = PathEdgeTerm(spec, num_heads, max_hops, tables) if carried else None

    def pairs(self, batch: GraphBatch) -> Tensor:
        """Return the bias of every node pair `[P, H]`, pair `i * n + j` of a graph."""
        rows: Tensor = self.distance(batch.shortest_path_distance)
        if self.edge_term is not None and self.reads_edges:
            rows = rows + self.edge_term(batch)
        return rows

    def place(self, batch: GraphBatch, node_slots: Tensor, others: Tensor) -> Tensor:
        """Place biases of node pairs and `others [G, N, N, H]` of all others into `[G, H, N, N]`; rows are queries.

        `node_slots [num_nodes]` is the slot of each node among the `G * N` padded ones.
        """
        # Without autocast, which would compute the edge term's products in half precision.
        with torch.autocast(batch.ptr.device.type, enabled=False):
            slots = _pair_slots(batch, node_slots, others.shape[1])
            flat = others.reshape(-1, others.shape[-1]).index_copy(0, slots, self.pairs(batch))
            return flat.view(others.shape).permute(0, 3, 1, 2).contiguous()


def _pair_slots(batch: GraphBatch, node_slots: Tensor, padded: int) -> Tensor:
    """Return the place of every node pair (query, key) among all `G * N * N` pairs of slots `[P]`; N is `padded`."""
    first, second = node_pairs(batch, batch.shortest_path_distance.shape[0])
    query, key = node_slots[first], node_slots[second]
    return query * padded + key % padded


class TokenReadout(nn.Module):
    """`LN(GELU(W x + b))` of every token before the task's linear head; `d^2 + 3 d` parameters.

    Graphormer's fairseq code has it, and so has DeepGraph, which is based on it.

    Examples:
        >>> readout = TokenReadout(dim=8)
        >>> readout(torch.zeros(5, 8)).shape, sum(p.numel() for p in readout.parameters())
        (torch.Size([5, 8]), 88)
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens `[T, d]` to the same shape."""
        return self.norm(F.gelu(self.linear(x)))


def check_weight_init(init: str) -> None:
    """Raise `BadInput` for a name that is not in `WeightInit`.

    Examples:
        >>> check_weight_init("normal")
    """
    check_choice("init", init, get_args(WeightInit))


@torch.no_grad()
def draw_normal_maps(module: nn.Module, std: float = EMBEDDING_STD) -> None:
    """Draw all linear maps within a module from N(0, std^2) and set their biases to zero.

    Examples:
        >>> maps = nn.Sequential(nn.Linear(100, 100), nn.LayerNorm(100))
        >>> draw_normal_maps(maps, std=0.5)
        >>> round(maps[0].weight.std().item(), 1), maps[0].bias.abs().max().item(), maps[1].weight.min().item()
        (0.5, 0.0, 1.0)
    """
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=std)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def _draw_embeddings(module: nn.Module) -> None:
    """Draw all parameters except the linear maps of dense features from N(0, 0.02^2)."""
    for name, parameter in module.named_parameters():
        if not name.endswith(("linear.weight", "linear.bias")):
            nn.init.normal_(parameter, std=EMBEDDING_STD)
