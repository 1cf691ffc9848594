"""Add the edges of a random expander graph on the nodes of every graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from graphbench.contracts import Column, Encoded, Encoding, GraphTable
from graphbench.contracts.table import NODE, pointer
from graphbench.encodings._dense import check_edges
from graphbench.encodings._sparse import LARGE
from graphbench.encodings.substructures.hashing import mix, structure_hash
from graphbench.errors import check_range

#: Largest number of nodes for which the complete graph is used, as in the authors' code.
_COMPLETE = 10
#: Accepted distance of the spectral gap below the bound of Ramanujan graphs, as in the authors' code.
_SLACK = 0.1
#: Residual of the eigenvalue of large graphs, relative to it: the gap is then right to about 1e-7.
_PRECISION = 1e-4


class ExpanderEdges(Encoding):
    """A random 2d-regular graph on the nodes (Shirzad et al., ICML 2023, arXiv 2303.06147, Appendix C; Friedman 2003).

    Its edges are i -> p(i) and p(i) -> i for d random permutations p of the nodes. They are drawn up to 100 times,
    until the second eigenvalue of the Laplacian reaches `2 d - 2 sqrt(2 d - 1) - 0.1`, or else the draw with the
    largest one is used. As in the authors' code loops and parallel edges stay; graphs of up to 10 nodes get all pairs.

    The draw depends only on `seed` and on the graph's nodes and edges as they are numbered: not on other graphs, the
    order of the edges or earlier computations. (The authors draw from numpy's global generator.) Another numbering of
    the nodes gives another expander.

    Field: `expander_edges [edges of the expanders, 2]` on a separate axis, "expander".

    Args:
        degree: d; every node has 2 d edges.
        seed: seed of the random permutations.

    Raises:
        BadInput: `degree` is below 1, or an edge refers to a node that its graph does not have.

    Examples:
        >>> import torch
        >>> from graphbench.contracts import GraphTable
        >>> table = GraphTable.from_graphs([{"num_nodes": 20, "edge_index": torch.tensor([[0, 1], [1, 0]])}])
        >>> edges = ExpanderEdges(degree=3).compute(table).columns["expander_edges"]
        >>> torch.bincount(edges[:, 1], minlength=20).unique()  # every node receives from six
        tensor([6])
    """

    #: Pairs of nodes, like `edge_index` before it is transposed.
    layout: ClassVar[Mapping[str, Column]] = {"expander_edges": Column("expander", index_of=NODE)}

    def __init__(self, degree: int = 3, seed: int = 0) -> None:
        check_range(f"{self.name}: degree", degree, at_least=1, whole=True)
        self.degree, self.seed = int(degree), int(seed)

    def compute(self, graphs: GraphTable) -> Encoded:
        """Compute one eigenvalue per draw and graph; most graphs need only a few draws."""
        check_edges(graphs)
        ptr = graphs.ptr[NODE]
        graph_of = torch.repeat_interleave(torch.arange(len(graphs)), graphs.num_nodes)
        first = torch.repeat_interleave(ptr[:-1], graphs.num_edges)
        edges = (graphs.columns["edge_index"].to(torch.int64).reshape(-1, 2) + first[:, None]).t()
        # Seeded by the graph: the draws of one generator would depend on the earlier graphs in a chunk.
        seeds = mix(structure_hash(edges, graph_of, ptr), self.seed)
        parts = [
            # Hashes are signed, and numpy accepts no negative seed.
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
    # The gap of large k-regular graphs cannot much exceed k - 2 sqrt(k - 1) (Alon-Boppana), here with k = 2 d; that of
    # random ones comes close to it (Friedman), so few draws are needed.
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
    """Return the second smallest eigenvalue of D - A, regular; A counts edges in both directions, with multiplicity."""
    adjacency = coo_array((np.ones(len(source)), (source, target)), shape=(num_nodes, num_nodes)).tocsr()
    adjacency = csr_array(adjacency + adjacency.T)
    if num_nodes <= LARGE:
        dense = adjacency.toarray()
        return float(np.linalg.eigvalsh(np.diag(dense.sum(1)) - dense)[1])
    # All degrees are k: D - A has the eigenvalues k - a, and removing the mean moves a = k to 0.
    degree = adjacency.sum() / num_nodes
    centred = LinearOperator(adjacency.shape, lambda x: adjacency @ x - degree * x.mean(), dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(num_nodes)
    return float(degree - eigsh(centred, 1, which="LA", v0=start, tol=_PRECISION, return_eigenvectors=False)[0])
