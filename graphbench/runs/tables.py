"""Columns of the tables in `diagnostics/`, which callbacks write and the report reads; what splits are called."""

from __future__ import annotations

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
