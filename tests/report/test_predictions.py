"""Tables of predictions, reliability diagrams, and the molecules predicted worst."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import confusion_matrix
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from graphbench.report import result_tables
from graphbench.report.predictions import (
    SHOWN,
    Reliability,
    confidences_of,
    confusion,
    confusion_section,
    reliability_section,
    targets_of,
    worst_section,
)


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


SHARES = {"red": [0.7, 0.2, 0.1], "blue": [0.2, 0.5, 0.8], "2": [0.1, 0.3, 0.1]}


@pytest.mark.parametrize("columns", [
    {**{f"probability_{name}": shares for name, shares in SHARES.items()},
     "prediction_kind": ["red", "blue", "blue"], "target_kind": ["red", "2", None]},
    {**{f"probability_{n}": shares for n, shares in enumerate(SHARES.values())},
     "prediction_kind": [0, 1, 1], "target_kind": [0.0, 2.0, np.nan]},
    # written by earlier versions
    {**{f"prediction_{name}": shares for name, shares in SHARES.items()}, "target": [0, 2, -1]},
])  # fmt: skip
def test_classes_have_the_probability_of_the_predicted_one(columns):
    confidence, correct = confidences_of(pd.DataFrame(columns))
    assert (confidence.tolist(), correct.tolist()) == ([0.7, 0.5], [True, False])


def test_classes_may_be_called_true_and_false(tmp_path):
    """pandas reads these names from a file as booleans."""
    path = tmp_path / "predictions.csv"
    for last, right in (("False", [True, False, True]), ("", [True, False])):
        path.write_text(
            "prediction_y,probability_False,probability_True,target_y\n"
            f"True,0.1,0.9,True\nTrue,0.4,0.6,False\nFalse,0.7,0.3,{last}\n"
        )
        assert confidences_of(pd.read_csv(path))[1].tolist() == right


@pytest.mark.parametrize("beside", [{"prediction_hot": [1, 0], "prediction_cold": [0, 0]}, None])
def test_labels_have_the_probability_of_yes(beside):
    """Earlier versions wrote only probabilities, as predictions."""
    kind = "prediction" if beside is None else "probability"
    frame = pd.DataFrame({
        f"{kind}_hot": [0.9, 0.4], "target_hot": [1.0, 0.0], f"{kind}_cold": [0.2, 0.3], "target_cold": [np.nan, 1.0],
        **(beside or {}),
    })  # fmt: skip
    confidence, correct = confidences_of(frame)
    assert confidence.tolist() == [0.9, 0.4, 0.3]
    assert correct.tolist() == [True, False, True]


@pytest.mark.parametrize(
    "columns", [{"prediction": [2.0], "target": [1.0]}, {"prediction": [0.5], "target": [0.2]}, {"id": [1]},
                {"head": [0], "tail": [1], "prediction": [0.5], "target": [1]}]
)  # fmt: skip
def test_other_numbers_are_no_probabilities(columns):
    assert confidences_of(pd.DataFrame(columns)) is None


def probabilities(rows, classes, seed=0):
    return torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed)).mul(2).softmax(1)


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_the_error_is_that_of_torchmetrics(bins):
    given = probabilities(700, 4)
    truth = torch.randint(4, (700,), generator=torch.Generator().manual_seed(1))
    frame = pd.DataFrame(given.numpy(), columns=[f"prediction_{n}" for n in range(4)]).assign(target=truth.numpy())
    found = Reliability.of(*confidences_of(frame), bins)
    expected = multiclass_calibration_error(given, truth, num_classes=4, n_bins=bins)
    assert found.error == pytest.approx(float(expected), abs=1e-6)
    yes, came = given[:, 0], (truth == 0).long()
    labels = Reliability.of(yes.numpy(), came.numpy() == 1, bins)
    assert labels.error == pytest.approx(float(binary_calibration_error(yes, came, n_bins=bins)), abs=1e-6)


def test_probabilities_that_are_shares_have_hardly_an_error_and_certainties_that_fail_have_all():
    generator = np.random.default_rng(0)
    confidence = generator.uniform(size=200_000)
    assert Reliability.of(confidence, generator.uniform(size=200_000) < confidence).error < 0.005
    sure = Reliability.of(np.ones(10), np.zeros(10, dtype=bool))
    assert (sure.error, sure.count.tolist()) == (1.0, [10])


def test_a_tested_classification_has_a_diagram_and_a_regression_none(make_run, add_predictions):
    folder = make_run("a", seed=2, results={"metric": "accuracy"})
    pd.DataFrame({"prediction_0": [0.8, 0.8, 0.3], "prediction_1": [0.2, 0.2, 0.7], "target": [0, 1, 1]}).to_csv(
        folder.path / "predictions-test.csv", index=False
    )
    (panel,) = reliability_section(result_tables([folder])[0], "c").panels
    error = (2 * abs(0.5 - 0.8) + abs(1 - 0.7)) / 3
    assert panel.caption == f"Seed 2, 3 predictions, ECE {error:.4f} in 15 bins."
    folder.update_results({"temperature": 1.5})
    (panel,) = reliability_section(result_tables([folder])[0], "c").panels
    assert panel.caption.endswith("in 15 bins. Calibrated on the validation split: temperature 1.5.")
    other = make_run("b")
    add_predictions(other, 0.1)
    assert reliability_section(result_tables([other])[0], "c") is None


SMILES = ["C" * size for size in range(1, 10)]


def section_of(folder):
    return worst_section(result_tables([folder])[0], "w")


def test_the_largest_errors_come_first_and_are_drawn(make_run):
    folder = make_run("a", seed=1)
    errors = [0.1, -5.0, 0.3, 2.0, 0.0, 0.4, -0.2, 3.0, 1.0]
    frame = pd.DataFrame({"id": range(10, 19), "smiles": SMILES, "prediction": errors, "target": 0.0})
    frame.to_csv(folder.path / "predictions-test.csv", index=False)
    panels = section_of(folder).panels
    assert [int(re.match(r"Row (\d+)", panel.caption)[1]) for panel in panels] == [11, 17, 13, 18, 15, 12]
    assert panels[0].caption == "Row 11 (GPS, predicted -5, true 0, seed 1): CC"
    assert 'aria-label="CC"' in panels[0].figure
    assert set(re.findall(r"(?:stroke|fill)[:=]\W?([\w#(),-]+)", panels[0].figure)) == {"none", "currentColor"}


def test_targets_are_compared_in_units_of_their_own_errors(make_run):
    folder = make_run("a")
    frame = pd.DataFrame({
        "smiles": SMILES[:3], "prediction_a": [1000.0, 1000.0, 1000.0], "target_a": 0.0,
        "prediction_b": [0.0, 0.003, 0.0], "target_b": 0.0,
    })  # fmt: skip
    frame.to_csv(folder.path / "predictions-test.csv", index=False)
    assert "b predicted 0.003, true 0" in section_of(folder).panels[0].caption


def test_classes_are_ordered_by_the_probability_of_the_true_one(make_run):
    folder = make_run("a", results={"metric": "accuracy"})
    frame = pd.DataFrame({"smiles": SMILES[:3], "prediction_0": [0.9, 0.4, 0.2], "prediction_1": [0.1, 0.6, 0.8],
                          "target": [0, 0, 0]})  # fmt: skip
    frame.to_csv(folder.path / "predictions-test.csv", index=False)
    captions = [panel.caption for panel in section_of(folder).panels]
    assert [caption.rpartition(": ")[2] for caption in captions] == ["CCC", "CC", "C"]
    assert "true class 0, its probability 0.2" in captions[0]


def test_of_nodes_the_worst_are_named(make_run):
    folder = make_run("a", results={"metric": "accuracy"})
    frame = pd.DataFrame({"id": [7, 7, 8], "node": [0, 1, 0], "prediction_0": [0.9, 0.4, 0.2],
                          "prediction_1": [0.1, 0.6, 0.8], "target": [0, 0, 0]})  # fmt: skip
    frame.to_csv(folder.path / "predictions-test.csv", index=False)
    section = section_of(folder)
    assert section.panels == []
    assert [line[0] for line in section.lines] == ["row", "id 8, node 0", "id 7, node 1", "id 7, node 0"]
    assert section.lines[1][1:] == ["GPS, seed 0", "true class 0, its probability 0.2"]


def test_unreadable_smiles_are_text(make_run):
    folder = make_run("a")
    pd.DataFrame({"smiles": ["<C>", "CC"], "prediction": [9.0, 1.0], "target": 0.0}).to_csv(
        folder.path / "predictions-test.csv", index=False
    )
    panels = section_of(folder).panels
    assert panels[0].figure == "<code>&lt;C&gt;</code>"
    assert len(panels) <= SHOWN


def test_a_confusion_matrix_is_that_of_scikit_learn():
    generator = np.random.default_rng(0)
    truth, predicted = generator.integers(0, 4, 50), generator.integers(0, 4, 50)
    assert (confusion(truth, predicted, 5)[:4, :4] == confusion_matrix(truth, predicted, labels=range(4))).all()


@pytest.mark.parametrize("columns", [
    {"prediction_a": [0.9, 0.2, 0.4], "prediction_b": [0.1, 0.8, 0.6], "target": [0, 1, 0]},
    {"prediction": [0.1, 0.8, 0.6], "target": [0, 1, 0]},
    {"probability_a": [0.9, 0.2, 0.4], "probability_b": [0.1, 0.8, 0.6], "prediction_y": ["a", "b", "b"],
     "target_y": ["a", "b", "a"]},
    {"probability_y": [0.1, 0.8, 0.6], "prediction_y": [0, 1, 1], "target_y": [0, 1, 0]},
])  # fmt: skip
def test_classes_and_labels_have_a_confusion_matrix(make_run, columns):
    results = {"metric": "accuracy", "higher_is_better": True}
    folder = make_run("classes", results={**results, "val": {"val/accuracy": 0.7}, "test": {"test/accuracy": 2 / 3}})
    pd.DataFrame(columns).to_csv(folder.path / "predictions-test.csv", index=False)
    (table,) = result_tables([folder])
    section = confusion_section(table, "c")
    (panel,) = section.panels
    assert panel.caption == "Seed 0: 2 of 3 rows are correct."


def test_a_page_of_many_classes_draws_only_cells_with_rows(make_run):
    results = {"metric": "accuracy", "higher_is_better": True}
    folder = make_run("many", results={**results, "val": {"val/accuracy": 0.7}, "test": {"test/accuracy": 2 / 3}})
    names, truth = [f"class {number}" for number in range(120)], [0, 0, 0, 5, 5, 119]
    shares = np.eye(120)[[0, 0, 3, 5, 5, 7]]
    frame = pd.DataFrame(shares, columns=[f"probability_{name}" for name in names])
    frame = frame.assign(prediction_y=[names[row] for row in shares.argmax(1)], target_y=[names[row] for row in truth])
    frame.to_csv(folder.path / "predictions-test.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.PerformanceWarning)
        (panel,) = confusion_section(result_tables([folder])[0], "c").panels
    assert panel.caption == "Seed 0: 4 of 6 rows are correct."
    opacities = re.findall(r"fill: var\(--series-0\); opacity: ([\d.]+)", panel.figure)
    assert sorted(map(float, opacities)) == pytest.approx([0.85 / 3, 0.85 * 2 / 3, 0.85, 0.85], abs=1e-5)
    assert len(panel.figure) < 40_000


def test_regressions_and_many_labels(make_run, add_predictions):
    folder = make_run("values")
    add_predictions(folder, 0.25)
    assert confusion_section(result_tables([folder])[0], "c") is None
    many = make_run("labels", results={"metric": "AP", "higher_is_better": True, "test": {"test/AP": 0.5}})
    columns = {f"{kind}_{number}": [0.0, 1.0] for number in range(9) for kind in ("prediction", "target")}
    pd.DataFrame(columns).to_csv(many.path / "predictions-test.csv", index=False)
    section = confusion_section(result_tables([many])[0], "c")
    assert len(section.panels) == 6
    assert section.notes
