"""The logger finds the rows of its file again, also those with scores that are not finite."""

import math

import pytest

from graphbench.callbacks.csv_logger import RunCSVLogger


@pytest.mark.parametrize("score", [0.1, 3.0, math.nan, math.inf])
def test_a_row_is_found_again_whatever_its_score(tmp_path, score):
    logger = RunCSVLogger(tmp_path)
    logger.log_metrics({"val/MAE": 0.3, "epoch": 1.0}, step=4)
    logger.log_metrics({"val/MAE": score, "epoch": 2.0}, step=9)
    logger.save()
    assert logger.has({"val/MAE": score, "epoch": 2.0, "step": 9})
    assert not logger.has({"val/MAE": score, "epoch": 2.0, "step": 8})
    assert not logger.has({"val/MAE": 0.2, "epoch": 2.0, "step": 9})
    assert not logger.has({"val/AP": score, "step": 9})
