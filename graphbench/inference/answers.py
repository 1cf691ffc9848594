"""Answers of a model for the rows of an input, and their table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from graphbench.contracts import InputPart
from graphbench.contracts.spec import Level
from graphbench.contracts.table import EDGE, ENDS
from graphbench.errors import BadInput
from graphbench.inference.columns import NODE, NODE_NAME, OUTSIDE, PROBLEM, beside

#: Function from values `[rows, width]` and a mask of the answered rows `[rows]` to columns.
Columns = Callable[[np.ndarray, np.ndarray], dict[str, Any]]


@dataclass
class Answers:
    """Values for some rows of an input.

    Args:
        values: of the answered rows one after another `[sum(counts), width]`.
        rows: number of each answered row, ascending `[answered]`.
        counts: number of values of each: one, or one for each of its nodes or edges `[answered]`.
        problems: row -> why it has no answer; every row is here or in `rows`.
        remarks: what of each row did not occur in training, "" for nothing; None if unknown.

    Examples:
        >>> answers = Answers(np.array([[1.0], [2.0]]), [0, 2], np.array([1, 1]), {1: "torn"})
        >>> answers.only([2]).values
        array([[2.]])
    """

    values: np.ndarray
    rows: list[int]
    counts: np.ndarray
    problems: dict[int, str]
    remarks: list[str] | None = None

    def only(self, rows: Sequence[int]) -> Answers:
        """Return the answers of some of the answered rows; the others keep neither values nor a problem."""
        wanted = set(rows)
        mask = np.array([row in wanted for row in self.rows], dtype=bool)
        values = self.values[np.repeat(mask, self.counts)]
        return Answers(values, [row for row in self.rows if row in wanted], self.counts[mask], {}, self.remarks)


def agreed(members: Sequence[Answers]) -> tuple[np.ndarray, Answers]:
    """Combine the answers of several models for the rows that all of them answer.

    Returns:
        Values `[members, sum(counts), width]`, and the answers of the first one restricted to these rows, with the
        problems and remarks of all.

    Raises:
        BadInput: the models see different numbers of nodes in a row.
    """
    # Reversed, so that the first model's reason is kept if a row has several.
    problems = {row: why for one in reversed(members) for row, why in one.problems.items()}
    rows = [row for row in members[0].rows if row not in problems]
    common = [one.only(rows) for one in members]
    if any(not np.array_equal(one.counts, common[0].counts) for one in common):
        raise BadInput("The models of this ensemble create graphs of different sizes from the same row.")
    remarks = [one.remarks for one in members if one.remarks is not None]
    merged = [_together(texts) for texts in zip(*remarks, strict=True)]
    joined = Answers(common[0].values, rows, common[0].counts, problems, merged if remarks else None)
    return np.stack([one.values for one in common]), joined


def _together(texts: Sequence[str]) -> str:
    """Merge several models' remarks on differences from their training, each once."""
    return "; ".join(dict.fromkeys(part for text in texts for part in text.split("; ") if part))


def answer_table(part: InputPart, answers: Answers, columns: Columns, level: Level) -> pd.DataFrame:
    """Return the input's rows with their answers: a row each, or one for each of a row's nodes or edges.

    `columns` creates columns from values of graphs, nodes or edges; a row without an answer stays one row. The index of
    the table is the number of the row within the part, as after `explode` in pandas.
    """
    frame = part.frame.reset_index(drop=True)
    # A row without an answer appears once, with the reason.
    counts = np.ones(len(frame), dtype=np.int64)
    counts[answers.rows] = answers.counts
    source = np.repeat(np.arange(len(frame)), counts)
    present = np.isin(source, answers.rows)
    values = np.full((len(source), answers.values.shape[1]), np.nan, dtype=answers.values.dtype)
    values[present] = answers.values
    extra: dict[str, Any] = {}
    if answers.remarks is not None:
        extra[OUTSIDE] = np.array(answers.remarks, dtype=object)[source]
    extra[PROBLEM] = np.array([answers.problems.get(row, "") for row in range(len(frame))], dtype=object)[source]
    first: dict[str, Any] = {}
    if level == "edge":
        first = _ends(part, answers, present)
    elif level == "node":
        number = np.arange(len(source)) - np.repeat(counts.cumsum() - counts, counts)
        first[NODE] = pd.arrays.IntegerArray(number, ~present)
        if part.node_names is not None:
            called = np.full(len(source), None, dtype=object)
            called[present] = [name for row in answers.rows for name in part.node_names[row]]
            first[NODE_NAME] = pd.array(called, dtype="string")
    if level == "graph":
        return beside(frame, columns(values, present) | extra)
    frame = frame.iloc[source].reset_index(drop=True)
    return beside(frame, first | columns(values, present) | extra).set_axis(source)


def _ends(part: InputPart, answers: Answers, present: np.ndarray) -> dict[str, Any]:
    """Return both ends of each edge of the answered rows, by number and, if the input has them, by name."""
    graph_of = {row: graph for graph, row in enumerate(part.rows)}
    ptr, edges = part.table.ptr[EDGE].tolist(), part.table.columns.get("edge_index")  # none if no graph is usable
    edges_of_rows = (
        [] if edges is None else [edges[ptr[graph_of[row]] : ptr[graph_of[row] + 1]].numpy() for row in answers.rows]
    )
    columns: dict[str, Any] = {}
    for side, name in enumerate(ENDS):
        number = np.zeros(len(present), dtype=np.int64)
        number[present] = np.concatenate([ends[:, side] for ends in edges_of_rows]) if edges_of_rows else 0
        columns[name] = pd.arrays.IntegerArray(number, ~present)
        if part.node_names is not None:
            names = part.node_names
            called = np.full(len(present), None, dtype=object)
            called[present] = [
                names[row][node]
                for row, ends in zip(answers.rows, edges_of_rows, strict=True)
                for node in ends[:, side].tolist()
            ]
            columns[f"{name}_name"] = pd.array(called, dtype="string")
    return columns
