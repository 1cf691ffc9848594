"""Compute eigenvectors and walks of large graphs with sparse matrices, in memory that grows with their edges.

Legend: n nodes, k eigenpairs, m vectors of a block.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from scipy import linalg
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh, splu
from torch import Tensor

from graphbench.encodings._dense import SAME_VALUE, TIE, Normalization, SizeBlock, pivoted_basis
from graphbench.errors import BadInput

logger = logging.getLogger(__name__)

#: Largest number of nodes for dense matrices.
LARGE = 2048
#: Largest number of nodes of a component whose eigenvectors are computed densely.
_DENSE = 600
#: Products with the Laplacian until eigenvectors must have converged, and fewest before they are given up.
_PRODUCTS, _FEWEST = 10_000, 300
#: Highest degree of a filter, and logarithm of the most by which it enlarges a vector: rounding errors grow as much.
_DEGREE, _GROWTH = 400, 20.0
#: Relative difference of eigenvalues that may be equal, before they have converged.
_RUN = 1e-6
#: Residual of an eigenvector relative to the smallest eigenvalue above 0, and rounding error relative to the largest.
_RESIDUAL, _ROUNDING = 1e-8, 1e-14
#: Mean degree up to which a factorisation is tried if filters are slow: paths, rings, grids and roads, whose factors
#: stay sparse. With a higher degree the factors may exceed the memory.
_MEAN_DEGREE = 8
#: Steps of inverse iteration.
_STEPS = 300
#: Share of reached nodes above which walks are stored as dense arrays.
_SPARSE_SHARE = 0.05
#: Entries of one block of walks, and number of multiplications above which it is logged.
WALK_ENTRIES, _LOGGED_FROM = 2**23, 10**11
#: Walks from b nodes: sparse rows `[b, n]`, or dense columns `[n, b]` once they reach many nodes.
_Walk: TypeAlias = csr_array | np.ndarray


def adjacency_of(block: SizeBlock, simple: bool) -> csr_array:
    """Build `A[i, j]` of a block of one graph: edges i -> j; if `simple`, 1 for an edge either way, without loops."""
    size = block.num_nodes
    ends = (block.source.numpy(), block.target.numpy() % size)
    matrix = coo_array((np.ones(len(ends[0])), ends), shape=(size, size)).tocsr()
    if not simple:
        return matrix
    matrix.data[:] = 1.0
    matrix = matrix.maximum(matrix.T.tocsr())
    matrix.setdiag(0.0)
    matrix.eliminate_zeros()
    return csr_array(matrix)


# -- walks -----------------------------------------------------------------------------------------------------------


def return_probabilities(adjacency: csr_array, num_steps: int) -> Tensor:
    """Compute diag((D^-1 A)^k) for k = 1 .. num_steps exactly, `[n, num_steps]`, float64.

    Walks start from a block of nodes at a time, sparse at first, since one or two steps reach few nodes. If A is
    symmetric, D^-1 A is similar to S = D^-1/2 A D^-1/2, and half of the steps suffice: (S^2j)_ii = |S^j e_i|^2 and
    (S^(2j+1))_ii = <S^j e_i, S^(j+1) e_i>. `adjacency [n, n]` counts edges i -> j.
    """
    size = adjacency.shape[0]
    # The number of parallel edges counts: S needs A = A^T, not only the same pairs.
    symmetric = abs(adjacency - adjacency.T).nnz == 0
    degree = np.maximum(adjacency.sum(1), 1.0)  # avoids a division by 0 for nodes without outgoing edges
    products = num_steps // 2 + num_steps % 2 if symmetric else num_steps
    work = products * adjacency.nnz * size
    if work > _LOGGED_FROM:
        logger.info(
            "Return probabilities of %s nodes, %d steps: up to %.1e multiplications", f"{size:,}", num_steps, work
        )
    step = csr_array(diags_array(degree**-0.5) @ adjacency @ diags_array(degree**-0.5))
    if not symmetric:
        step = csr_array(diags_array(1 / degree) @ adjacency)
    transposed, probabilities = csr_array(step.T), np.zeros((size, num_steps))
    # Sized for dense walks: in a well-connected graph walks become dense after a few steps.
    width = max(1, min(size, WALK_ENTRIES // size))
    for first in range(0, size, width):
        rows = np.arange(first, min(first + width, size))
        start = csr_array((np.ones(len(rows)), (rows - first, rows)), shape=(len(rows), size))
        walk: _Walk = start
        for number in range(0, num_steps, 2 if symmetric else 1):
            longer = _extend(walk, step, transposed)
            probabilities[rows, number] = _products(walk if symmetric else start, longer)
            if symmetric and number + 1 < num_steps:
                probabilities[rows, number + 1] = _products(longer, longer)
            walk = longer
    return torch.from_numpy(probabilities)


def _extend(walk: _Walk, step: csr_array, transposed: csr_array) -> _Walk:
    """Extend walks by one step; `transposed` is the transpose of `step`."""
    if isinstance(walk, np.ndarray):
        return np.asarray(transposed @ walk)
    longer = csr_array(walk @ step)
    few = longer.nnz <= _SPARSE_SHARE * longer.shape[0] * longer.shape[1]
    return longer if few else np.ascontiguousarray(longer.toarray().T)


def _products(one: _Walk, other: _Walk) -> np.ndarray:
    """Return the inner products of the walks from each node `[b]`."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.asarray(np.einsum("ij,ij->j", one, other))
    if isinstance(one, np.ndarray):
        one, other = other, one
    assert not isinstance(one, np.ndarray)  # the sparse one comes first
    return np.asarray(one.multiply(other.T if isinstance(other, np.ndarray) else other).sum(1)).reshape(-1)


