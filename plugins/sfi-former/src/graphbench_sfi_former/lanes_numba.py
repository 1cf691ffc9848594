"""Arithmetic on a number of each of sixteen rows at a time, in instructions for Numba that are written like formulas.

Imported by kernels in Numba alone. A row of a small graph is too short to fill vector registers and still to hide what
its sums and divisions take; so sixteen rows are computed side by side, each in a lane of its own, whose numbers meet no
other lane's. Scores lie with the keys of a row one below the other, and sums over keys need no end in which lanes are
added up. Loops of Numba's own over two indices would keep the sums in memory.

What the instructions work on lies in one array: first columns, `[count, LANES]` each, one for each kind of number that
a key has; elsewhere rows, `[LANES]` each, one for each kind of number that a row has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from graphbench.kernels.products_numba import LANES

__all__ = [
    "Desk",
    "Lanes",
    "choose",
    "in_all_rows",
    "inlined",
    "larger",
    "over_keys",
    "powers_of_two",
    "root",
    "smaller",
    "transpose",
]

#: Arithmetic as in `cpu_kernel`, in functions that become part of those that call them and are called by nothing else.
_OPTIONS: dict[str, Any] = {
    "forceinline": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "nsz", "contract"},
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
inlined = njit(**_OPTIONS)
#: Products may be joined with sums; NaN and infinity are kept.
_FLAGS = ("contract",)


class Lanes:
    """A number of each row, or the answer to a question; what is computed with it becomes an instruction.

    Args:
        builder: where instructions go.
        value: a vector of LANES numbers or bits.
    """

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def like(self, other: Lanes | float) -> Any:
        """The vector of `other`, or one of this type with this number in all lanes."""
        return other.value if isinstance(other, Lanes) else self.value.type([float(other)] * LANES)

    def _made(self, operation: str, left: Any, right: Any) -> Lanes:
        return Lanes(self.builder, getattr(self.builder, operation)(left, right, flags=_FLAGS))

    def _compared(self, how: str, other: Lanes | float) -> Lanes:
        return Lanes(self.builder, self.builder.fcmp_ordered(how, self.value, self.like(other)))

    def __add__(self, other: Lanes | float) -> Lanes:
        return self._made("fadd", self.value, self.like(other))

    def __sub__(self, other: Lanes | float) -> Lanes:
        return self._made("fsub", self.value, self.like(other))

    def __rsub__(self, other: float) -> Lanes:
        return self._made("fsub", self.like(other), self.value)

    def __mul__(self, other: Lanes | float) -> Lanes:
        return self._made("fmul", self.value, self.like(other))

    def __truediv__(self, other: Lanes | float) -> Lanes:
        return self._made("fdiv", self.value, self.like(other))

    def __rtruediv__(self, other: float) -> Lanes:
        return self._made("fdiv", self.like(other), self.value)

    def __gt__(self, other: Lanes | float) -> Lanes:
        return self._compared(">", other)

    def __ge__(self, other: Lanes | float) -> Lanes:
        return self._compared(">=", other)

    def __le__(self, other: Lanes | float) -> Lanes:
        return self._compared("<=", other)

    def __and__(self, other: Lanes) -> Lanes:
        return Lanes(self.builder, self.builder.and_(self.value, other.value))

    def __or__(self, other: Lanes) -> Lanes:
        return Lanes(self.builder, self.builder.or_(self.value, other.value))

    def __invert__(self) -> Lanes:
        return Lanes(self.builder, self.builder.not_(self.value))

    def any(self) -> Any:
        """Whether the answer is yes in any lane, as one bit."""
        bits = self.builder.bitcast(self.value, ir.IntType(LANES))
        return self.builder.icmp_unsigned("!=", bits, bits.type(0))


def choose(condition: Lanes, yes: Lanes, no: Lanes | float) -> Lanes:
    """`yes` where the condition holds, else `no`."""
    return Lanes(yes.builder, yes.builder.select(condition.value, yes.value, yes.like(no)))


def larger(a: Lanes, b: Lanes | float) -> Lanes:
    """The larger number; `b` where one of them is none."""
    return choose(a > b, a, b)


def smaller(a: Lanes, b: Lanes | float) -> Lanes:
    """The smaller number; `b` where one of them is none."""
    return Lanes(a.builder, a.builder.select((a <= b).value, a.value, a.like(b)))


def root(x: Lanes) -> Lanes:
    """The square root."""
    bits = 32 if isinstance(x.value.type.element, ir.FloatType) else 64
    kind = ir.FunctionType(x.value.type, [x.value.type])
    function = cgutils.get_or_insert_function(x.builder.module, kind, f"llvm.sqrt.v{LANES}f{bits}")
    return Lanes(x.builder, x.builder.call(function, [x.value]))


# Adding 1.5 times the power of two from which numbers have no digits behind the point rounds x, and leaves the whole
# number in the last bits, from where it is shifted to the exponent. The polynomials are Chebyshev's of (2^f - 1) / f
# for f in [-1/2, 1/2], lowest power first.
_SINGLE = (1.0, 0.6931471880, 0.2402265076, 0.05550357071, 0.009618082520, 0.001339088633, 0.0001545318283)
_DOUBLE = (
    1.0,
    0.693147180559945309,
    0.240226506959100983,
    0.0555041086648215944,
    0.00961812910760685395,
    0.00133335581464169169,
    0.000154035304417941374,
    0.0000152527338298670806,
    1.32154425525222915e-6,
    1.01780624269769234e-7,
    7.07259302787899657e-9,
    4.45496437126929679e-10,
)


def powers_of_two(x: Lanes) -> tuple[Lanes, Lanes]:
    """2^x and 2^-x to three units in the last place of numbers below 1, for x whose powers are normal numbers.

    The terms of odd and of even degree are summed apart, so that the second power is had from the first's.
    """
    builder, single = x.builder, isinstance(x.value.type.element, ir.FloatType)
    polynomial, digits, integer = (_SINGLE, 23, ir.IntType(32)) if single else (_DOUBLE, 52, ir.IntType(64))
    bits = ir.VectorType(integer, LANES)
    rounded = x + 1.5 * 2.0**digits
    f = x - (rounded - 1.5 * 2.0**digits)
    even, odd = (_polynomial(polynomial[part::2], f * f) for part in (0, 1))
    shift = builder.shl(builder.bitcast(rounded.value, bits), bits([digits] * LANES))
    plus, minus = (builder.bitcast(p.value, bits) for p in (even + f * odd, even - f * odd))
    powers = builder.add(plus, shift), builder.sub(minus, shift)
    return Lanes(builder, builder.bitcast(powers[0], x.value.type)), Lanes(
        builder, builder.bitcast(powers[1], x.value.type)
    )


def _polynomial(coefficients: Sequence[float], x: Lanes) -> Lanes:
    total = x * coefficients[-1] + coefficients[-2]
    for coefficient in coefficients[-3::-1]:
        total = total * x + coefficient
    return total


class Desk:
    """What a formula works on: columns of the present key, and numbers of the rows.

    Args:
        builder: where instructions go.
        start: the array.
        columns: place of the first column.
        apart: how far columns lie apart.
        rows: place of the numbers of rows.
    """

    def __init__(self, builder: Any, start: Any, columns: Any, apart: Any, rows: Any) -> None:
        self._builder, self._start, self._columns, self._apart, self._rows = builder, start, columns, apart, rows
        self.limits = np.finfo(np.float32 if isinstance(start.type.pointee, ir.FloatType) else np.float64)
        self.align = self.limits.bits // 8
        self.vector = ir.VectorType(start.type.pointee, LANES)

    def at_key(self, key: Any) -> Desk:
        """The same with the columns of this key."""
        builder = self._builder
        columns = builder.add(self._columns, builder.mul(key, key.type(LANES)))
        return Desk(builder, self._start, columns, self._apart, self._rows)

    def number(self, number: float) -> Lanes:
        """The same number in all lanes."""
        return Lanes(self._builder, self.vector([number] * LANES))

    def column(self, number: int) -> Lanes:
        """The key's number in this column."""
        return Lanes(self._builder, self._builder.load(self._column(number), align=self.align))

    def put_column(self, number: int, lanes: Lanes) -> None:
        """Set it."""
        self._builder.store(lanes.value, self._column(number), align=self.align)

    def row(self, number: int) -> Lanes:
        """The rows' number of this kind."""
        return Lanes(self._builder, self._builder.load(self._row(number), align=self.align))

    def put_row(self, number: int, lanes: Lanes) -> None:
        """Set it."""
        self._builder.store(lanes.value, self._row(number), align=self.align)

    def _place(self, at: Any) -> Any:
        return self._builder.bitcast(self._builder.gep(self._start, [at]), self.vector.as_pointer())

    def _column(self, number: int) -> Any:
        return self._place(self._builder.add(self._columns, self._builder.mul(self._apart, self._apart.type(number))))

    def _row(self, number: int) -> Any:
        return self._place(self._builder.add(self._rows, self._rows.type(number * LANES)))


