"""Columns of the tables in `diagnostics/`, which callbacks write and the report reads; what splits are called."""

from __future__ import annotations

import math

#: Every table begins with these: finished epochs, and optimizer steps done.
POSITION = ("epoch", "step")
#: A table by layer: a row for every measure of a layer at a time.
LAYER_COLUMNS = ("layer", "module", "measure", "value", "graphs", "left_out")
#: What the report needs of a table by layer; tables of other packages may have no more.
SHOWN_OF_LAYERS = ("epoch", "layer", "measure", "value")
#: The table of the gap between training and unseen graphs.
GAP_COLUMNS = ("split", "measure", "train", "unseen", "gap", "stage")
#: Those of all columns that hold numbers.
NUMBERS = ("epoch", "layer", "value", "train", "unseen", "gap")
#: The splits with scores, and what they are called in tables for people.
SCORED = {"val": "validation", "test": "test"}


def show_number(value: float) -> str:
    """A score in four significant digits, with its closing zeros; powers of ten where it is very large or small.

    Examples:
        >>> [show_number(value) for value in (0.62241, 1, 12.3456, 1234.6, 264435120, 0.00001234)]
        ['0.6224', '1.000', '12.35', '1235', '2.644e+08', '1.234e-05']
    """
    if not math.isfinite(value):
        return str(value)
    return f"{value:#.4g}".removesuffix(".").replace(".e", "e") if value else "0.000"
