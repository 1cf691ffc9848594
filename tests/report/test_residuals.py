"""Residuals of test predictions, and the coverage of their intervals."""

import json

import pandas as pd
from scipy.stats import beta

from graphbench.report import result_tables
from graphbench.report.residuals import residual_section


def with_intervals(folder, width, inside, stated=None):
    """Twenty predictions of which `inside` lie within `width` of the truth."""
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
        f"GPS, seed 3, y: 17 of 20 known test targets lie in their intervals, 85.0% (95 % confidence: {low:.1%} to "
        f"{high:.1%}); they state 0.9."
    ]
    assert section.panels[0].caption == "Seed 3, 20 rows: mean 0.15, standard deviation 0.3663."


def test_intervals_of_another_command_state_nothing(make_run):
    for name, stated in (("a", 0.7), ("b", None)):
        folder = make_run(name)
        with_intervals(folder, 0.5, 17, stated)
        assert section_of(folder).notes[0].endswith("the run does not say which coverage they state.")
    folder.results.write_text(json.dumps(json.loads(folder.results.read_text()) | {"intervals": 3}))
    assert section_of(folder).notes[0].endswith("the run does not say which coverage they state.")


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