def _desk(context: Any, builder: Any, signature: Any, arguments: Any) -> tuple[Desk, Any]:
    """The desk of an instruction with arguments `array, columns, count, rows`, and the count."""
    start = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    columns, count, rows = arguments[1:4]
    return Desk(builder, start, columns, builder.mul(count, count.type(LANES)), rows), count


#: What a formula adds to the sums for a key.
Terms = tuple[Lanes, ...]


def over_keys(
    formula: Callable[..., Terms], reads: Sequence[int], sums: Sequence[int] = (), combine: Any = Lanes.__add__
) -> Any:
    """An instruction `(array, columns, count, rows)` that applies a formula to key after key.

    Args:
        formula: called with the desk, at a key, and the numbers of the rows that it reads; returns terms of the sums.
        reads: kinds of numbers of rows that it reads.
        sums: kinds of numbers of rows that receive its sums.
        combine: adds a term to a sum; a sum that is none begins with the least finite number.
    """
    begin = 0.0 if combine is Lanes.__add__ else -1e30

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        desk, count = _desk(context, builder, signature, arguments)
        known = [desk.row(number) for number in reads]
        # Two partial sums, because the next term of one could not be added before the last one has been.
        partial = [[cgutils.alloca_once(builder, desk.vector) for _ in sums] for _ in range(2)]
        for held in (*partial[0], *partial[1]):
            builder.store(desk.number(begin).value, held)

        def apply(key: Any, held: list[Any]) -> None:
            for place, term in zip(held, formula(desk.at_key(key), *known), strict=True):
                builder.store(combine(Lanes(builder, builder.load(place)), term).value, place)

        half = builder.lshr(count, count.type(1))
        with cgutils.for_range(builder, half) as loop:
            first = builder.shl(loop.index, count.type(1))
            apply(first, partial[0])
            apply(builder.add(first, count.type(1)), partial[1])
        with builder.if_then(builder.trunc(count, ir.IntType(1))):
            apply(builder.sub(count, count.type(1)), partial[0])
        for number, one, other in zip(sums, *partial, strict=True):
            desk.put_row(number, combine(*(Lanes(builder, builder.load(place)) for place in (one, other))))
        return context.get_dummy_value()

    @intrinsic
    def instruction(typing_context: Any, array: Any, columns: Any, count: Any, rows: Any) -> Any:
        return types.void(array, types.int64, types.int64, types.int64), generate

    return instruction


