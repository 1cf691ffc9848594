"""Arithmetic on one number from each of sixteen rows, in instructions for Numba that are written like formulas.

Only imported by Numba kernels. A row of a small graph is too short to fill vector registers and to hide the latency of
its sums and divisions, so sixteen rows are computed in parallel, each in its own lane, without operations across lanes.
Scores are stored with the keys of a row below each other, and sums over keys need no final reduction over lanes.
Numba's own loops over two indices would keep the sums in memory.

All operands are in one array: first columns, `[count, LANES]` each, one per kind of number of a key; elsewhere rows,
`[LANES]` each, one per kind of number of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils

from graphbench_kernels.lanes_numba import Lanes
from graphbench_kernels.products_numba import LANES, instruction

__all__ = ["Desk", "in_all_rows", "inlined", "over_keys"]

#: Arithmetic as in `cpu_kernel`, in functions that are inlined into their callers and called by nothing else.
_OPTIONS: dict[str, Any] = {
    "forceinline": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "nsz", "contract"},
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
inlined = njit(**_OPTIONS)


class Desk:
    """Operands of a formula: columns of the present key, and numbers of the rows.

    Args:
        builder: receives instructions.
        start: the array.
        columns: place of the first column.
        apart: stride of the columns.
        rows: place of the numbers of rows.
    """

    def __init__(self, builder: Any, start: Any, columns: Any, apart: Any, rows: Any) -> None:
        self._builder, self._start, self._columns, self._apart, self._rows = builder, start, columns, apart, rows
        self.limits = np.finfo(np.float32 if isinstance(start.type.pointee, ir.FloatType) else np.float64)
        self.align = self.limits.bits // 8
        self.vector = ir.VectorType(start.type.pointee, LANES)

    def at_key(self, key: Any) -> Desk:
        """Return the same with the columns of this key."""
        builder = self._builder
        columns = builder.add(self._columns, builder.mul(key, key.type(LANES)))
        return Desk(builder, self._start, columns, self._apart, self._rows)

    def number(self, number: float) -> Lanes:
        """Return the number in all lanes."""
        return Lanes(self._builder, self.vector([number] * LANES))

    def column(self, number: int) -> Lanes:
        """Return the key's number in this column."""
        return Lanes(self._builder, self._builder.load(self._column(number), align=self.align))

    def put_column(self, number: int, lanes: Lanes) -> None:
        """Set it."""
        self._builder.store(lanes.value, self._column(number), align=self.align)

    def row(self, number: int) -> Lanes:
        """Return the rows' number of this kind."""
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


#: Terms that a formula adds to the sums for a key.
Terms = tuple[Lanes, ...]


def over_keys(
    formula: Callable[..., Terms], reads: Sequence[int], sums: Sequence[int] = (), combine: Any = Lanes.__add__
) -> Any:
    """Create an instruction `(array, columns, count, rows)` that applies a formula to each key in turn.

    Args:
        formula: called with the desk, at a key, and the numbers of the rows that it reads; returns terms of the sums.
        reads: kinds of numbers of rows that it reads.
        sums: kinds of numbers of rows that receive its sums.
        combine: adds a term to a sum, which starts at 0; other combinations, such as `larger`, start at -1e30.
    """
    begin = 0.0 if combine is Lanes.__add__ else -1e30

    def generate(builder: Any, start: Any, columns: Any, count: Any, rows: Any) -> None:
        desk = Desk(builder, start, columns, builder.mul(count, count.type(LANES)), rows)
        row_values = [desk.row(number) for number in reads]
        # Two partial sums, because each addition to a sum has to wait for the previous one.
        partial = [[cgutils.alloca_once(builder, desk.vector) for _ in sums] for _ in range(2)]
        for held in (*partial[0], *partial[1]):
            builder.store(desk.number(begin).value, held)

        def apply(key: Any, held: list[Any]) -> None:
            for place, term in zip(held, formula(desk.at_key(key), *row_values), strict=True):
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

    return instruction(generate, None, types.int64, types.int64, types.int64)


def in_all_rows(formula: Callable[[Desk], Any]) -> Any:
    """Create an instruction `(array, rows) -> bool` that applies a formula to the numbers of the rows once.

    Args:
        formula: called with the desk; returns a condition, and the instruction returns whether it is true in any row.
    """

    def generate(builder: Any, start: Any, rows: Any) -> Any:
        return formula(Desk(builder, start, rows, rows, rows)).any()

    return instruction(generate, None, types.int64, returns=types.boolean)
