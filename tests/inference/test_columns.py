"""Columns of predictions, for each kind of task."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from graphbench.benchmarks import AMPPeptides, Molecules
from graphbench.inference.columns import beside, own_name, prediction_columns, target_columns
from graphbench.training.tasks.metrics import label_accuracy, label_f1

VALUES = np.array([[0.2, 0.8], [np.nan, np.nan], [0.6, 0.4]], dtype=np.float32)
PRESENT = np.array([True, False, True])


def columns(data, classes=()):
    return pd.DataFrame(prediction_columns(data, VALUES, classes, PRESENT))


def test_regressions_have_their_targets_by_name():
    found = columns(Molecules("none.csv", ["melting", "boiling"]))
    assert list(found) == ["prediction_melting", "prediction_boiling"]
    assert found["prediction_melting"].isna().tolist() == [False, True, False]


def test_classes_are_numbers_or_names_with_probabilities():
    data = Molecules("none.csv", "kind", task="classification", num_classes=2)
    found = columns(data, data.class_labels())
    assert list(found) == ["prediction_kind", "probability_0", "probability_1"]
    assert found["prediction_kind"].tolist() == [1, pd.NA, 0]
    named = AMPPeptides(labels="antimicrobial")
    found = columns(named, named.class_labels())
    assert list(found) == ["prediction_class", "probability_other", "probability_antimicrobial"]
    assert found["prediction_class"].tolist() == ["antimicrobial", pd.NA, "other"]


def test_labels_are_answers_with_probabilities():
    found = columns(Molecules("none.csv", ["hot", "cold"], task="multilabel"))
    assert list(found) == ["prediction_hot", "prediction_cold", "probability_hot", "probability_cold"]
    assert found["prediction_cold"].tolist() == [1, pd.NA, 0]
    assert found["probability_hot"].tolist()[0] == pytest.approx(0.2)


def test_a_probability_of_one_half_is_a_no_as_in_scores():
    data = Molecules("none.csv", ["hot"], task="multilabel")
    half = np.array([[0.5], [np.nextafter(0.5, 1)]])
    assert prediction_columns(data, half, (), np.ones(2, dtype=bool))["prediction_hot"].tolist() == [0, 1]
    for score in (label_accuracy, label_f1):
        assert float(score(torch.tensor(half)[:, 0], torch.tensor([0, 1]))) == 1


def test_targets_are_called_as_predictions_are():
    """Unknown classes are negative in tables, and NaN if rows of several inputs were joined."""
    named = Molecules("none.csv", "kind", task="classification", classes=["no", "yes"])
    for unknown in (-1, np.nan):
        found = target_columns(named, np.array([[1], [unknown], [0]]), named.class_labels())
        assert {name: list(values) for name, values in found.items()} == {"target_kind": ["yes", pd.NA, "no"]}
    numbers = target_columns(Molecules("none.csv", ["hot", "cold"]), VALUES.astype(float), ())
    assert list(numbers) == ["target_hot", "target_cold"]
    np.testing.assert_array_equal(numbers["target_cold"], VALUES[:, 1].astype(float))


def test_predictions_beside_earlier_ones_have_one_number():
    frame = pd.DataFrame({"smiles": ["C"], "problem": ["none"]})
    new = {"prediction_y": np.ones(1), "problem": np.array([""])}
    second = beside(frame, new)
    assert list(second) == ["smiles", "problem", "prediction_y_2", "problem_2"]
    assert list(beside(second, new))[-2:] == ["prediction_y_3", "problem_3"]
    assert (second["problem"][0], second["problem_2"][0]) == ("none", "")
    assert [own_name(beside(second, new), name) for name in ("problem", "outside_training")] == ["problem_3", None]
