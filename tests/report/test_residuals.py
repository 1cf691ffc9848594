"""Predictions against the truth, residuals and coverage of intervals."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta

from graphbench.report import result_tables
from graphbench.report.residuals import prediction_section, residual_section


def texts(panel):
    return [element.text for element in ET.fromstring(panel.figure).iter("text")]


def test_predictions_are_drawn_with_their_error(make_run, add_predictions):
    folder = make_run("a", seed=4, scores=(0.7, 0.25))
    add_predictions(folder, 0.25)
    section = prediction_section(result_tables([folder])[0], "p")
    assert [panel.caption for panel in section.panels] == ["Seed 4, 200 graphs, MAE 0.2500 from these points."]
    assert section.notes == []


def test_predictions_of_another_checkpoint_are_found_out(make_run, add_predictions):
    folder = make_run("a", scores=(0.7, 0.3))
    add_predictions(folder, 0.25)
    (note,) = prediction_section(result_tables([folder])[0], "p").notes
    assert "gives a test MAE of 0.2500, but the run's is 0.3000" in note


def test_predictions_of_a_run_that_was_not_tested_stay_hidden(make_run, add_predictions):
    folder = make_run("a", scores=(0.7, None))
    add_predictions(folder, 0.25)
    section = prediction_section(result_tables([folder])[0], "p")
    assert section.panels == []
    assert "graphbench test" in section.notes[0]


def test_several_targets_have_a_panel_each_and_unknown_ones_do_not_count(make_run):
    folder = make_run("a", scores=(0.7, 0.5))
    frame = pd.DataFrame(
        {
            "prediction_mu": [1.0, 2.0],
            "target_mu": [1.5, 1.5],
            "prediction_gap": [0.5, 9.0],
            "target_gap": [1.0, np.nan],
        }
    )
    frame.to_csv(folder.path / "predictions-test.csv", index=False)
    section = prediction_section(result_tables([folder])[0], "p")
    assert [panel.caption.split(",")[1].strip() for panel in section.panels] == ["2 graphs", "1 graph"]
    assert section.notes == []


def test_many_points_become_an_image(make_run):
    folder = make_run("a", scores=(0.7, 0.0))
    values = np.random.default_rng(0).normal(size=5000)
    pd.DataFrame({"prediction": values, "target": values}).to_csv(folder.path / "predictions-test.csv", index=False)
    (panel,) = prediction_section(result_tables([folder])[0], "p").panels
    assert "data:image/png;base64" in panel.figure
    assert len(panel.figure) < 200_000


@pytest.mark.parametrize("text", ["id,target\n1,2\n", "prediction,target\nx,y\n"])
def test_files_without_pairs_are_named(make_run, text):
    folder = make_run("a")
    (folder.path / "predictions-test.csv").write_text(text)
    section = prediction_section(result_tables([folder])[0], "p")
    assert section.panels == []
    assert "predictions-test.csv" in section.notes[0]


def test_a_file_without_rows_gets_no_section(make_run):
    folder = make_run("a")
    (folder.path / "predictions-test.csv").write_text("prediction,target\n")
    assert prediction_section(result_tables([folder])[0], "p") is None


def test_classes_are_not_drawn(make_run, add_predictions):
    folder = make_run("a", results={"metric": "accuracy"})
    add_predictions(folder, 0.25)
    assert prediction_section(result_tables([folder])[0], "p") is None


def with_intervals(folder, width, inside, stated=None):
    """Write twenty predictions, of which `inside` are within `width` of the truth."""
    errors = [0.0] * inside + [2 * width] * (20 - inside)
    prediction = [float(number) for number in range(20)]
    frame = pd.DataFrame({"prediction": prediction, "target": [p - e for p, e in zip(prediction, errors, strict=True)]})
    frame["y_low"], frame["y_high"] = frame["prediction"] - width, frame["prediction"] + width
    frame.to_csv(folder.path / "predictions-test.csv", index=False)
    if stated is not None:
        folder.update_results({"intervals": {"coverage": 0.9, "half_widths": {"y": stated}, "rows": {"y": 99}}})


def section_of(folder):
    return residual_section(result_tables([folder])[0], "r")


def test_coverage_stands_beside_what_is_stated(make_run):
    folder = make_run("a", seed=3)
    with_intervals(folder, 0.5, 17, stated=0.5)
    section = section_of(folder)
    low, high = beta.ppf(0.025, 17, 4), beta.ppf(0.975, 18, 3)
    assert section.notes == [
        f"GPS, seed 3, y: 17 of 20 known test targets are in their intervals, 85.0% (95 % confidence: {low:.1%} to "
        f"{high:.1%}); they state 0.9."
    ]
    assert section.panels[0].caption == "Seed 3, 20 rows: mean 0.15, standard deviation 0.3663."


def test_intervals_of_another_command_state_nothing(make_run):
    for name, stated in (("a", 0.7), ("b", None)):
        folder = make_run(name)
        with_intervals(folder, 0.5, 17, stated)
        assert section_of(folder).notes[0].endswith("the run does not record their stated coverage.")
    folder.results.write_text(json.dumps(json.loads(folder.results.read_text()) | {"intervals": 3}))
    assert section_of(folder).notes[0].endswith("the run does not record their stated coverage.")


def test_without_intervals_there_are_residuals_alone(make_run, add_predictions):
    folder = make_run("a")
    add_predictions(folder, 0.25)
    section = section_of(folder)
    assert (len(section.panels), section.notes) == (1, [])
    assert section.panels[0].caption.startswith("Seed 0, 200 rows: mean ")
    assert section.panels[0].caption.endswith(", standard deviation 0.2506.")


def test_classes_and_untested_runs_have_none(make_run, add_predictions):
    classes, untested = make_run("a", results={"metric": "accuracy"}), make_run("b", scores=(0.7, None))
    for folder in (classes, untested):
        add_predictions(folder, 0.25)
        assert section_of(folder) is None
