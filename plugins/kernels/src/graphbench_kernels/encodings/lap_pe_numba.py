"""Smallest eigenvectors of the Laplacians of many small graphs: LAPACK, called from loops that Numba compiles.

Only imported by `loops`, if `runs_numba` is true. Every graph is decomposed separately. A dense eigen-decomposition
computes all eigenvectors; here a Laplacian is made tridiagonal (`dsytrd`), which gives all eigenvalues (`dsterf`), then
the few eigenvectors that are kept (`dstein`, inverse iteration), transformed back (`dormtr`). For a molecule LAPACK's
BLAS calls cost as much as the arithmetic, so small Laplacians are made tridiagonal in this module.

Legend: n nodes of a graph, m the next multiple of `_REGISTER`, k eigenvectors that are kept per graph.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite.ir import FunctionType, VoidType
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic
from numpy.typing import NDArray

from graphbench_kernels.running import cpu_kernel

#: As in `graphbench.encodings._dense`; names of another package would be stored with the compiled code.
SAME_VALUE, TIE = 1e-11, 1e-6

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]
Short = NDArray[np.int32]
Letters = NDArray[np.uint8]

_EPSILON = np.finfo(np.float64).eps
#: Tolerance for orthonormality of eigenvectors, and for their residual relative to the largest eigenvalue. LAPACK's are
#: within about 1e-14.
_TOLERANCE = 1e-11
#: Numbers in a vector register; rows of matrices are padded with zeros to fill the last one.
_REGISTER = 8
#: Number of nodes from which LAPACK makes a Laplacian tridiagonal in less time.
_LAPACK_FROM = 80


def _lapack(name: str) -> Any:
    """Return a routine of SciPy's LAPACK for compiled loops: called with a tuple of arrays, one per argument.

    Loops cached on disk refer to it by symbol, since addresses differ between processes. It accepts arrays and not
    their addresses, because Numba frees an array once nothing refers to it.
    """
    symbol = f"graphbench_scipy_{name}"
    llvm.add_symbol(symbol, get_cython_function_address("scipy.linalg.cython_lapack", name))

    @intrinsic
    def call(typing_context: Any, arrays: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = context.get_value_type(types.voidptr)
            values = cgutils.unpack_tuple(builder, arguments[0])
            made = [context.make_array(kind)(context, builder, x) for kind, x in zip(arrays, values, strict=True)]
            kind = FunctionType(VoidType(), [pointer] * len(made))
            routine = cgutils.get_or_insert_function(builder.module, kind, symbol)
            builder.call(routine, [builder.bitcast(array.data, pointer) for array in made])
            return context.get_dummy_value()

        return types.void(arrays), generate

    return call


_dsytrd, _dsterf, _dstein, _dormtr = (_lapack(name) for name in ("dsytrd", "dsterf", "dstein", "dormtr"))


@cpu_kernel
def decompose(
    first: int,
    last: int,
    chosen: Integers,
    node_ptr: Integers,
    edge_ptr: Integers,
    edges: Integers,
    scaled: bool,
    of_walk: bool,
    skipped: int,
    vectors: NDArray[np.float32],
    values: NDArray[np.float32],
    failed: NDArray[np.bool_],
) -> None:
    """Fill rows of `vectors` and `values` of some graphs as specified by `LapPE`.

    Args:
        first: number of the first item of `chosen`.
        last: end of the items (exclusive).
        chosen: numbers of graphs, each with at least one node.
        node_ptr: start of the nodes of each graph `[G + 1]`.
        edge_ptr: start of the edges of each graph `[G + 1]`.
        edges: source and target of each edge, numbered within graphs `[E, 2]`.
        scaled: decompose `D^(-1/2) (D - A) D^(-1/2)`, else `D - A`.
        of_walk: convert the eigenvectors to those of `D^(-1) (D - A)`.
        skipped: number of smallest eigenvalues to skip.
        vectors: `[N, columns]`; columns that a graph is too small for are unchanged.
        values: `[G, columns]`; as `vectors`.
        failed: True for items with inaccurate eigenvectors, for which nothing is filled.
    """
    most = 1
    for graph in chosen[first:last]:
        most = max(most, node_ptr[graph + 1] - node_ptr[graph])
    # Memory for the largest graph, once for all items of this thread.
    numbers, integers = np.empty(69 * most + 4160), np.empty(4 * most + 5, np.int32)
    letters = np.array([ord("L"), ord("N")], np.uint8)
    for item in range(first, last):
        graph = chosen[item]
        start, n = node_ptr[graph], node_ptr[graph + 1] - node_ptr[graph]
        matrix, degree = _laplacian(edges[edge_ptr[graph] : edge_ptr[graph + 1]], n, scaled)
        count = min(vectors.shape[1] + skipped, n)
        eigenvalues, basis, good = _smallest_eigenpairs(matrix, count, numbers, integers[: 4 * n + 5], letters)
        failed[item] = not good
        if not good:
            continue
        if of_walk:
            for column in range(count):
                length = 0.0
                for node in range(n):
                    basis[column, node] *= _inverse_root(degree[node]) if degree[node] > 0.0 else 1.0
                    length += basis[column, node] ** 2
                for node in range(n):
                    basis[column, node] /= np.sqrt(length)
        for column in range(skipped, count):
            values[graph, column - skipped] = eigenvalues[column]
            for node in range(n):
                vectors[start + node, column - skipped] = basis[column, node]


@cpu_kernel
def _laplacian(edges: Integers, n: int, scaled: bool) -> tuple[Numbers, Numbers]:
    """See `_dense.laplacian`: the matrix `[n, m]`, columns from n on 0, and degrees `[n]` of the simple graph."""
    matrix, degree = np.zeros((n, (n + _REGISTER - 1) // _REGISTER * _REGISTER)), np.zeros(n)
    for edge in range(len(edges)):
        source, target = edges[edge, 0], edges[edge, 1]
        if source != target:
            matrix[source, target] = -1.0
            matrix[target, source] = -1.0
    for row in range(n):
        for column in range(n):
            degree[row] -= matrix[row, column]
    for row in range(n):
        matrix[row, row] = degree[row]
    if scaled:
        for row in range(n):
            for column in range(n):
                if matrix[row, column] != 0.0:
                    matrix[row, column] *= _inverse_root(degree[row]) * _inverse_root(degree[column])
    return matrix, degree


@cpu_kernel
def _inverse_root(degree: float) -> float:
    """Compute d^(-1/2), and 0 if d = 0."""
    return 1.0 / np.sqrt(degree) if degree > 0.0 else 0.0


@cpu_kernel
def _smallest_eigenpairs(
    matrix: Numbers, count: int, numbers: Numbers, integers: Short, letters: Letters
) -> tuple[Numbers, Numbers, bool]:
    """See `_eigenvectors.smallest_eigenpairs`: values `[count]`, vectors `[>= count, n]`, and whether they are good.

    `matrix [n, m]` is overwritten. The others are LAPACK's workspace: at least `69 n + 4160` numbers, `4 n + 5`
    integers, and the letters L and N.
    """
    n = len(matrix)
    size, wanted, room, info, stride = integers[0:1], integers[1:2], integers[2:3], integers[3:4], integers[4:5]
    blocks, ends, scratch, misses = integers[5:].reshape(4, -1)
    diagonal, beside, reflectors, values, others = numbers[: 5 * n].reshape(5, n)
    work = numbers[5 * n :]
    left, lower, plain = letters[0:1], letters[0:1], letters[1:2]
    size[0], room[0], stride[0] = n, len(work), matrix.shape[1]
    if n < _LAPACK_FROM:
        _make_tridiagonal(matrix, diagonal, beside, reflectors, work)
    else:
        _dsytrd((lower, size, matrix, stride, diagonal, beside, reflectors, work, room, info))
    values[:], others[:] = diagonal, beside
    _dsterf((size, values, others, info))
    good, largest = info[0] == 0, values[n - 1]
    needed = count  # and others in the eigenspace of the last one
    while needed < n and values[needed] - values[needed - 1] <= SAME_VALUE * largest:
        needed += 1
    wanted[0], blocks[:], ends[:] = needed, 1, n
    basis = np.empty((needed, n))
    _dstein((size, diagonal, beside, wanted, values, blocks, ends, basis, size, work, scratch, misses, info))
    good = good and info[0] == 0 and _solves(diagonal, beside, values, basis, _TOLERANCE)
    _dormtr((left, lower, plain, size, wanted, matrix, stride, reflectors, basis, size, work, room, info))
    begin = 0
    while begin < count:
        end = begin + 1
        while end < needed and values[end] - values[end - 1] <= SAME_VALUE * largest:
            end += 1
        if end == begin + 1:
            _agree_on_sign(basis[begin])
        else:
            _agree_on_basis(basis[begin:end], min(end - begin, count))
        begin = end
    for column in range(count):
        # Rounding errors of zero eigenvalues, one per component of the graph.
        if values[column] <= n * _EPSILON * largest:
            values[column] = 0.0
    return values[:count], basis, good


@cpu_kernel
def _make_tridiagonal(matrix: Numbers, diagonal: Numbers, beside: Numbers, reflectors: Numbers, work: Numbers) -> None:
    """Compute, as `dsytrd`, `Q^T A Q` of symmetric A, `matrix [n, m]`, Q a product of reflections `1 - t v v^T`.

    Column by column: t and v make it zero below the second diagonal, and then `A - v w^T - w v^T` is the reflected rest
    of A, `w = t A v - (t / 2) (t v^T A v) v` (Golub & Van Loan, Matrix Computations, section 8.3.1).

    Args:
        matrix: output for v, from its second non-zero entry on, to the right of the second diagonal.
        diagonal: output for the diagonal `[n]`.
        beside: output for the second diagonal `[n]`, except the last entry.
        reflectors: output for t `[n]`, except the last entry.
        work: workspace for `2 m` numbers.
    """
    n, width = matrix.shape
    columns = np.uint64(width)
    v, w = work[:width], work[width : 2 * width]
    w[n:] = 0.0
    for k in range(n - 1):
        diagonal[k], first, rest = matrix[k, k], matrix[k, k + 1], 0.0
        for c in range(k + 2, n):
            rest += matrix[k, c] ** 2
        beside[k], reflectors[k] = first, 0.0
        if rest == 0.0:
            continue
        length = np.sqrt(first * first + rest)
        # Against the sign of `first`, so that first - beside[k] does not cancel.
        beside[k] = -length if first >= 0.0 else length
        factor = (beside[k] - first) / beside[k]
        reflectors[k] = factor
        for c in range(columns):
            v[c] = matrix[k, c] / (first - beside[k])
        v[: k + 1], v[k + 1] = 0.0, 1.0
        w[: k + 1] = 0.0
        along = 0.0
        for row in range(k + 1, n):
            product = 0.0
            for c in range(columns):
                product += matrix[row, c] * v[c]
            w[row] = factor * product
            along += w[row] * v[row]
        for row in range(k + 1, n):
            w[row] -= 0.5 * factor * along * v[row]
        for row in range(k + 1, n):
            entry, other = v[row], w[row]
            for c in range(columns):
                matrix[row, c] -= entry * w[c] + other * v[c]
        matrix[k, k + 2 : n] = v[k + 2 : n]
    diagonal[n - 1] = matrix[n - 1, n - 1]


@cpu_kernel
def _solves(diagonal: Numbers, beside: Numbers, values: Numbers, basis: Numbers, tolerance: float) -> bool:
    """Return whether rows of `basis [k, n]` are orthonormal eigenvectors of a tridiagonal matrix, to a tolerance."""
    count, n = basis.shape
    for column in range(count):
        for other in range(column + 1):
            product = -1.0 if other == column else 0.0
            for j in range(n):
                product += basis[column, j] * basis[other, j]
            if not abs(product) <= tolerance:  # also if it is NaN
                return False
        for j in range(n):
            away = (diagonal[j] - values[column]) * basis[column, j]
            away += beside[j - 1] * basis[column, j - 1] if j > 0 else 0.0
            away += beside[j] * basis[column, j + 1] if j < n - 1 else 0.0
            if not abs(away) <= tolerance * values[n - 1]:
                return False
    return True


@cpu_kernel
def _agree_on_sign(vector: Numbers) -> None:
    """Compute the basis of `_agree_on_basis` if the eigenspace is a line."""
    largest = 0.0
    for entry in vector:
        largest = max(largest, entry * entry)
    for entry in vector:
        if entry * entry >= largest - TIE:
            if entry < 0.0:
                for node in range(len(vector)):
                    vector[node] = -vector[node]
            return


@cpu_kernel
def _agree_on_basis(basis: Numbers, count: int) -> None:
    """See `_eigenvectors.pivoted_basis`: rotate the rows of `basis [m, n]`, of which the first `count` become final."""
    size, n = basis.shape
    remaining, lead = basis.copy(), np.empty(size)
    for column in range(count):
        largest, pivot = 0.0, 0
        for node in range(n):
            weight = 0.0
            for k in range(size):
                weight += remaining[k, node] ** 2
            largest = max(largest, weight)
        for node in range(n):
            weight = 0.0
            for k in range(size):
                weight += remaining[k, node] ** 2
            if weight >= largest - TIE:
                pivot = node
                break
        length = 0.0
        for k in range(size):
            lead[k] = remaining[k, pivot]
            length += lead[k] ** 2
        for k in range(size):
            lead[k] /= np.sqrt(length)
        for node in range(n):
            along = 0.0
            for k in range(size):
                along += remaining[k, node] * lead[k]
            basis[column, node] = along
            for k in range(size):
                remaining[k, node] -= along * lead[k]
