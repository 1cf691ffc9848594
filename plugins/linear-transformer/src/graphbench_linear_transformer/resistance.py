"""Effective resistances of any graph: from the layers of Lemma 4, or from one factorisation of the Laplacian.

Legend: n nodes, d edges, L the Laplacian, L† its pseudo-inverse, R_ij the effective resistance of nodes i and j.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra
from scipy.sparse.linalg import splu
from torch import Tensor

from graphbench.errors import BadInput, check_choice
from graphbench_linear_transformer import bounds
from graphbench_linear_transformer.checks import check_edges, component_labels
from graphbench_linear_transformer.constructions import electric_flow_fast
from graphbench_linear_transformer.incidence import SparseIncidence
from graphbench_linear_transformer.normalise import nonzero

#: "layers": the transformer of Lemma 4. "direct": one factorisation, dense for all pairs and sparse for given ones.
Method = Literal["layers", "direct"]
#: Nodes up to which `effective_resistances` uses layers by default; each costs several n x n products.
MOST_FOR_LAYERS = 256
#: Nodes up to which all pairs are returned: 8.6 GB.
MOST_FOR_ALL_PAIRS = 2**15
#: Squarings of the matrix in `largest_eigenvalue_bound`.
_SQUARINGS = 5
_UNEVEN = "The resistances differ too much for float64"
#: Numbers in one block of columns of the sparse solution: 64 MB.
_BLOCK_NUMBERS = 2**23


def largest_eigenvalue_bound(matrix: Tensor) -> Tensor:
    """Bound the eigenvalues from above without an eigen-decomposition: `‖A^32‖_F ^ (1/32)` for symmetric A.

    It is at most `n^(1/64)` times the largest eigenvalue (1.09 for n = 200) and needs five matrix products.

    Args:
        matrix: A `[..., n, n]`.

    Returns:
        `[...]`; 0 for A = 0.
    """
    length = torch.linalg.matrix_norm(matrix)
    # A^32 overflows for large entries: scale each square to 1 and store its norm as a logarithm.
    power, logarithm = matrix / nonzero(length)[..., None, None], nonzero(length).log()
    for squaring in range(1, _SQUARINGS + 1):
        power = power @ power
        gain = nonzero(torch.linalg.matrix_norm(power))
        power, logarithm = power / gain[..., None, None], logarithm + gain.log() / 2**squaring
    return torch.where(length > 0, logarithm.exp(), torch.zeros_like(length))


def smallest_eigenvalue_bound(edge_index: Tensor, num_nodes: int, resistance: Tensor) -> float:
    """Bound λmin from below using the shortest paths of node 0: `n / ((n - 1) sum_i dist(0, i))`.

    `1 / λmin <= trace L† = sum_(i<j) R_ij / n`, and no R_ij exceeds `dist(0, i) + dist(0, j)`, where distances are
    resistances in series.

    Args:
        edge_index: `[2, d]` of a connected graph, every edge once.
        num_nodes: n >= 2.
        resistance: resistance of every edge `[d]`.
    """
    ends = edge_index.cpu().numpy()
    graph = coo_matrix((resistance.cpu().double().numpy(), (ends[0], ends[1])), shape=(num_nodes, num_nodes)).tocsr()
    return num_nodes / ((num_nodes - 1) * float(dijkstra(graph, directed=False, indices=0).sum()))


def resistances_from_inverse(inverse: Tensor) -> Tensor:
    """Compute `R_ij = L†_ii + L†_jj - 2 L†_ij` `[..., n, n]` of `L† [..., n, n]` (section 3.2 of arXiv 2410.16699)."""
    diagonal = inverse.diagonal(dim1=-2, dim2=-1)
    return diagonal.unsqueeze(-1) + diagonal.unsqueeze(-2) - 2 * inverse


def effective_resistances(
    edge_index: Tensor,
    num_nodes: int,
    resistance: Tensor | None = None,
    num_layers: int | None = None,
    *,
    pairs: Tensor | None = None,
    method: Method | None = None,
    tolerance: float = 1e-8,
) -> Tensor:
    """Compute the effective resistances of a connected graph, each within a relative error of `tolerance`.

    * "layers": the linear transformer of Lemma 4. The relative error after L layers is at most `exp(-2^L λmin / b)`,
      with b >= λmax from `largest_eigenvalue_bound` and λmin from `smallest_eigenvalue_bound`. By default as many
      layers are used as this bound requires. O(n^3) per layer.
    * "direct": Cholesky's factorisation of the Laplacian for all pairs, O(n^3) once. For given `pairs` everything is
      sparse: SciPy's LU factorisation of the Laplacian without its first node, and one solve per pair.

    Results of both methods are checked: over all edges `sum R_e / r_e = n - 1` (Foster), and the error of L layers in
    this sum bounds the relative error of every resistance. Pairs are checked by the residual of the solution.

    Args:
        edge_index: `[2, d]`, every edge once, in either direction.
        num_nodes: n.
        resistance: r_j > 0 of every edge `[d]`; by default 1.
        num_layers: L, for "layers"; by default as many as the bound requires.
        pairs: nodes i and j of the wanted resistances `[2, p]`; by default all pairs.
        method: see above; by default "layers" up to 256 nodes if no pairs are given, otherwise "direct".
        tolerance: largest relative error.

    Returns:
        R `[n, n]`, or `[p]` for given pairs; float64, in the unit of `resistance`.

    Raises:
        BadInput: an edge is invalid or listed twice, a resistance is not positive and finite, the graph is not
            connected, there are too few layers for the tolerance, or the resistances differ too much for float64.

    Examples:
        Three resistors in series, and a fourth in parallel.

        >>> import torch
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> effective_resistances(ring, 4)[0]
        tensor([0.0000, 0.7500, 1.0000, 0.7500], dtype=torch.float64)
    """
    method = _choose_method(method, num_layers, pairs, num_nodes)
    resistance = torch.ones(edge_index.shape[-1]) if resistance is None else resistance
    resistance = resistance.to(edge_index.device, torch.float64)
    _check(edge_index, num_nodes, resistance, pairs, tolerance)
    if num_nodes == 1:
        return resistance.new_zeros((1, 1) if pairs is None else pairs.shape[1:])
    if pairs is not None and method == "direct":
        return _sparse(edge_index, num_nodes, resistance, pairs, tolerance)
    resistances = _all_pairs(edge_index, num_nodes, resistance, num_layers, method, tolerance)
    return resistances if pairs is None else resistances[pairs[0], pairs[1]]


def _all_pairs(
    edge_index: Tensor, num_nodes: int, resistance: Tensor, num_layers: int | None, method: Method, tolerance: float
) -> Tensor:
    """Compute R `[n, n]` by either method."""
    if num_nodes > MOST_FOR_ALL_PAIRS:
        raise BadInput(
            f"All pairs of {num_nodes:,} nodes would take {num_nodes**2 * 8e-9:.0f} GB: pass the wanted ones as "
            "pairs [2, p], such as pairs=edge_index."
        )
    incidence = SparseIncidence.from_edges(edge_index, num_nodes, resistance)
    if method == "layers":
        return _by_layers(incidence, resistance, edge_index, num_layers, tolerance)
    resistances = _by_cholesky(incidence.similarity())
    _check_sum(resistances, edge_index, resistance, tolerance, _UNEVEN)
    return resistances


def _check(edge_index: Tensor, num_nodes: int, resistance: Tensor, pairs: Tensor | None, tolerance: float) -> None:
    """Check all inputs before computing anything."""
    if num_nodes < 1 or not tolerance > 0:
        raise BadInput(f"Expected at least 1 node and a positive tolerance, but got {num_nodes} and {tolerance}.")
    check_edges(edge_index, num_nodes, resistance)
    parts = int(component_labels(edge_index[0], edge_index[1], num_nodes).max()) + 1
    if parts > 1:
        raise BadInput(f"The graph has {parts} components, and between them resistance is infinite. Use one of them.")
    if pairs is not None:
        _check_pairs(pairs, num_nodes)


def _choose_method(method: Method | None, num_layers: int | None, pairs: Tensor | None, num_nodes: int) -> Method:
    if method is None:
        small = num_nodes <= MOST_FOR_LAYERS and pairs is None
        return "layers" if small or num_layers is not None else "direct"
    check_choice("method", method, get_args(Method))
    if method == "direct" and num_layers is not None:
        raise BadInput("num_layers needs method='layers': omit it with method='direct'.")
    return method


def _check_pairs(pairs: Tensor, num_nodes: int) -> None:
    if pairs.dim() != 2 or pairs.shape[0] != 2 or pairs.is_floating_point():
        raise BadInput(f"pairs must be integers [2, p], but got {pairs.dtype} {list(pairs.shape)}.")
    if pairs.numel() and (int(pairs.min()) < 0 or int(pairs.max()) >= num_nodes):
        raise BadInput(
            f"pairs has nodes {int(pairs.min())} to {int(pairs.max())}, but the graph has nodes 0 to {num_nodes - 1}."
        )


def _by_layers(
    incidence: SparseIncidence, resistance: Tensor, edge_index: Tensor, num_layers: int | None, tolerance: float
) -> Tensor:
    """Compute all pairs by Lemma 4."""
    laplacian = incidence.similarity()
    largest = float(largest_eigenvalue_bound(laplacian))
    smallest = smallest_eigenvalue_bound(edge_index, incidence.num_nodes, resistance)
    # The check below sums the errors at n - 1 eigenvalues, each at most that at λmin.
    enough = bounds.electric_flow_fast_layers(tolerance / (2 * incidence.num_nodes), 1 / largest, smallest)
    count = enough if num_layers is None else num_layers
    model = electric_flow_fast(num_layers=count, lambda_max=largest).to(laplacian.device)
    resistances = resistances_from_inverse(model(laplacian))
    reason = _UNEVEN
    if count < enough:
        reason = f"num_layers={count} is too few for this graph; {enough} are enough"
    _check_sum(resistances, edge_index, resistance, tolerance, reason)
    return resistances


def _by_cholesky(laplacian: Tensor) -> Tensor:
    """Compute all pairs: `(L + c 11^T)^-1 = L† + 11^T / (c n^2)`, of which differences keep the first part."""
    # The constant vector then has the mean degree as its eigenvalue, within the range of those of L.
    scale = laplacian.diagonal().mean() / len(laplacian)
    factor, failed = torch.linalg.cholesky_ex(laplacian + scale)
    if int(failed):
        raise BadInput(
            f"{_UNEVEN}: L + 11^T is singular to rounding. Remove edges whose resistance is so large that they "
            "carry no current."
        )
    resistances = resistances_from_inverse(torch.cholesky_inverse(factor)).clamp(min=0)
    return resistances.fill_diagonal_(0.0)


def _check_sum(resistances: Tensor, edge_index: Tensor, resistance: Tensor, tolerance: float, reason: str) -> None:
    """Check Foster's theorem: `sum_e R_e / r_e = n - 1`. For `L Φ = I^ - Γ` the layers' sum is `n - 1 - trace Γ`."""
    n = len(resistances)
    missing = n - 1 - float((resistances[edge_index[0], edge_index[1]] / resistance).sum())
    if not abs(missing) <= max(tolerance, n * 4e-15):
        raise BadInput(
            f"{reason}: sum R_e / r_e over the edges is {n - 1 - missing:.9g}, but must be "
            f"{n - 1}, so a resistance may have a relative error of {abs(missing):.3g}, above "
            f"tolerance={tolerance:g}."
        )


def _sparse(edge_index: Tensor, num_nodes: int, resistance: Tensor, pairs: Tensor, tolerance: float) -> Tensor:
    """Compute `R_ij = (e_i - e_j)^T x` with `L x = e_i - e_j` and x = 0 at node 0; one solve per pair."""
    (tail, head), weight = edge_index.cpu().numpy(), (1 / resistance).cpu().numpy()
    rows, columns = np.concatenate([tail, head, tail, head]), np.concatenate([tail, head, head, tail])
    values = np.concatenate([weight, weight, -weight, -weight])
    laplacian = coo_matrix((values, (rows, columns)), shape=(num_nodes, num_nodes)).tocsc()
    # Without its first node L is positive definite: use the diagonal as pivots, in an order that keeps fill-in low.
    symmetric = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    try:
        factor = splu(laplacian[1:, 1:], **symmetric)
    except RuntimeError as error:  # a pivot is exactly 0
        raise BadInput(f"{_UNEVEN}: {error}. Remove edges that carry no current.") from error
    first, second = np.sort(pairs.cpu().long().numpy(), axis=0)  # int32 would overflow below
    keys, place = np.unique(first * num_nodes + second, return_inverse=True)
    first, second = keys // num_nodes, keys % num_nodes
    effective = np.zeros(len(keys))
    block = max(1, _BLOCK_NUMBERS // num_nodes)
    for start in range(0, len(keys), block):
        i, j = first[start : start + block], second[start : start + block]
        demand, number = np.zeros((num_nodes, len(i))), np.arange(len(i))
        demand[i, number] += 1.0
        demand[j, number] -= 1.0
        potential = np.zeros_like(demand)
        potential[1:] = factor.solve(demand[1:])
        effective[start : start + block] = potential[i, number] - potential[j, number]
        # Currents from differences of potentials: in the rows of L x large terms would cancel.
        flow = weight[:, None] * (potential[head] - potential[tail])
        residual = demand.copy()
        np.subtract.at(residual, head, flow)
        np.add.at(residual, tail, flow)
        _check_residual(residual, potential, effective[start : start + block], i != j, tolerance)
    return torch.from_numpy(effective[place.reshape(-1)]).to(resistance.device)


def _check_residual(
    residual: np.ndarray, potential: np.ndarray, effective: np.ndarray, distinct: np.ndarray, tolerance: float
) -> None:
    """Check the error `R - ψ^T x = r^T L† ψ`, which is `r^T x` up to second-order terms."""
    error = np.abs((residual * potential).sum(0))[distinct] / np.abs(effective[distinct])
    if not (error <= tolerance).all():
        raise BadInput(
            f"{_UNEVEN}: a solution has a relative error of {float(error.max()):.3g}, above tolerance={tolerance:g}. "
            "Remove edges that carry no current, or raise tolerance."
        )
