"""Words that say that a cell of a table has no value: one list for every family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: What people and programs write for no value, in any case; all that pandas knows is among it.
USUAL = (
    "NA", "N/A", "n.a.", "#N/A", "#N/A N/A", "#NA", "<NA>", "NaN", "-NaN", "null", "None", "nil", "ND", "n/d", "n.d.",
    "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN", "-", "--", "\N{EN DASH}", "\N{EM DASH}", "?",
)  # fmt: skip
#: The rule, in words.
RULE = "empty, NA, N/A, #N/A, NaN, null, None, ND, -, ? and the like; --data.missing"
_ALWAYS = ("", "nan")


@dataclass(frozen=True)
class Missing:
    """Cells that have no value.

    Args:
        words: in lower case.
        numbers: those that mean none, however they are written.

    Examples:
        >>> usual, own, none = Missing.of(None), Missing.of([-999, "not tested"]), Missing.of([])
        >>> [text for text in ("", "n/a", "ND", "-999.0", "Not tested", "-1") if text in usual]
        ['', 'n/a', 'ND']
        >>> [text for text in ("", "ND", "-999.0", "Not tested") if text in own], "ND" in none
        (['', 'ND', '-999.0', 'Not tested'], False)
    """

    words: frozenset[str]
    numbers: frozenset[float] = frozenset()

    @classmethod
    def of(cls, further: Sequence[Any] | None) -> Missing:
        """The usual words, and further ones or numbers; an empty list is empty cells and NaN alone."""
        chosen = (*_ALWAYS, *(() if further is not None and not further else USUAL), *(further or ()))
        numbers = {as_number(word) for word in further or ()}
        return cls(
            frozenset(str(word).strip().casefold() for word in chosen),
            frozenset(number for number in numbers if not math.isnan(number)),
        )

    def __contains__(self, cell: str) -> bool:
        return cell.casefold() in self.words or (bool(self.numbers) and as_number(cell) in self.numbers)


def as_number(value: Any) -> float:
    """A value as a number; NaN where it is none.

    Examples:
        >>> as_number("-999"), as_number("ND")
        (-999.0, nan)
    """
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
