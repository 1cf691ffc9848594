"""metrics.csv as curves, against numbers placed by hand."""

import numpy as np
import pytest

from graphbench.report.metrics import curves_of, logged_in
from graphbench.runs.tables import load_table

TEXT = """step,epoch,val/MAE,train/loss_step,lr/rest
0,,,,0.1
4,0,,2.0,
9,0,0.9,1.5,
10,,,,0.05
14,1,,1.0,
19,1,nan,0.5,
24,2,,0.4,
29,2,inf,0.3,
"""


@pytest.fixture
def curves(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(TEXT)
    return curves_of(logged_in(load_table(path)))


def test_epoch_scores_lie_on_finished_epochs(curves):
    assert list(curves["val/MAE"].index) == [1, 2, 3]
    assert curves["val/MAE"][1] == 0.9


def test_not_finite_is_kept_apart_from_not_logged(curves):
    values = curves["val/MAE"].to_numpy()
    assert len(values) == 3
    assert np.isnan(values[1])
    assert np.isinf(values[2])


def test_what_is_logged_within_an_epoch_lies_between_epochs(curves):
    assert list(curves["train/loss_step"].index) == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert list(curves["train/loss_step"]) == [2.0, 1.5, 1.0, 0.5, 0.4, 0.3]


def test_what_has_no_epoch_is_placed_by_its_step(curves):
    assert list(curves["lr/rest"].index) == [0.1, 1.1]


def test_an_epoch_cut_short_does_not_stretch_the_axis(tmp_path):
    (tmp_path / "m.csv").write_text("step,epoch,x\n9,0,1\n19,1,2\n22,2,3\n")
    (tmp_path / "n.csv").write_text("step,epoch,x\n4,0,1\n9,0,1\n22,2,3\n")
    assert list(curves_of(logged_in(load_table(tmp_path / "m.csv")))["x"].index) == [1, 2, 3]
    assert list(curves_of(logged_in(load_table(tmp_path / "n.csv")))["x"].index) == [0.5, 1.0, 2.3]


def test_without_a_finished_epoch_there_are_no_curves(tmp_path):
    (tmp_path / "m.csv").write_text("step,epoch,lr/rest\n0,,0.1\n")
    assert curves_of(logged_in(load_table(tmp_path / "m.csv"))) == {}


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n"])
def test_a_file_that_is_no_log_is_an_error_value(tmp_path, text):
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(ValueError, match=r"column|No columns"):
        logged_in(load_table(tmp_path / "m.csv"))
