"""Answers of several models, joined row by row, and their tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from graphbench.contracts import GraphTable, InputPart
from graphbench.errors import BadInput
from graphbench.inference.answers import Answers, agreed, answer_table

#: Four rows with 2, 3, 1 and 2 nodes.
NODES = np.array([2, 3, 1, 2])
#: In place of the graphs, which these tests do not read.
NONE = GraphTable.from_graphs([{"num_nodes": 1, "edge_index": torch.empty(2, 0, dtype=torch.int64)}])


def answers(rows, problems, offset=0.0, remarks=None):
    """Return answers with the value `row + node / 10 + offset` for each node."""
    values = [row + node / 10 + offset for row in rows for node in range(NODES[row])]
    return Answers(np.array(values)[:, None], list(rows), NODES[list(rows)], dict(problems), remarks)


def test_only_rows_that_all_answer_count():
    first = answers([0, 1, 3], {2: "torn"}, remarks=["", "a; b", "", ""])
    second = answers([1, 2, 3], {0: "no atoms"}, 100.0, remarks=["c", "b; d", "", ""])
    values, joined = agreed([first, second])
    assert joined.rows == [1, 3]
    assert joined.counts.tolist() == [3, 2]
    assert values[0, :, 0] == pytest.approx([1.0, 1.1, 1.2, 3.0, 3.1])
    assert values[1, :, 0] == pytest.approx([101.0, 101.1, 101.2, 103.0, 103.1])
    assert joined.problems == {2: "torn", 0: "no atoms"}
    assert joined.remarks == ["c", "a; b; d", "", ""]


def test_graphs_of_other_sizes_are_refused():
    other = answers([0, 1, 2, 3], {})
    other.counts = np.array([2, 2, 2, 2])
    with pytest.raises(BadInput, match="graphs of different sizes"):
        agreed([answers([0, 1, 2, 3], {}), other])


def test_nodes_have_rows_and_a_row_without_an_answer_stays_one():
    frame = pd.DataFrame({"name": ["a", "b", "c", "d"]})
    found = answers([0, 2, 3], {1: "torn"}, remarks=["", "", "odd", ""])
    part = InputPart(frame, NONE, [], {})
    table = answer_table(part, found, lambda values, present: {"value": values[:, 0], "there": present}, level="node")
    assert table["name"].tolist() == ["a", "a", "b", "c", "d", "d"]
    assert table["node"].tolist() == [0, 1, pd.NA, 0, 0, 1]
    assert table["value"].fillna(-1).tolist() == pytest.approx([0.0, 0.1, -1, 2.0, 3.0, 3.1])
    assert table["there"].tolist() == [True, True, False, True, True, True]
    assert table["problem"].tolist() == ["", "", "torn", "", "", ""]
    assert table["outside_training"].tolist() == ["", "", "", "odd", "", ""]


def test_nodes_have_the_names_that_the_input_gives_them():
    part = InputPart(pd.DataFrame({"id": list("abcd")}), NONE, [], {}, {0: ["u", "v"], 2: ["w"], 3: ["x", "y"]})
    table = answer_table(part, answers([0, 3], {1: "torn", 2: "odd"}), lambda values, present: {}, level="node")
    assert table["id"].tolist() == ["a", "a", "b", "c", "d", "d"]
    assert table["node_name"].tolist() == ["u", "v", pd.NA, pd.NA, "x", "y"]
