"""Weights on one scale, over the rows that have a target."""

from __future__ import annotations

import pytest
import torch

from graphbench.contracts import Column, GraphTable
from graphbench.data.row_weights import scaled_weights
from graphbench.errors import BadInput


def table(y, weights):
    count = len(y)
    columns = {"y": torch.tensor(y), "weight": torch.tensor(weights)}
    layout = {"y": Column("graph"), "weight": Column("graph")}
    return GraphTable(columns, layout, {"node": torch.arange(count + 1), "edge": torch.zeros(count + 1).long()})


def test_mean_is_taken_over_labelled_training_rows():
    train = table([[1.0, torch.nan], [torch.nan, torch.nan], [2.0, 3.0]], [1.0, 100.0, 3.0])
    found = scaled_weights({"train": train, "test": table([[0.0, 0.0]], [8.0])})
    assert found["train"].columns["weight"].tolist() == [0.5, 50.0, 1.5]
    assert found["test"].columns["weight"].tolist() == [4.0]


def test_classes_without_a_label_are_left_out():
    found = scaled_weights({"train": table([[0], [-1], [1]], [2.0, 50.0, 6.0])})
    assert found["train"].columns["weight"].tolist() == [0.5, 12.5, 1.5]


def test_nothing_to_train_on_is_refused():
    with pytest.raises(BadInput, match="no training row has a weight above 0"):
        scaled_weights({"train": table([[1.0], [torch.nan]], [0.0, 2.0])})