# -- eigenvectors ----------------------------------------------------------------------------------------------------


def smallest_eigenpairs(adjacency: csr_array, normalization: Normalization, count: int) -> tuple[Tensor, Tensor]:
    """Compute the `count` smallest eigenvalues of a graph's Laplacian, and eigenvectors in the basis of `_dense`.

    Each component has one eigenvector of 0. The others are computed component by component: by subspace iteration with
    Chebyshev filters, which is fast for well-connected graphs, or by inverse iteration with a sparse factorisation for
    graphs that are not well connected and have small degrees.

    Args:
        adjacency: symmetric, 0 or 1, without loops `[n, n]`.
        normalization: "none" for D - A, else D^(-1/2) (D - A) D^(-1/2).
        count: at most n.

    Returns:
        Eigenvalues `[count]`, ascending; eigenvectors `[n, count]`; float64.

    Raises:
        BadInput: no method converges, or one eigenvalue is repeated too often for a canonical basis.
    """
    degree = adjacency.sum(1)
    root = np.ones_like(degree) if normalization == "none" else np.sqrt(np.where(degree > 0, degree, 1.0))
    num_parts, part = connected_components(adjacency, directed=False)
    values, vectors = np.zeros(count), np.zeros((len(degree), count))
    flat = _null_vectors(part, root, min(count, num_parts))
    vectors[:, : flat.shape[1]] = flat
    if num_parts < count:
        values[num_parts:], vectors[:, num_parts:] = _above_zero(adjacency, part, num_parts, root, count - num_parts)
    return torch.from_numpy(values), torch.from_numpy(vectors)


def _null_vectors(part: np.ndarray, root: np.ndarray, count: int) -> np.ndarray:
    """Return the first `count` canonical eigenvectors of 0, `[n, count]`: each is `root` on one component.

    Args:
        part: component of each node `[n]`.
        root: 1, or the square root of the degree `[n]`.
        count: at most the number of components.
    """
    unit = root / np.sqrt(np.bincount(part, root**2))[part]
    # The null space's projector has unit_i^2 on its diagonal, and components do not overlap: these are the pivots of
    # `pivoted_basis`, found without a matrix.
    weight, vectors = unit**2, np.zeros((len(part), count))
    for column in range(count):
        pivot = int(np.argmax(weight >= max(weight.max() - TIE, weight.max() / 2)))
        component = part == part[pivot]
        vectors[component, column] = unit[component]
        weight[component] = 0.0
    return vectors


