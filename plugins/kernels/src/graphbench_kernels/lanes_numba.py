"""Arithmetic on sixteen numbers at a time, in instructions for Numba that are written like formulas.

Only imported by Numba kernels. A long loop over the last axis is vectorised automatically; short ones spend more time
on starting and ending than on their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from graphbench_kernels.products_numba import LANES, bytes_of, instruction

__all__ = ["Lanes", "choose", "larger", "largest", "powers_of_two", "root", "smaller", "total", "transpose"]

#: Products may be fused with sums; NaN and infinity are kept.
_FLAGS = ("contract",)


class Lanes:
    """Sixteen numbers or booleans; every computation with them becomes an instruction.

    Args:
        builder: receives instructions.
        value: a vector of LANES numbers or bits.
    """

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def like(self, other: Lanes | float) -> Any:
        """Return the vector of `other`, or a vector of this type with the number in all lanes."""
        return other.value if isinstance(other, Lanes) else self.value.type([float(other)] * LANES)

    def same(self, number: float) -> Lanes:
        """Return the number in all lanes."""
        return Lanes(self.builder, self.like(number))

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
        """Return whether any lane is true, as one bit."""
        bits = self.builder.bitcast(self.value, ir.IntType(LANES))
        return self.builder.icmp_unsigned("!=", bits, bits.type(0))


def choose(condition: Lanes, yes: Lanes, no: Lanes | float) -> Lanes:
    """Return `yes` where the condition is true, else `no`."""
    return Lanes(yes.builder, yes.builder.select(condition.value, yes.value, yes.like(no)))


def larger(a: Lanes, b: Lanes | float) -> Lanes:
    """Return the larger number; `b` where one of them is NaN."""
    return choose(a > b, a, b)


def smaller(a: Lanes, b: Lanes | float) -> Lanes:
    """Return the smaller number; `b` where one of them is NaN."""
    return Lanes(a.builder, a.builder.select((a <= b).value, a.value, a.like(b)))


def root(x: Lanes) -> Lanes:
    """Return the square root."""
    bits = 32 if isinstance(x.value.type.element, ir.FloatType) else 64
    kind = ir.FunctionType(x.value.type, [x.value.type])
    function = cgutils.get_or_insert_function(x.builder.module, kind, f"llvm.sqrt.v{LANES}f{bits}")
    return Lanes(x.builder, x.builder.call(function, [x.value]))


def largest(x: Lanes) -> Any:
    """Return the largest of the lanes, none of which may be NaN."""
    return _joined(x, larger)


def total(x: Lanes) -> Any:
    """Return the sum of all lanes, by repeated halving."""
    return _joined(x, Lanes.__add__)


def _joined(x: Lanes, join: Callable[[Lanes, Lanes], Lanes]) -> Any:
    """Reduce all lanes to one number; LLVM's own reductions are sequential if numbers may be NaN."""
    half = LANES // 2
    while half:
        order = ir.VectorType(ir.IntType(32), LANES)([(lane + half) % LANES for lane in range(LANES)])
        x = join(x, Lanes(x.builder, x.builder.shuffle_vector(x.value, x.value, order)))
        half //= 2
    return x.builder.extract_element(x.value, ir.IntType(32)(0))


# Adding 1.5 times the power of two from which numbers have no fractional digits rounds x, and leaves the integer in the
# last bits, from which it is shifted to the exponent. The polynomials are Chebyshev's of (2^f - 1) / f for f in [-1/2,
# 1/2], lowest power first.
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
    """Compute 2^x and 2^-x to three units in the last place of numbers below 1, for x whose powers are normal numbers.

    Odd and even terms are summed separately, so that both powers share them.
    """
    builder, single = x.builder, isinstance(x.value.type.element, ir.FloatType)
    polynomial, digits, integer = (_SINGLE, 23, ir.IntType(32)) if single else (_DOUBLE, 52, ir.IntType(64))
    bits = ir.VectorType(integer, LANES)
    rounded = x + 1.5 * 2.0**digits  # see the comment above `_SINGLE`
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


def _transpose(builder: Any, start: Any, source: Any, apart: Any, out: Any, target: Any, out_apart: Any) -> None:
    """Write a transposed matrix of `LANES` by `LANES` numbers.

    In each of four rounds half of the lanes of two vectors are exchanged.

    Args:
        builder: receives instructions.
        start: the input array.
        source: place of the first number.
        apart: stride of the rows.
        out: the output array, which may be the same.
        target: place of the first result.
        out_apart: stride of the former columns.
    """
    vector = ir.VectorType(start.type.pointee, LANES)
    align = bytes_of(vector.element)

    def place(start: Any, at: Any, row: int, step: Any) -> Any:
        at = builder.add(at, builder.mul(step, step.type(row)))
        return builder.bitcast(builder.gep(start, [at]), vector.as_pointer())

    rows = [builder.load(place(start, source, i, apart), align=align) for i in range(LANES)]
    for bit in (1, 2, 4, 8):
        low = [i if not i & bit else LANES + i - bit for i in range(LANES)]
        high = [i + bit if not i & bit else LANES + i for i in range(LANES)]
        masks = [ir.VectorType(ir.IntType(32), LANES)(lanes) for lanes in (low, high)]
        for i in range(LANES):
            if not i & bit:
                pair = rows[i], rows[i | bit]
                rows[i], rows[i | bit] = (builder.shuffle_vector(*pair, mask) for mask in masks)
    for i, row in enumerate(rows):
        builder.store(row, place(out, target, i, out_apart), align=align)


_n = types.int64
transpose: Any = instruction(_transpose, None, _n, _n, None, _n, _n)
