"""Tables of predictions, read as targets or as probabilities."""

import numpy as np
import pandas as pd
import pytest

from graphbench.report.predictions import choices_of, targets_of


def test_targets_come_with_their_own_intervals():
    frame = pd.DataFrame({
        "id": [1, 2, 3], "prediction_a": [1.0, 2.0, 3.0], "prediction_b": [0.0, 0.0, 0.0],
        "target_a": [1.5, np.nan, 2.0], "target_b": [1.0, 1.0, 1.0], "a_low": [0.0, 1.0, 2.0],
        "a_high": [2.0, 3.0, 4.0],
    })  # fmt: skip
    a, b = targets_of(frame)
    assert (a.name, a.rows.tolist(), a.residuals.tolist()) == ("a", [0, 2], [-0.5, 1.0])
    assert (a.low.tolist(), a.high.tolist()) == ([0.0, 2.0], [2.0, 4.0])
    assert b.low is None
    (single,) = targets_of(pd.DataFrame({"prediction": [1.0], "target": [0.0], "y_low": [0.5], "y_high": [1.5]}))
    assert (single.name, single.label, single.low.tolist()) == ("", "y", [0.5])


def test_classes_have_the_probability_of_the_predicted_and_of_the_true_one():
    frame = pd.DataFrame({
        "prediction_red": [0.7, 0.2, 0.1], "prediction_blue": [0.2, 0.5, 0.8], "prediction_2": [0.1, 0.3, 0.1],
        "target": [0, 2, -1],
    })  # fmt: skip
    confidence, right, own = choices_of(frame)
    assert (confidence.tolist(), right.tolist(), own.tolist()) == ([0.7, 0.5], [True, False], [0.7, 0.3])


def test_labels_have_the_probability_of_yes():
    frame = pd.DataFrame({
        "prediction_hot": [0.9, 0.4], "target_hot": [1.0, 0.0], "prediction_cold": [0.2, 0.3],
        "target_cold": [np.nan, 1.0],
    })  # fmt: skip
    confidence, right, own = choices_of(frame)
    assert confidence.tolist() == [0.9, 0.4, 0.3]
    assert right.tolist() == [True, False, True]
    assert own == pytest.approx([0.9, 0.6, 0.3])


@pytest.mark.parametrize(
    "columns", [{"prediction": [2.0], "target": [1.0]}, {"prediction": [0.5], "target": [0.2]}, {"id": [1]},
                {"head": [0], "tail": [1], "prediction": [0.5], "target": [1]}]
)  # fmt: skip
def test_other_numbers_are_no_probabilities(columns):
    assert choices_of(pd.DataFrame(columns)) is None
