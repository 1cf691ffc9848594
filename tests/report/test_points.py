"""Scores by seed and predictions against the truth."""

from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest

from graphbench.report import result_tables
from graphbench.report.points import prediction_section, score_panels


def texts(panel):
    return [element.text for element in ET.fromstring(panel.figure).iter("text")]


def test_one_model_without_baselines_has_nothing_to_compare(make_run):
    assert score_panels(result_tables([make_run("a", scores=(0.7, None))])[0], "s") == []


def test_splits_have_a_panel_with_every_row(make_run):
    panels = score_panels(result_tables([make_run("a"), make_run("b", architecture="GCN")])[0], "s")
    assert len(panels) == 2
    for panel in panels:
        assert {"GPS", "GCN", "training mean"} <= set(texts(panel))


def test_a_baseline_far_away_is_an_arrow_with_its_score(make_run):
    panels = score_panels(
        result_tables([make_run("a"), make_run("b", architecture="GCN", scores=(0.72, 0.91))])[0], "s"
    )
    assert [[text for text in texts(panel) if "→" in text] for panel in panels] == [["1.9 →"], ["1.92 →"]]


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


@pytest.mark.parametrize("text", ["id,target\n1,2\n", "prediction,target\nx,y\n", "prediction,target\n"])
def test_files_without_pairs_are_no_crash(make_run, text):
    folder = make_run("a")
    (folder.path / "predictions-test.csv").write_text(text)
    section = prediction_section(result_tables([folder])[0], "p")
    assert section is None or (section.panels == [] and "no pairs" in section.notes[0])


def test_classes_are_not_drawn(make_run, add_predictions):
    folder = make_run("a", results={"metric": "accuracy"})
    add_predictions(folder, 0.25)
    assert prediction_section(result_tables([folder])[0], "p") is None