def in_all_rows(formula: Callable[[Desk], Any]) -> Any:
    """An instruction `(array, rows) -> bool` that applies a formula to the numbers of the rows once.

    Args:
        formula: called with the desk; returns the answer to a question, and the instruction whether it is yes anywhere.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        rows = arguments[1]
        return formula(Desk(builder, start, rows, rows, rows)).any()

    @intrinsic
    def instruction(typing_context: Any, array: Any, rows: Any) -> Any:
        return types.boolean(array, types.int64), generate

    return instruction


def _transpose(typing_context: Any, array: Any, source: Any, apart: Any, target: Any) -> Any:
    """Write LANES by LANES numbers, whose rows lie `apart` from `source` on, transposed and side by side to `target`.

    In each of four rounds half of the lanes of two vectors change places.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        source, apart, target = arguments[1:]
        vector = ir.VectorType(start.type.pointee, LANES)
        align = vector.element.get_abi_size(context.target_data)

        def place(at: Any, row: int, step: Any) -> Any:
            at = builder.add(at, builder.mul(step, step.type(row)))
            return builder.bitcast(builder.gep(start, [at]), vector.as_pointer())

        rows = [builder.load(place(source, i, apart), align=align) for i in range(LANES)]
        for bit in (1, 2, 4, 8):
            low = [i if not i & bit else LANES + i - bit for i in range(LANES)]
            high = [i + bit if not i & bit else LANES + i for i in range(LANES)]
            masks = [ir.VectorType(ir.IntType(32), LANES)(lanes) for lanes in (low, high)]
            for i in range(LANES):
                if not i & bit:
                    pair = rows[i], rows[i | bit]
                    rows[i], rows[i | bit] = (builder.shuffle_vector(*pair, mask) for mask in masks)
        for i, row in enumerate(rows):
            builder.store(row, place(target, i, apart.type(LANES)), align=align)
        return context.get_dummy_value()

    n = types.int64
    return types.void(array, n, n, n), generate


transpose: Any = intrinsic(_transpose)
