"""Products of matrices small enough to stay in a CPU's cache, for kernels that do more with their numbers.

Only imported by Numba kernels, into which these functions are inlined. A library's product of a few thousand numbers
spends most of its time on call overhead. Here four rows times sixteen or thirty-two columns are summed in vector
registers, with custom instructions: loops over three indices in Numba would keep sums in memory.

Matrices are stored in one-dimensional arrays. Each is given by the place of its first number and the stride of its
rows, which has no cost, whereas views of arrays are reference-counted.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from itertools import product
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from graphbench_kernels.running import cpu_kernel

__all__ = ["LANES", "ROWS", "WIDE", "Combine", "add_product", "multiply", "tile"]

Array = NDArray[np.floating]

#: Columns that are computed together: the columns of a product, and the room for them, are a multiple of it.
LANES = 16
#: Rows that are computed together.
ROWS = 4


def _wide() -> int:
    try:
        return 2 * LANES if get_host_cpu_features().get("avx512f", False) else LANES
    except RuntimeError:  # the features of this CPU are unknown
        return LANES


#: Columns that are computed together if there are enough: with AVX-512, registers have room for twice as many sums.
#: Without it registers are fewer and shorter, and sums that do not fit are kept in memory, which takes twice the time.
WIDE = _wide()

#: Creates the instructions that combine a vector of the left matrix with one of the right matrix and one of the factor.
Combine = Callable[[Any, Any, Any, Any], Any]


def _times(builder: Any, left: Any, right: Any, factor: Any) -> Any:
    return builder.fmul(left, right, flags=("contract",))


#: The type of an instruction's argument with the dtype of the first array.
NUMBER = object()


def instruction(generate: Callable[..., Any], *kinds: Any, returns: Any = types.void) -> Any:
    """Create a Numba instruction from a function that builds LLVM instructions.

    Args:
        generate: called with the builder and the arguments; arrays are passed as pointers to their first numbers.
        kinds: types of the arguments; None for arrays of any type.
        returns: return type of `generate`.
    """

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = generate(
            builder,
            *(
                context.make_array(kind)(context, builder, x).data if isinstance(kind, types.Array) else x
                for kind, x in zip(signature.args, arguments, strict=True)
            ),
        )
        return context.get_dummy_value() if returns is types.void else made

    def typed(typing_context: Any, *given: Any) -> Any:
        by_kind = {None: given, NUMBER: [given[0].dtype] * len(given)}
        return returns(*(by_kind[kind][i] if kind in by_kind else kind for i, kind in enumerate(kinds))), lower

    names = ["typing_context", *(f"argument_{i}" for i in range(len(kinds)))]
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    typed.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # Numba accepts no others
    return intrinsic(typed)


def everywhere(builder: Any, number: Any) -> Any:
    """Return a vector with the number in all lanes."""
    vector = ir.VectorType(number.type, LANES)
    one = builder.insert_element(vector(ir.Undefined), number, ir.IntType(32)(0))
    return builder.shuffle_vector(one, vector(ir.Undefined), ir.VectorType(ir.IntType(32), LANES)([0] * LANES))


def bytes_of(kind: Any) -> int:
    """Return the bytes of a number, to which vectors of them are aligned."""
    return 4 if isinstance(kind, ir.FloatType) else 8


def tile(rows: int, vectors: int, combine: Combine = _times) -> Any:
    """Create a Numba instruction for some rows and vectors of columns of a product.

    Its arguments are those of `multiply` up to `out_row`, `count`, a factor, which products ignore, and whether sums
    are added to existing numbers.

    Args:
        rows: rows of the result.
        vectors: vectors of `LANES` columns of the result.
        combine: terms to sum instead of products; preferably a product with the factor, since many CPUs fuse multiply
            and add.
    """

    def generate(
        builder: Any, a: Any, a_at: Any, a_row: Any, a_step: Any, b: Any, b_at: Any, b_row: Any, *rest: Any
    ) -> None:
        out, out_at, out_row, count, one_factor, adds = rest
        integer, vector = count.type, ir.VectorType(a.type.pointee, LANES)
        align, parts = bytes_of(vector.element), list(product(range(rows), range(vectors)))

        def place(start: Any, at: Any, steps: int, step: Any) -> Any:
            return builder.gep(start, [builder.add(at, builder.mul(integer(steps), step))])

        def vectors_of(start: Any, at: Any, row: int, apart: Any, part: int) -> Any:
            lanes = builder.gep(place(start, at, row, apart), [integer(part * LANES)])
            return builder.bitcast(lanes, vector.as_pointer())

        factor = everywhere(builder, one_factor)
        sums = {part: cgutils.alloca_once(builder, vector) for part in parts}
        for (row, part), held in sums.items():
            before = builder.load(vectors_of(out, out_at, row, out_row, part), align=align)
            builder.store(builder.select(adds, before, vector([0.0] * LANES)), held)
        with cgutils.for_range(builder, count) as loop:
            a_now = builder.add(a_at, builder.mul(loop.index, a_step))
            b_now = builder.add(b_at, builder.mul(loop.index, b_row))
            loaded = [builder.load(vectors_of(b, b_now, 0, b_row, v), align=align) for v in range(vectors)]
            for row in range(rows):
                number = everywhere(builder, builder.load(place(a, a_now, row, a_row)))
                for part in range(vectors):
                    added, held = combine(builder, number, loaded[part], factor), sums[row, part]
                    builder.store(builder.fadd(builder.load(held), added, flags=("contract",)), held)
        for (row, part), held in sums.items():
            builder.store(builder.load(held), vectors_of(out, out_at, row, out_row, part), align=align)

    n = types.int64
    return instruction(generate, None, n, n, n, None, n, n, None, n, n, n, NUMBER, types.boolean)


_four_wide, _four_narrow = tile(ROWS, WIDE // LANES), tile(ROWS, 1)
_one_wide, _one_narrow = tile(1, WIDE // LANES), tile(1, 1)


@cpu_kernel
def multiply(
    a: Array,
    a_at: int,
    a_row: int,
    a_step: int,
    b: Array,
    b_at: int,
    b_row: int,
    out: Array,
    out_at: int,
    out_row: int,
    rows: int,
    columns: int,
    count: int,
) -> None:
    """Write `sum_t a_rt b_tc` to `out_rc`; all arrays have one axis and one type, float32 or float64.

    Args:
        a: contains the left matrix `[rows, count]`.
        a_at: place of its first number.
        a_row: stride of its rows.
        a_step: stride of its columns.
        b: contains the right matrix `[count, columns]`, with contiguous columns.
        b_at: place of its first number.
        b_row: stride of its rows.
        out: another array.
        out_at: place of the first result.
        out_row: stride of its rows.
        rows: rows of `out`.
        columns: columns of `out`, a multiple of `LANES`.
        count: number of products in each sum.
    """
    _compute(a, a_at, a_row, a_step, b, b_at, b_row, out, out_at, out_row, rows, columns, count, False)


@cpu_kernel
def add_product(
    a: Array,
    a_at: int,
    a_row: int,
    a_step: int,
    b: Array,
    b_at: int,
    b_row: int,
    out: Array,
    out_at: int,
    out_row: int,
    rows: int,
    columns: int,
    count: int,
) -> None:
    """Add `sum_t a_rt b_tc` to `out_rc`; arguments as for `multiply`."""
    _compute(a, a_at, a_row, a_step, b, b_at, b_row, out, out_at, out_row, rows, columns, count, True)


@cpu_kernel
def _compute(
    a: Array,
    a_at: int,
    a_row: int,
    a_step: int,
    b: Array,
    b_at: int,
    b_row: int,
    out: Array,
    out_at: int,
    out_row: int,
    rows: int,
    columns: int,
    count: int,
    adds: bool,
) -> None:
    many, wide = rows // ROWS * ROWS, columns // WIDE * WIDE
    one = a.dtype.type(1)
    for row in range(0, many, ROWS):
        left, to = a_at + row * a_row, out_at + row * out_row
        for column in range(0, wide, WIDE):
            _four_wide(a, left, a_row, a_step, b, b_at + column, b_row, out, to + column, out_row, count, one, adds)
        if wide < columns:
            _four_narrow(a, left, a_row, a_step, b, b_at + wide, b_row, out, to + wide, out_row, count, one, adds)
    for row in range(many, rows):
        left, to = a_at + row * a_row, out_at + row * out_row
        for column in range(0, wide, WIDE):
            _one_wide(a, left, a_row, a_step, b, b_at + column, b_row, out, to + column, out_row, count, one, adds)
        if wide < columns:
            _one_narrow(a, left, a_row, a_step, b, b_at + wide, b_row, out, to + wide, out_row, count, one, adds)
