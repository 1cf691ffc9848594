"""Add the edges of a random expander graph on the nodes of every graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphbench.contracts import Column, Encoded, Encoding, GraphTable
from graphbench.contracts.table import NODE, pointer
from graphbench.encodings._dense import check_edges
from graphbench.encodings.substructures.hashing import mix, structure_hash
from graphbench.errors import check_range

#: Largest number of nodes of graphs that get the complete graph, as in the authors' code.
_COMPLETE = 10
#: Distance of the spectral gap below the bound of Ramanujan graphs that is accepted, as in the authors' code.
_SLACK = 0.1


class ExpanderEdges(Encoding):
    """A random 2d-regular graph on the nodes (Shirzad et al., ICML 2023, arXiv 2303.06147, Appendix C; Friedman 2003).

    Edges i -> p(i) and p(i) -> i of d random permutations p of the nodes. They are drawn again, up to 100 times, until
    the second eigenvalue of the Laplacian reaches `2 d - 2 sqrt(2 d - 1) - 0.1`; otherwise the draw with the largest
    one is kept. As in the authors' code loops and parallel edges stay, and graphs of up to 10 nodes get all pairs.

    The draw depends on the graph's nodes and edges as they are numbered and on `seed` alone: neither on the other
    graphs, nor on the order of the edges, nor on the number of computations. (The authors draw from numpy's global
    generator.) Another numbering of the nodes gives another expander.

    Field: `expander_edges [edges of the expanders, 2]` on an axis of their own, "expander".

    Args:
        degree: d; every node has 2 d edges.
        seed: gives other expanders.

    Raises:
        BadInput: `degree` is below 1, or an edge names a node that its graph does not have.

    Examples:
        >>> import torch
        >>> from graphbench.contracts import GraphTable
        >>> table = GraphTable.from_graphs([{"num_nodes": 20, "edge_index": torch.tensor([[0, 1], [1, 0]])}])
        >>> edges = ExpanderEdges(degree=3).compute(table).columns["expander_edges"]
        >>> torch.bincount(edges[:, 1], minlength=20).unique()  # every node receives from six
        tensor([6])
    """

    #: Pairs of nodes, as `edge_index` before it is transposed.
    layout: ClassVar[Mapping[str, Column]] = {"expander_edges": Column("expander", index_of=NODE)}

    def __init__(self, degree: int = 3, seed: int = 0) -> None:
        check_range(f"{self.name}: degree", degree, at_least=1, whole=True)
        self.degree, self.seed = int(degree), int(seed)

    def compute(self, graphs: GraphTable) -> Encoded:
        """Compute one spectrum per draw and graph, O(n^3); a few draws are enough for most graphs."""
        check_edges(graphs)
        ptr = graphs.ptr[NODE]
        graph_of = torch.repeat_interleave(torch.arange(len(graphs)), graphs.num_nodes)
        first = torch.repeat_interleave(ptr[:-1], graphs.num_edges)
        edges = (graphs.columns["edge_index"].to(torch.int64).reshape(-1, 2) + first[:, None]).t()
        # From the graph, not from its place: a generator's draws would depend on the graphs before it in a chunk.
        seeds = mix(structure_hash(edges, graph_of, ptr), self.seed)
        parts = [
            # Hashes are signed, and numpy takes no negative seed.
            expander(size, self.degree, seed % 2**63)
            for size, seed in zip(graphs.num_nodes.tolist(), seeds.tolist(), strict=True)
        ]
        joined = torch.cat(parts) if parts else torch.zeros(0, 2, dtype=torch.int64)
        sizes = torch.tensor([len(part) for part in parts], dtype=torch.int64)
        return Encoded({"expander_edges": joined}, {"expander": pointer(sizes)})


def expander(num_nodes: int, degree: int, seed: int, max_draws: int = 100) -> Tensor:
    """Draw the directed edges `[2 degree num_nodes, 2]` of a random regular graph; small ones are complete."""
    if num_nodes <= _COMPLETE:
        pairs = torch.ones(num_nodes, num_nodes).fill_diagonal_(0).nonzero()
        return pairs.to(torch.int64)
    d = min(degree, num_nodes - 1)
    # Large k-regular graphs cannot much exceed a gap of k - 2 sqrt(k - 1) (Alon-Boppana), here with k = 2 d; random
    # ones come close to it (Friedman), so that few draws are needed.
    wanted = max(0.0, 2 * d - 2 * math.sqrt(2 * d - 1) - _SLACK)
    generator = np.random.default_rng(seed)
    source = np.tile(np.arange(num_nodes), d)
    best, largest = source, -1.0
    for _ in range(max_draws):
        target = np.concatenate([generator.permutation(num_nodes) for _ in range(d)])
        gap = spectral_gap(source, target, num_nodes)
        if gap > largest:
            best, largest = target, gap
        if largest >= wanted:
            break
    one_way = torch.from_numpy(np.stack([source, best], axis=1)).to(torch.int64)
    return torch.cat([one_way, one_way.flip(1)])


def spectral_gap(source: np.ndarray, target: np.ndarray, num_nodes: int) -> float:
    """Return the second smallest eigenvalue of D - A, A the edges in both directions with their multiplicities."""
    adjacency = np.zeros((num_nodes, num_nodes))
    np.add.at(adjacency, (source, target), 1.0)
    adjacency += adjacency.T
    return float(np.linalg.eigvalsh(np.diag(adjacency.sum(1)) - adjacency)[1])
