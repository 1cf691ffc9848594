"""Expected calibration error against torchmetrics, confidence intervals against scipy's exact test."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import binomtest
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from graphbench.report import result_tables
from graphbench.report.predictions import choices_of
from graphbench.report.reliability import Reliability, reliability_section


def probabilities(rows, classes, seed=0):
    return torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed)).mul(2).softmax(1)


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_the_error_is_that_of_torchmetrics(bins):
    given = probabilities(700, 4)
    truth = torch.randint(4, (700,), generator=torch.Generator().manual_seed(1))
    frame = pd.DataFrame(given.numpy(), columns=[f"prediction_{n}" for n in range(4)]).assign(target=truth.numpy())
    found = Reliability.of(*choices_of(frame)[:2], bins)
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


def test_bounds_are_exact():
    found = Reliability.of(
        np.repeat([0.05, 0.45, 0.95], [4, 9, 3]), np.array([False] * 4 + [True] * 5 + [False] * 4 + [True] * 3)
    )
    low, high = found.bounds
    for place, (hits, count) in enumerate(((0, 4), (5, 9), (3, 3))):
        ends = binomtest(hits, count).proportion_ci(0.95, "exact")
        assert (low[place], high[place]) == pytest.approx((ends.low, ends.high))


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
