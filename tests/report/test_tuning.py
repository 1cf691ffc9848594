"""The page of a tuning study."""

import pytest

from graphbench.report import write_tuning
from graphbench.report.tuning import Attempt, Tuning, best_so_far, tuning_section

ATTEMPTS = [
    Attempt(0, "finished", 0.7, {"model.lr": "0.1"}),
    Attempt(1, "failed", None, {"model.lr": "9.0"}, "it broke"),
    Attempt(2, "pruned", 0.9, {"model.lr": "0.5"}),
    Attempt(3, "finished", 0.6, {"model.lr": "0.01"}),
    Attempt(4, "finished", 0.8, {"model.lr": "0.02"}),
]


@pytest.mark.parametrize(("higher", "scores", "best"), [(False, [0.7, 0.6, 0.6], 3), (True, [0.7, 0.7, 0.8], 4)])
def test_only_finished_trials_count_for_the_best(higher, scores, best):
    tuning = Tuning("val/MAE", higher, ATTEMPTS, best, {})
    assert best_so_far(tuning) == list(zip((0, 3, 4), scores, strict=True))
    section = tuning_section(tuning)
    assert len(section.panels) == 1
    small = Tuning("val/MAE", higher, [Attempt(2, "finished", 2e-5, {"model.lr": "1"})], 2, {})
    assert any("val/MAE 2.000e-05: model.lr" in note for note in tuning_section(small).notes)
    assert any("Importances are unknown" in note for note in section.notes)
    assert (
        f"Best trial: {best} of 5, val/MAE {scores[-1]:.4f}: model.lr {ATTEMPTS[best].options['model.lr']}."
        in section.notes
    )
    assert "3 finished, 1 failed, 1 pruned." in section.notes
    assert "1 failed: it broke" in section.notes


def test_the_page_shows_the_study_before_the_run_of_the_best_trial(make_run, tmp_path):
    tuning = Tuning("val/MAE", False, ATTEMPTS, 3, {"model.lr": 0.8, "model.hidden_dim": 0.2})
    write_tuning(tuning, make_run("3", scores=(0.6, None)), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.index("<h2>Tuning") < page.index("<h2>Learning curves")
    assert "Importance: model.lr 0.80, model.hidden_dim 0.20" in page
    assert "not looked at" in page, "the test column of the best trial"
