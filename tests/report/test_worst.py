"""The molecules with the largest errors, in order."""

import base64
import re

import pandas as pd

from graphbench.report import result_tables
from graphbench.report.worst import SHOWN, worst_section

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
    data = re.search(r"base64,([^\"]+)", panels[0].figure)[1]
    assert base64.b64decode(data).startswith(b"\x89PNG")


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


def test_unreadable_smiles_are_text_and_files_without_them_have_no_section(make_run, add_predictions):
    folder = make_run("a")
    pd.DataFrame({"smiles": ["<C>", "CC"], "prediction": [9.0, 1.0], "target": 0.0}).to_csv(
        folder.path / "predictions-test.csv", index=False
    )
    panels = section_of(folder).panels
    assert panels[0].figure == "<code>&lt;C&gt;</code>"
    assert len(panels) <= SHOWN
    other = make_run("b")
    add_predictions(other, 0.1)
    assert section_of(other) is None
