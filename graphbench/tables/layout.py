"""Text files with columns: what separates their cells, whether decimals have commas, and which column is meant."""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Iterable, Sequence

from graphbench.errors import BadInput

#: What may separate the cells of a row, and how to say it.
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
_POINT = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?")


def separator_of(header: str, usual: str, wanted: Sequence[str]) -> str:
    """What separates the cells of a file.

    The wanted columns decide, then the number of cells. `csv.Sniffer`, by which pandas guesses, counts characters
    alone, and takes the comma within the name of a column for one between two.

    Args:
        header: first line of the file.
        usual: that of files with this suffix; it is taken where another one finds no more.
        wanted: columns that should be there.

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

    return max([usual, *(other for other in SEPARATORS if other != usual)], key=fit)  # the first of equals


def is_decimal_comma(cell: str) -> bool:
    """Whether a cell is a number that is written with a decimal comma.

    Examples:
        >>> is_decimal_comma("-1,5"), is_decimal_comma("1.5"), is_decimal_comma("1.234,5")
        (True, False, False)
    """
    return _COMMA.fullmatch(cell) is not None


def is_decimal_point(cell: str) -> bool:
    """Whether a cell is a number that is written with a decimal point.

    Examples:
        >>> is_decimal_point("-1.5"), is_decimal_point("1,5"), is_decimal_point("15")
        (True, False, False)
    """
    return _POINT.fullmatch(cell) is not None


def has_decimal_commas(cells: Iterable[str]) -> bool:
    """Whether numbers have decimal commas: one cell at least has one, and none has a decimal point.

    Examples:
        >>> has_decimal_commas(["1,5", "", "2"]), has_decimal_commas(["1,5", "2.5"]), has_decimal_commas(["1", "2"])
        (True, False, False)
    """
    found = False
    for cell in cells:
        if is_decimal_point(cell):
            return False
        found = found or is_decimal_comma(cell)
    return found


def point_for_comma(cell: str) -> str:
    """A number with a decimal point in place of a comma; any other cell as it is.

    Examples:
        >>> point_for_comma("1,5"), point_for_comma("C,N")
        ('1.5', 'C,N')
    """
    return cell.replace(",", ".") if is_decimal_comma(cell) else cell


def find_column(source: object, header: Sequence[str], name: str) -> int | None:
    """Place of the column of a name, or of the only one whose name differs in case; None where there is none.

    Args:
        source: file, for messages.
        header: names of its columns.
        name: the one that is wanted.

    Raises:
        BadInput: several columns have it.

    Examples:
        >>> find_column("a.csv", ["ID", "SMILES"], "smiles"), find_column("a.csv", ["y", "Y"], "Y")
        (1, 1)
    """
    places = [place for place, found in enumerate(header) if found == name]
    if len(places) > 1:
        told = ", ".join(str(place + 1) for place in places)
        raise BadInput(
            f"{source}: line 1 has duplicate columns: {name!r} as columns {told}. Rename or remove all but one."
        )
    places = places or [place for place, found in enumerate(header) if found.casefold() == name.casefold()]
    if len(places) > 1:
        told = " or ".join(f"{header[place]!r} (column {place + 1})" for place in places)
        raise BadInput(f"{source}: the column {name!r} may be {told}. Write it as the file does.")
    return places[0] if places else None


def near(missing: Sequence[str], known: Sequence[str]) -> str:
    """What missing columns may have been meant to be, as a sentence; nothing where none is like them.

    Examples:
        >>> near(["logp", "mass"], ["logP_exp", "weight"])
        " Did you mean 'logP_exp'?"
    """
    folded = {name.casefold(): name for name in known}
    found = [folded[m] for name in missing for m in difflib.get_close_matches(name.casefold(), folded, n=1)]
    return f" Did you mean {' or '.join(map(repr, dict.fromkeys(found)))}?" if found else ""


def told_layout(separator: str, usual: str, read_for: dict[str, str]) -> list[str]:
    """What is unlike a plain file, in words.

    Args:
        separator: that of the file.
        usual: that of files with its suffix.
        read_for: wanted column -> column of the file.

    Examples:
        >>> told_layout(";", ",", {"smiles": "SMILES", "y": "y"})
        ['cells are separated by semicolons', "the column 'SMILES' is read for 'smiles'"]
    """
    told = [f"cells are separated by {SEPARATORS[separator]}"] if separator != usual else []
    return told + [f"the column {found!r} is read for {name!r}" for name, found in read_for.items() if found != name]
