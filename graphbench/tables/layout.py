"""Detect the layout of text files with columns: separator, decimal commas, and columns by name."""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Iterable, Sequence

from graphbench.errors import BadInput

#: Separators of cells, and their names in messages.
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
_POINT = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?")


def separator_of(header: str, usual: str, wanted: Sequence[str]) -> str:
    """Detect the separator of the cells of a file.

    The wanted columns decide, then the number of cells, then `usual`, the separator of files with this suffix.
    `csv.Sniffer`, as in pandas, is not used: it counts characters, and takes a comma in a column name for a separator.

    Examples:
        >>> separator_of("id;SMILES;logP", ",", ["smiles", "logP"])
        ';'
        >>> separator_of("smiles", ",", ["smiles"])
        ','
        >>> separator_of('smiles;"y, in kcal/mol"', ",", ["smiles"])
        ';'
    """
    folded = {name.casefold() for name in wanted}

    def fit(separator: str) -> tuple[int, int]:
        cells = next(csv.reader([header], delimiter=separator), [])
        return len(folded & {cell.strip().casefold() for cell in cells}), len(cells)

    return max([usual, *(other for other in SEPARATORS if other != usual)], key=fit)  # the first one on ties


def is_decimal_comma(cell: str) -> bool:
    """Return whether a cell is a number with a decimal comma.

    Examples:
        >>> is_decimal_comma("-1,5"), is_decimal_comma("1.5"), is_decimal_comma("1.234,5")
        (True, False, False)
    """
    return _COMMA.fullmatch(cell) is not None


def is_decimal_point(cell: str) -> bool:
    """Return whether a cell is a number with a decimal point.

    Examples:
        >>> is_decimal_point("-1.5"), is_decimal_point("1,5"), is_decimal_point("15")
        (True, False, False)
    """
    return _POINT.fullmatch(cell) is not None


def has_decimal_commas(cells: Iterable[str]) -> bool:
    """Return whether numbers have decimal commas: at least one cell does, and none has a decimal point.

    Examples:
        >>> has_decimal_commas(["1,5", "", "2"]), has_decimal_commas(["1,5", "2.5"]), has_decimal_commas(["1", "2"])
        (True, False, False)
    """
    distinct = set(cells)
    return any(map(is_decimal_comma, distinct)) and not any(map(is_decimal_point, distinct))


def point_for_comma(cell: str) -> str:
    """Replace the decimal comma of a number by a point; leave any other cell unchanged.

    Examples:
        >>> point_for_comma("1,5"), point_for_comma("C,N")
        ('1.5', 'C,N')
    """
    return cell.replace(",", ".") if is_decimal_comma(cell) else cell


def find_column(source: object, header: Sequence[str], name: str) -> int | None:
    """Return the index of the named column, or of the only one whose name differs in case; None if there is none.

    Examples:
        >>> find_column("a.csv", ["ID", "SMILES"], "smiles"), find_column("a.csv", ["y", "Y"], "Y")
        (1, 1)
    """
    places = [place for place, column in enumerate(header) if column == name]
    if len(places) > 1:
        numbers = ", ".join(str(place + 1) for place in places)
        raise BadInput(
            f"{source}: line 1 has duplicate columns: {name!r} as columns {numbers}. Rename or remove all but one."
        )
    places = places or [place for place, column in enumerate(header) if column.casefold() == name.casefold()]
    if len(places) > 1:
        candidates = " or ".join(f"{header[place]!r} (column {place + 1})" for place in places)
        raise BadInput(f"{source}: the column {name!r} may be {candidates}. Write it as the file does.")
    return places[0] if places else None


def near(missing: Sequence[str], header: Sequence[str]) -> str:
    """Suggest columns with names similar to missing ones, as a sentence; "" if there are none.

    Examples:
        >>> near(["logp", "mass"], ["logP_exp", "weight"])
        " Did you mean 'logP_exp'?"
    """
    folded = {name.casefold(): name for name in header}
    matches = [folded[m] for name in missing for m in difflib.get_close_matches(name.casefold(), folded, n=1)]
    return f" Did you mean {' or '.join(map(repr, dict.fromkeys(matches)))}?" if matches else ""


def describe_layout(separator: str, usual: str, read_for: dict[str, str]) -> list[str]:
    """Describe in words how a file differs from a plain one.

    Examples:
        >>> describe_layout(";", ",", {"smiles": "SMILES", "y": "y"})
        ['cells are separated by semicolons', "the column 'SMILES' is read for 'smiles'"]
    """
    notes = [f"cells are separated by {SEPARATORS[separator]}"] if separator != usual else []
    return notes + [
        f"the column {column!r} is read for {name!r}" for name, column in read_for.items() if column != name
    ]
