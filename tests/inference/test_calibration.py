"""Temperatures against a minimiser of torch's losses, and probabilities against the tasks'."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch.nn import functional as F
from torchmetrics.classification import BinaryCalibrationError, MulticlassCalibrationError

from graphbench.contracts import GraphBatch
from graphbench.errors import BadInput
from graphbench.inference.calibration import Temperature, log_probabilities, pooled, predicted_values
from graphbench.nn.heads import HeadConfig
from graphbench.testing import tiny_spec
from graphbench.training.tasks import build_task


def of_classes(count):
    return replace(tiny_spec("graph-classification"), num_classes=count, target_names=())


def sampled(width, factor, rows=1500, seed=0):
    """Draw classes `[rows]` from logits; return `factor` times the logits `[rows, width]`, and the classes."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.randn(rows, width, generator=generator, dtype=torch.float64) * 1.5
    logits = torch.cat((torch.zeros(rows, 1), true), 1) if width == 1 else true
    classes = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return factor * true, classes


def most_likely(loss):
    """Return the T of the smallest loss, found by a derivative-free minimiser."""
    found = minimize_scalar(lambda power: float(loss(np.exp(power))), bounds=(-4, 4), method="bounded",
                            options={"xatol": 1e-9})  # fmt: skip
    return float(np.exp(found.x))


@pytest.mark.parametrize("factor", [0.4, 1.0, 3.0])
def test_the_temperature_of_classes_minimises_the_cross_entropy(factor):
    logits, classes = sampled(5, factor)
    spec = of_classes(5)
    found = Temperature.fit(log_probabilities(logits.numpy(), spec), classes[:, None].numpy())
    assert found.value == pytest.approx(most_likely(lambda t: F.cross_entropy(logits / t, classes)), rel=1e-5)
    assert found.value == pytest.approx(factor, rel=0.15)  # the classes follow logits / factor
    before, after = F.cross_entropy(logits, classes), F.cross_entropy(logits / found.value, classes)
    assert found.loss == pytest.approx((float(before), float(after)), rel=1e-9)
    metric = MulticlassCalibrationError(5)
    assert found.error == pytest.approx(
        (float(metric(logits.softmax(1), classes)), float(metric((logits / found.value).softmax(1), classes))), abs=1e-6
    )


def test_a_temperature_is_tried_on_rows_that_it_was_not_fitted_on():
    """Against a loop over the same fifths with SciPy's minimiser."""
    logits, classes = sampled(3, 3.0, rows=200)
    found = Temperature.fit(log_probabilities(logits.numpy(), of_classes(3)), classes[:, None].numpy())
    fold = torch.from_numpy(np.random.default_rng(0).permutation(200) % 5)
    losses = []
    for number in range(5):
        rest, here = fold != number, fold == number
        best = most_likely(lambda t, rest=rest: F.cross_entropy(logits[rest] / t, classes[rest]))
        losses.append(F.cross_entropy(logits[here] / best, classes[here], reduction="sum"))
    expected = float(F.cross_entropy(logits, classes)), float(sum(losses)) / 200
    assert found.held_out == pytest.approx(expected, rel=1e-5)
    assert found.caution == ""


def test_few_rows_are_a_caution_with_their_number():
    worse = 0
    for seed in range(12):
        logits, classes = sampled(1, 1.0, rows=12, seed=seed)
        try:
            found = Temperature.fit(log_probabilities(logits.numpy(), of_classes(2)), classes[:, None].numpy())
        except BadInput:
            continue
        gains = found.held_out is not None and found.held_out[1] < found.held_out[0]
        assert bool(found.caution) != gains
        if found.caution:
            assert "12 rows" in found.caution
            worse += 1
    assert worse >= 3


def test_two_classes_with_one_logit():
    logits, classes = sampled(1, 2.0)
    spec = of_classes(2)
    found = Temperature.fit(log_probabilities(logits.numpy(), spec), classes[:, None].numpy())
    expected = most_likely(lambda t: F.binary_cross_entropy_with_logits(logits[:, 0] / t, classes.double()))
    assert found.value == pytest.approx(expected, rel=1e-5)


def test_labels_share_a_temperature_and_unknown_ones_do_not_count():
    generator = torch.Generator().manual_seed(2)
    true = torch.randn(400, 3, generator=generator, dtype=torch.float64)
    labels = torch.bernoulli(true.sigmoid(), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < 0.4] = torch.nan
    known, logits = ~labels.isnan(), 2.5 * true
    found = Temperature.fit(log_probabilities(logits.numpy(), tiny_spec("graph-multilabel")), labels.numpy())
    expected = most_likely(lambda t: F.binary_cross_entropy_with_logits(logits[known] / t, labels[known]))
    assert found.value == pytest.approx(expected, rel=1e-5)
    assert found.rows == int(known.sum())
    metric, truth = BinaryCalibrationError(), labels[known].long()
    errors = [float(metric((logits[known] / t).sigmoid(), truth)) for t in (1.0, found.value)]
    assert found.error == pytest.approx(errors, abs=1e-6)


@pytest.mark.parametrize("classes", [2, 4, None])
def test_probabilities_are_those_of_the_task(classes):
    spec = tiny_spec("graph-multilabel") if classes is None else of_classes(classes)
    task = build_task(spec, 8, HeadConfig())
    outputs = torch.randn(7, spec.output_dim, generator=torch.Generator().manual_seed(1)) * 4
    expected = task.predict(outputs, GraphBatch(y=torch.zeros(7, spec.num_targets)))[0]
    given = predicted_values(log_probabilities(outputs.numpy(), spec))
    assert torch.allclose(torch.from_numpy(given).float(), expected, atol=1e-6)


def test_the_mean_of_probabilities_survives_logits_that_underflow():
    spec = of_classes(2)
    logs = np.stack([log_probabilities(np.array([[z]], dtype=np.float32), spec) for z in (300.0, 900.0)])
    assert pooled(logs)[0, 0] == pytest.approx(-300 - np.log(2))
    assert pooled(logs)[0, 1] == pytest.approx(0.0, abs=1e-12)
    values = np.stack([np.array([[0.9, 0.1]]), np.array([[0.5, 0.5]])])
    assert np.exp(pooled(np.log(values))) == pytest.approx(np.array([[0.7, 0.3]]))


def test_one_wrong_row_among_certain_ones_has_a_finite_temperature():
    logits = np.array([[200.0], [250.0], [220.0]], dtype=np.float32)
    logs = log_probabilities(logits, of_classes(2))
    found = Temperature.fit(logs, np.array([[1], [1], [0]]))
    assert np.isfinite([found.value, *found.loss]).all()
    assert found.loss[1] < found.loss[0]


def test_what_has_no_most_likely_temperature_is_refused():
    spec = of_classes(2)
    logs = log_probabilities(np.array([[3.0], [-2.0]]), spec)
    with pytest.raises(BadInput, match="every row of the validation split is predicted correctly"):
        Temperature.fit(logs, np.array([[1], [0]]))
    with pytest.raises(BadInput, match="no better than chance"):
        Temperature.fit(logs, np.array([[0], [1]]))
    labels = log_probabilities(np.zeros((4, 2)), tiny_spec("graph-multilabel"))
    with pytest.raises(BadInput, match="validation split"):
        Temperature.fit(labels, np.full((4, 2), np.nan))
