"""Encode nodes by Laplacian eigenvectors and eigenvalues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor

from graphbench.contracts import Column, Encoded, Encoding, GraphTable
from graphbench.contracts.kernels import operation
from graphbench.contracts.table import GRAPH, NODE
from graphbench.encodings._dense import (
    Normalization,
    SizeBlock,
    as_table,
    as_tensors,
    few_threads,
    inverse_root,
    laplacian,
    size_blocks,
    smallest_eigenpairs,
)
from graphbench.encodings._sparse import LARGE, adjacency_of
from graphbench.encodings._sparse import smallest_eigenpairs as sparse_eigenpairs
from graphbench.errors import check_choice, check_range


class LapPE(Encoding):
    """The smallest eigenvalues of the graph Laplacian and their eigenvectors (Dwivedi and Bresson 2020, GraphGPS).

    The graph is first made simple and undirected: an edge in either direction counts once, loops do not count.
    Eigenvalues ascend, `0 <= lambda`, one zero per connected component; every eigenvector has Euclidean norm 1 over
    the nodes of its graph. Signs and the bases of degenerate eigenspaces are fixed (`_dense`): the entry of
    largest magnitude, the first of equals, is positive (for "random_walk": of D^(1/2) u). Flip signs in training if a
    model must not rely on them.

    Graphs of more than 2,048 nodes are decomposed as sparse matrices (`_sparse`), in memory that grows with their
    edges, into the same vectors up to rounding.

    If a graph has fewer nodes than there are columns, the remaining columns are 0: the first
    `min(num_eigenvectors, n - skip_trivial)` columns of the graph are valid.

    Fields: `lap_pe_vectors [num_nodes, num_eigenvectors]`, `lap_pe_values [num_graphs, num_eigenvectors]`, float32.

    Args:
        num_eigenvectors: number of columns to keep.
        normalization: "none" for L = D - A, "symmetric" for D^(-1/2) L D^(-1/2), "random_walk" for D^(-1) L.
            An isolated node has eigenvalue 0 with all three (1 with PyG's normalised Laplacians).
        skip_trivial: omit the first eigenvector, which is constant (up to D^(1/2)) on a connected graph.

    Raises:
        BadInput: an option is out of range, an edge refers to a node that its graph does not have, or the eigenvectors
            of a large graph do not converge.

    Examples:
        >>> import torch
        >>> from graphbench.contracts import GraphTable
        >>> table = GraphTable.from_graphs([{"num_nodes": 3, "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])}])
        >>> LapPE(3).compute(table).columns["lap_pe_values"].round(decimals=3).abs()
        tensor([[0., 1., 3.]])
    """

    #: 2: eigenvalues are distinct if they differ by more than 1e-11 of the largest, not 1e-8.
    version = 2
    layout: ClassVar[Mapping[str, Column]] = {"lap_pe_vectors": Column(NODE), "lap_pe_values": Column(GRAPH)}

    def __init__(
        self, num_eigenvectors: int = 8, normalization: Normalization = "none", skip_trivial: bool = False
    ) -> None:
        check_range(f"{self.name}: num_eigenvectors", num_eigenvectors, at_least=1, whole=True)
        check_choice(f"{self.name}: normalization", normalization, get_args(Normalization))
        self.num_eigenvectors = int(num_eigenvectors)
        self.normalization = normalization
        self.skip_trivial = bool(skip_trivial)

    def memory(self, num_nodes: int, num_edges: int) -> int:
        """Count a dense matrix and its eigenvectors, or some blocks of vectors for large graphs."""
        if num_nodes > LARGE:
            return 8 * num_nodes * 8 * (2 * self.num_eigenvectors + 8) + 64 * num_edges
        return 8 * num_nodes**2 * 4

    def compute(self, graphs: GraphTable) -> Encoded:
        """Decompose stacks of graphs of one size, O(n^3) per graph; sparse matrices for large graphs."""
        vectors, values = laplacian_eigenvectors(
            *as_tensors(graphs), self.num_eigenvectors, self.normalization, self.skip_trivial
        )
        return Encoded({"lap_pe_vectors": vectors, "lap_pe_values": values})


@operation("graphbench")
def laplacian_eigenvectors(
    node_ptr: Tensor, edge_ptr: Tensor, edges: Tensor, count: int, normalization: str, skip_trivial: bool
) -> tuple[Tensor, Tensor]:
    """Compute the smallest eigenvalues and their eigenvectors of many graphs, as `LapPE` describes them.

    The arguments come from `as_tensors`; columns for which a graph has no eigenvector are 0.

    Returns:
        Eigenvectors `[num_nodes, count]` and eigenvalues `[G, count]`, float32.

    Raises:
        BadInput: the eigenvectors of a large graph do not converge.

    Examples:
        >>> path = torch.tensor([[0, 1], [1, 0], [1, 2], [2, 1]])
        >>> laplacian_eigenvectors(torch.tensor([0, 3]), torch.tensor([0, 4]), path, 3, "none", False)[1].round().abs()
        tensor([[0., 1., 3.]])
    """
    graphs = as_table(node_ptr, edge_ptr, edges)
    vectors = torch.zeros(int(node_ptr[-1]), count, dtype=torch.float32)
    values = torch.zeros(len(graphs), count, dtype=torch.float32)
    with few_threads(graphs):
        for block in size_blocks(graphs):
            rows = block.rows(node_ptr, block.num_nodes)
            block_values, block_vectors = _eigenpairs(block, count, normalization, int(skip_trivial))
            valid = block_values.shape[1]
            vectors[rows, :valid] = block_vectors.flatten(0, 1).float()
            values[block.graphs, :valid] = block_values.float()
    return vectors, values


def _eigenpairs(block: SizeBlock, count: int, normalization: Any, skipped: int) -> tuple[Tensor, Tensor]:
    """Compute the valid eigenvalues `[b, k]` and eigenvectors `[b, n, k]` of a block, float64."""
    # The trivial vector is computed in any case, and removed at the end.
    count = min(count + skipped, block.num_nodes)
    if block.num_nodes > LARGE:
        # A block of graphs this large contains only one: n^2 exceeds the limit of `size_blocks`.
        sparse = adjacency_of(block, simple=True)
        values, vectors = (part[None] for part in sparse_eigenpairs(sparse, normalization, count))
        degree = torch.from_numpy(sparse.sum(1))[None, :, None]
    else:
        adjacency = block.simple_adjacency()
        values, vectors = smallest_eigenpairs(laplacian(adjacency, normalization), count)
        degree = adjacency.sum(-1, keepdim=True)
    if normalization == "random_walk":
        # u = D^(-1/2) v is the eigenvector of D^(-1) L; an isolated node keeps its unit vector.
        vectors = vectors * torch.where(degree > 0, inverse_root(degree), 1.0)
        vectors = vectors / vectors.norm(dim=1, keepdim=True)
    return values[:, skipped:], vectors[:, :, skipped:]