def _above_zero(
    adjacency: csr_array, part: np.ndarray, num_parts: int, root: np.ndarray, need: int
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the `need` smallest eigenvalues above 0 of all components, and canonical eigenvectors `[n, need]`."""
    size = len(part)
    # A run of equal eigenvalues must be complete before its basis is chosen; symmetric graphs have long runs.
    for wanted in (need + 3, 2 * need + 8, 4 * need + 32):
        pairs = [
            _solve_component(adjacency, np.flatnonzero(part == number), root, wanted) for number in range(num_parts)
        ]
        every = np.concatenate([values for _, values, _, _ in pairs])
        order = np.argsort(every, kind="stable")
        largest = max(top for *_, top in pairs)
        # A component with more eigenvalues may have the next one right above its last known one: the list is
        # complete only up to the smallest of these last ones.
        complete = min((values[-1] for nodes, values, *_ in pairs if len(values) < len(nodes) - 1), default=np.inf)
        last = every[order[need - 1]]
        if last + SAME_VALUE * largest < complete:
            break
    else:
        raise BadInput(
            f"The eigenvalue {last:.6g} of a graph of {size:,} nodes is repeated too often to define a basis: use "
            "fewer of them (num_eigenvectors), or RWSE."
        )
    # Include all eigenvalues equal to the last wanted one, since its eigenspace is rotated as a whole.
    keep = order[every[order] <= last + SAME_VALUE * largest]
    columns = np.zeros((size, len(keep)))
    place = [(number, column) for number, (_, values, _, _) in enumerate(pairs) for column in range(len(values))]
    for target, source in enumerate(keep.tolist()):
        number, column = place[source]
        columns[pairs[number][0], target] = pairs[number][2][:, column]
    values = every[keep]
    # Runs of ascending values that are equal up to rounding share a canonical basis.
    cuts = (np.flatnonzero(np.diff(values) > SAME_VALUE * largest) + 1).tolist()
    for start, stop in pairwise([0, *cuts, len(values)]):
        space = torch.from_numpy(columns[:, start:stop])[None]
        columns[:, start:stop] = pivoted_basis(space, min(stop - start, need))[0].numpy()
    return values[:need], columns[:, :need]


def _solve_component(
    adjacency: csr_array, nodes: np.ndarray, root: np.ndarray, wanted: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return a component's nodes, smallest eigenvalues above 0 `[<= wanted]`, eigenvectors, and largest eigenvalue."""
    local = csr_array(adjacency[nodes][:, nodes])
    scale = diags_array(1 / root[nodes])
    degree = local.sum(1)
    matrix = csr_array(scale @ (diags_array(degree) - local) @ scale)
    flat = (root[nodes] / np.linalg.norm(root[nodes]))[:, None]
    wanted = min(wanted, len(nodes) - 1)
    # A block with more than a fifth of the columns gains nothing.
    if len(nodes) <= max(_DENSE, 5 * wanted):
        values, vectors = linalg.eigh(matrix.toarray())
        return nodes, values[1 : wanted + 1], vectors[:, 1 : wanted + 1], float(values[-1])
    # ARPACK would draw a random start. The value only scales tolerances, so three digits are enough.
    start = np.random.default_rng(0).standard_normal(len(nodes))
    largest = float(eigsh(matrix, 1, which="LA", v0=start, tol=1e-3, return_eigenvectors=False)[0])
    return nodes, *_iterate(matrix, local, root[nodes], flat, wanted, largest), largest


def _iterate(
    matrix: csr_array, adjacency: csr_array, root: np.ndarray, flat: np.ndarray, wanted: int, largest: float
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the `wanted` smallest eigenpairs of a connected graph, without the first.

    Args:
        matrix: its Laplacian, normalised or not `[n, n]`.
        adjacency: without scaling.
        root: the factors by which `matrix` is normalised `[n]`.
        flat: the eigenvector of 0 `[n, 1]`.
        wanted: fewer than n / 5.
        largest: the approximate largest eigenvalue.
    """
    size, high = matrix.shape[0], 1.01 * largest  # which is approximate
    # More vectors than wanted: convergence depends on the distance to the first eigenvalue outside the block.
    block = np.random.default_rng(0).standard_normal((size, min(wanted + max(4, wanted // 2), size // 5)))
    values, block, above = _ritz(matrix, block - flat * (flat.T @ block), wanted, largest)
    mean, products = adjacency.nnz / size, 0
    while products < _PRODUCTS:
        # The block may end within a run of equal eigenvalues, as in hypercubes and cliques: cut behind the run.
        is_run = values[-1] - values[wanted - 1] <= _RUN * values[-1]
        low = values[-1] + 0.1 * (high - values[-1]) if is_run else values[-1]
        growth, gain = (np.arccosh(1 + 2 * (low - value) / (high - low)) for value in (values[0], values[wanted - 1]))
        if products > _FEWEST and products + np.log(above) / max(gain, 1e-12) > _PRODUCTS:  # too slow
            break
        degree = int(np.clip(_GROWTH / max(growth, 1e-12), 2, _DEGREE))
        products += degree
        values, block, above = _ritz(matrix, _filter(matrix, flat, block, low, high, degree), wanted, largest)
        if above <= 1:
            return values[:wanted], block[:, :wanted]
    if mean <= _MEAN_DEGREE:
        solve = _solver(adjacency, root, flat)
        for _ in range(_STEPS):
            block = solve(block)
            values, block, above = _ritz(matrix, block, wanted, largest)
            if above <= 1:
                return values[:wanted], block[:, :wanted]
    raise BadInput(
        f"The eigenvectors of a graph of {size:,} nodes with {mean:.1f} neighbours on average do not converge: use "
        "fewer of them (num_eigenvectors), another normalization, or RWSE."
    )


def _filter(matrix: csr_array, flat: np.ndarray, block: np.ndarray, low: float, high: float, degree: int) -> np.ndarray:
    """Apply the Chebyshev polynomial that is within ±1 for eigenvalues in [low, high], and large below.

    Zhou, Saad, Tiago and Chelikowsky, "Self-consistent-field calculations using Chebyshev-filtered subspace iteration",
    J. Comput. Phys. 219 (2006), algorithm 3.1. The eigenvalue of `flat` is moved from 0 to `high`.
    """
    centre, half = (high + low) / 2, (high - low) / 2

    def shifted(vectors: np.ndarray) -> np.ndarray:
        return (matrix @ vectors + flat * (high * (flat.T @ vectors)) - centre * vectors) / half

    before, now = block, shifted(block)
    for _ in range(degree - 1):
        before, now = now, 2 * shifted(now) - before
    return now


def _ritz(matrix: csr_array, block: np.ndarray, wanted: int, largest: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return Rayleigh-Ritz pairs within a block, and the residual of the wanted ones relative to the tolerance."""
    basis = np.linalg.qr(block)[0]
    image = matrix @ basis
    values, rotation = np.linalg.eigh(basis.T @ image)
    basis, image = basis @ rotation, image @ rotation
    residual = np.linalg.norm(image - basis * values, axis=0)[:wanted].max()
    return values, basis, float(residual / max(_RESIDUAL * values[0], _ROUNDING * largest))


def _solver(adjacency: csr_array, root: np.ndarray, flat: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the pseudo-inverse of a connected graph's Laplacian as a function of blocks `[n, m]`, node 0 grounded."""
    laplacian = diags_array(adjacency.sum(1)) - adjacency
    # Without row and column 0 it is positive definite, so it needs no pivoting and the factors stay sparse.
    factors = splu(
        laplacian.tocsc()[1:][:, 1:], permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )  # fmt: skip

    def solve(block: np.ndarray) -> np.ndarray:
        # With R = diag(root) the matrix is M = R^-1 L R^-1, so M x = b means L (R^-1 x) = R b. Without its component
        # along `flat`, R b sums to zero, and the equation of the grounded node is satisfied automatically.
        block = (block - flat * (flat.T @ block)) * root[:, None]
        solved = np.zeros_like(block)
        solved[1:] = factors.solve(block[1:])
        solved *= root[:, None]
        return np.asarray(solved - flat * (flat.T @ solved))

    return solve
