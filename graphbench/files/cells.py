"""Tables for people: cells that a spreadsheet would run as a formula are text."""

from __future__ import annotations

from typing import Any

import pandas as pd

#: What a formula begins with in the usual spreadsheets.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def as_text(cell: Any) -> Any:
    """A cell with an apostrophe in front if it is a text that a spreadsheet would run; numbers stay numbers.

    Examples:
        >>> as_text("=HYPERLINK(A1)"), as_text("-1.2"), as_text(-1.2), as_text("CCO")
        ("'=HYPERLINK(A1)", '-1.2', -1.2, 'CCO')
    """
    if not isinstance(cell, str) or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """The same table, whose names of columns and cells of text no spreadsheet runs; columns of numbers are not copied.

    Examples:
        >>> without_formulas(pd.DataFrame({"id": ["@a", "b"], "=x": [-1.5, 2.0]}))
            id  '=x
        0  '@a -1.5
        1    b  2.0
    """
    columns = [
        column if pd.api.types.is_numeric_dtype(column) else column.astype(object).map(as_text, na_action="ignore")
        for _, column in frame.items()
    ]
    if not columns:
        return frame
    return pd.concat(columns, axis=1).rename(columns=as_text)
