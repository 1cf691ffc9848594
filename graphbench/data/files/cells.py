"""Escape untrusted text in tables, so that no spreadsheet runs it as a formula and no page renders it as markup."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

#: Characters with which a formula begins in the usual spreadsheets.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
#: Words for a missing value that begin like a formula.
_GAPS = ("-", "--", "-1.#IND", "-1.#QNAN")
#: In many locales spreadsheets split lines at semicolons, which are not quoted in a table with commas.
_AFTER_SEMICOLON = re.compile(r"(?<=;)[^;]+")
_MARKUP = str.maketrans({mark: f"\\{mark}" for mark in "\\|*_`<>[]"})


def as_text(cell: Any) -> Any:
    """Put an apostrophe before any text in a cell that a spreadsheet would run; numbers stay numbers.

    If semicolons separate cells, `a;=HYPERLINK(1)` is two cells, and the second is a formula.

    Examples:
        >>> as_text("=HYPERLINK(A1)"), as_text("-1.2"), as_text("-1,2"), as_text(-1.2), as_text("-"), as_text("CCO")
        ("'=HYPERLINK(A1)", '-1.2', '-1,2', -1.2, '-', 'CCO')
        >>> as_text("a;=HYPERLINK(1)")
        "a;'=HYPERLINK(1)"
    """
    if not isinstance(cell, str):
        return cell
    first = "'" if _escape(cell) != cell else ""
    text = first + _AFTER_SEMICOLON.sub(lambda part: _escape(part[0]), cell)
    return cell if text == cell else text


def _escape(text: str) -> str:
    if not text.startswith(_FORMULA) or text in _GAPS:
        return text
    try:
        # A number is harmless, and must stay one for whoever reads the table.
        float(text.replace(",", ".", 1))  # also with a decimal comma
    except ValueError:
        return f"'{text}"
    return text


def markdown_text(text: str) -> str:
    r"""Escape a text to one line that Markdown shows verbatim, without tags, links, or further table cells.

    Examples:
        >>> markdown_text("a|b <img src=x>")
        'a\\|b \\<img src=x\\>'
    """
    return " ".join(text.split()).translate(_MARKUP)


def without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Escape column names and text cells that a spreadsheet would run; columns of numbers are not copied.

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
