"""What kernels for rows of sparse-flow attention begin with, on a processor: closed keys, powers of two, lengths.

Imported by `native` and `rows_numba`, and only when `runs_numba` says yes. Numba counts references of arrays wherever a
view is made or a branch uses them, which takes longer than a short row itself. So rows are passed as an array and a
number, functions have no branches around their loops, and what is not to be done for a row is done for its first 0
keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload
from numpy.typing import NDArray

from graphbench.kernels import cpu_kernel

Array = NDArray[np.floating]
Mask = NDArray[np.bool_]
#: Score of a key that is not allowed, whose power is 0, and what lies above it and below all others.
_CLOSED, _LOWEST = -1e30, -1e9
#: Arithmetic as in `cpu_kernel`, in functions that become part of those that call them: a call would take as long as a
#: short row.
inlined = njit(forceinline=True, nogil=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})


def _power_of_two(x: Any) -> Any:
    """2^x to within rounding, for x whose power is a normal number; compiled functions get one of those below."""
    return np.exp2(x)


@overload(_power_of_two, jit_options={"fastmath": {"contract"}, "error_model": "numpy"})
def _typed_power_of_two(x: Any) -> Callable[..., Any] | None:
    if x == types.float32:
        return _power_of_two_single
    return _power_of_two_double if x == types.float64 else None


# Adding 1.5 times the power of two from which numbers have no digits behind the point rounds x, and leaves the whole
# number in the last bits, from where it is shifted to the exponent. The polynomials are Chebyshev's of (2^f - 1) / f
# for f in [-1/2, 1/2].


def _power_of_two_single(x: Any) -> Any:
    rounded = np.float32(x + np.float32(1.5 * 2**23))
    f = x - (rounded - np.float32(1.5 * 2**23))
    p = np.float32(0.0001545318283)
    p = p * f + np.float32(0.001339088633)
    p = p * f + np.float32(0.009618082520)
    p = p * f + np.float32(0.05550357071)
    p = p * f + np.float32(0.2402265076)
    p = p * f + np.float32(0.6931471880)
    p = np.float32(p * f + np.float32(1.0))
    return np.int32(p.view(np.int32) + np.int32(rounded.view(np.int32) << np.int32(23))).view(np.float32)


def _power_of_two_double(x: Any) -> Any:
    rounded = np.float64(x + 1.5 * 2.0**52)
    f = x - (rounded - 1.5 * 2.0**52)
    p = 4.45496437126929679e-10
    p = p * f + 7.07259302787899657e-9
    p = p * f + 1.01780624269769234e-7
    p = p * f + 1.32154425525222915e-6
    p = p * f + 0.0000152527338298670806
    p = p * f + 0.000154035304417941374
    p = p * f + 0.00133335581464169169
    p = p * f + 0.00961812910760685395
    p = p * f + 0.0555041086648215944
    p = p * f + 0.240226506959100983
    p = p * f + 0.693147180559945309
    p = np.float64(p * f + 1.0)
    return np.int64(p.view(np.int64) + np.int64(rounded.view(np.int64) << np.int64(52))).view(np.float64)


@inlined
def close_keys(scores: Array, frictions: Array, item: int, allowed: Mask, mask: int, mask_row: int, count: int) -> int:
    """Close the keys of a row that are not allowed; returns how many of `count` are."""
    closed, num_allowed = scores.dtype.type(_CLOSED), 0
    for j in range(count):
        may = allowed[mask, mask_row, j]
        num_allowed += may
        scores[item, j] = scores[item, j] if may else closed
        frictions[item, j] = frictions[item, j] if may else closed
    return num_allowed


@inlined
def rounded_largest(scores: Array, item: int, count: int) -> Any:
    """The largest score of a row, rounded, 0 of no keys: as whole numbers they are compared many at once."""
    largest, lowest = np.int32(_LOWEST), scores.dtype.type(_LOWEST)
    for j in range(count):
        largest = max(largest, np.int32(max(scores[item, j], lowest)))
    return scores.dtype.type(largest if count > 0 else np.int32(0))


@inlined
def plain_powers(scores: Array, item: int, out: Array, count: int) -> Any:
    """Fill `out [K]` with 2^scores; returns its sum."""
    total = scores.dtype.type(0)
    for j in range(count):
        power = _power_of_two(scores[item, j])
        out[j] = power
        total += power
    return total


@inlined
def bounded_powers(scores: Array, item: int, shift: Any, lowest: Any, out: Array, count: int) -> Any:
    """Fill `out [K]` with 2^(scores - shift), 0 where that is no normal number; returns its sum."""
    zero, total = scores.dtype.type(0), scores.dtype.type(0)
    for j in range(count):
        x = scores[item, j] - shift
        power = _power_of_two(max(x, lowest))
        power = power if x >= lowest else zero
        out[j] = power
        total += power
    return total


@inlined
def plain_powers_and_inverses(scores: Array, item: int, out: Array, count: int) -> tuple[Any, Any]:
    """As `plain_powers`, and the sum of 1 / out."""
    one, total, inverses = scores.dtype.type(1), scores.dtype.type(0), scores.dtype.type(0)
    for j in range(count):
        power = _power_of_two(scores[item, j])
        out[j] = power
        total += power
        inverses += one / power
    return total, inverses


@inlined
def bounded_powers_and_inverses(
    scores: Array, item: int, shift: Any, lowest: Any, out: Array, count: int
) -> tuple[Any, Any]:
    """As `bounded_powers`, and the sum of 1 / out over open keys, infinite where one of them vanishes."""
    zero, one, total, inverses = scores.dtype.type(0), scores.dtype.type(1), scores.dtype.type(0), scores.dtype.type(0)
    closed = scores.dtype.type(_LOWEST)
    for j in range(count):
        x = scores[item, j] - shift
        power = _power_of_two(max(x, lowest))
        power = power if x >= lowest else zero
        out[j] = power
        total += power
        inverses += one / power if x > closed else zero
    return total, inverses


@inlined
def _length(vectors: Array, matrix: int, row: int) -> Any:
    total = vectors.dtype.type(0)
    for j in range(vectors.shape[2]):
        total += vectors[matrix, row, j] * vectors[matrix, row, j]
    return np.sqrt(total)


@inlined
def _longest(vectors: Array, matrix: int) -> Any:
    """The greatest length of a matrix `[K, width]`; no number if one is infinite or none."""
    longest, none = vectors.dtype.type(0), vectors.dtype.type(0)
    for row in range(vectors.shape[1]):
        length = _length(vectors, matrix, row)
        longest = max(longest, length)
        none += length - length
    return longest + none


@cpu_kernel
def bound_logits(
    first: int, last: int, query: Array, key: Array, friction_query: Array, friction_key: Array, sizes: Array
) -> None:
    """A bound on the logits of each row, by the lengths of queries and keys; no number where there is none.

    Args:
        first: matrix to begin with.
        last: matrix to end before.
        query: Q `[M, N, width]`.
        key: K `[M, K, width]`.
        friction_query: Q~ `[M, N, width]`.
        friction_key: K~ `[M, K, width]`.
        sizes: receives the bounds in its last column, `[M N, any]`.
    """
    num_rows, last_column = query.shape[1], sizes.shape[1] - 1
    scale = 1 / np.sqrt(query.shape[2])
    friction_scale = 1 / np.sqrt(friction_query.shape[2])
    for matrix in range(first, last):
        longest, friction_longest = _longest(key, matrix) * scale, _longest(friction_key, matrix) * friction_scale
        for row in range(num_rows):
            size = _length(query, matrix, row) * longest
            friction_size = _length(friction_query, matrix, row) * friction_longest
            none = (size - size) + (friction_size - friction_size)
            sizes[matrix * num_rows + row, last_column] = max(size, friction_size) + none
