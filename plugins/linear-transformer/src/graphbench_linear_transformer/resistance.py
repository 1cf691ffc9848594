"""Effective resistances of a user's own graph, from the 8 layers of Lemma 4's construction."""

from __future__ import annotations

import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from graphbench.errors import BadInput
from graphbench_linear_transformer.constructions import electric_flow_fast
from graphbench_linear_transformer.incidence import SparseIncidence
from graphbench_linear_transformer.normalise import nonzero

#: Squarings of the matrix in `largest_eigenvalue_bound`.
_SQUARINGS = 5


def largest_eigenvalue_bound(matrix: Tensor) -> Tensor:
    """A number that no eigenvalue exceeds, without an eigen-decomposition: `‖A^32‖_F ^ (1/32)` for symmetric A.

    It is at most `n^(1/64)` times the largest eigenvalue (1.09 for n = 200), five matrix products away.

    Args:
        matrix: A `[..., n, n]`.

    Returns:
        `[...]`; 0 for A = 0.
    """
    length = torch.linalg.matrix_norm(matrix)
    power, logarithm = matrix / nonzero(length)[..., None, None], nonzero(length).log()
    for squaring in range(1, _SQUARINGS + 1):
        power = power @ power
        gain = nonzero(torch.linalg.matrix_norm(power))
        power, logarithm = power / gain[..., None, None], logarithm + gain.log() / 2**squaring
    return torch.where(length > 0, logarithm.exp(), torch.zeros_like(length))


def resistances_from_inverse(inverse: Tensor) -> Tensor:
    """`R_ij = L†_ii + L†_jj - 2 L†_ij` `[..., n, n]` from `L† [..., n, n]` (section 3.2 of arXiv 2410.16699)."""
    own = inverse.diagonal(dim1=-2, dim2=-1)
    return own.unsqueeze(-1) + own.unsqueeze(-2) - 2 * inverse


def effective_resistances(
    edge_index: Tensor, num_nodes: int, resistance: Tensor | None = None, num_layers: int = 8
) -> Tensor:
    """Effective resistances between all nodes of a connected graph, as a linear transformer computes them.

    The error of L† is at most `exp(-2^L λmin / b) / λmin` with b >= λmax of `largest_eigenvalue_bound`: each further
    layer squares what is missing.

    Args:
        edge_index: `[2, d]`, every edge once.
        num_nodes: n.
        resistance: r_j > 0 of every edge `[d]`; 1 without it.
        num_layers: L.

    Returns:
        R `[n, n]`, float64, in the unit of `resistance`.

    Raises:
        BadInput: the graph is not connected, so that some resistance is infinite, or an edge is not valid.
    """
    resistance = torch.ones(edge_index.shape[1]) if resistance is None else resistance
    incidence = SparseIncidence.from_edges(edge_index, num_nodes, resistance.to(edge_index.device, torch.float64))
    parts = _components(edge_index, num_nodes)
    if parts > 1:
        raise BadInput(f"The graph has {parts} components, and between them resistance is infinite. Take one of them.")
    laplacian = incidence.similarity()
    if num_nodes == 1:
        return laplacian
    largest = float(largest_eigenvalue_bound(laplacian))
    model = electric_flow_fast(num_layers=num_layers, lambda_max=largest, form="efficient")
    return resistances_from_inverse(model(laplacian))


def _components(edge_index: Tensor, num_nodes: int) -> int:
    tail, head = edge_index.cpu().numpy()
    adjacency = coo_matrix(([1] * len(tail), (tail, head)), shape=(num_nodes, num_nodes))
    return int(connected_components(adjacency, directed=False)[0])
