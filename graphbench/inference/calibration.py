"""Calibrate probabilities with one temperature for all logits, fitted on the validation split.

A model with logits z predicts `softmax(z / T)`. T minimises the negative log-likelihood of the validation rows (Guo,
Pleiss, Sun & Weinberger, "On calibration of modern neural networks", ICML 2017, section 4.2); the order of the classes
is unchanged. With the log-probabilities `l = log softmax(z)` instead of z the result is the same, since they differ by
a constant, so the mean of several models' probabilities can also get a temperature. A yes-or-no label has the classes
no and yes; all labels share T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import log_softmax, logsumexp

from graphbench.contracts import BenchmarkSpec
from graphbench.errors import BadInput
from graphbench.training.tasks.metrics import calibration_error

#: Bounds of 1 / T. Beyond them probabilities are equal, or all except one are zero.
_SHARPEST, _FLATTEST = 1e3, 1e-3
#: Number of parts of the rows; each tests the temperature of the others.
_FOLDS = 5


def log_probabilities(outputs: np.ndarray, spec: BenchmarkSpec) -> np.ndarray:
    """Return log-probabilities of logits in float64: `[rows, C]` for classes, `[rows, T, 2]` (no and yes) for labels.

    Logits are `[rows, C]`, for two classes `[rows, 1]`, for labels `[rows, T]`.
    """
    logits = outputs.astype(np.float64)
    if spec.num_classes is None or spec.num_classes == 2:
        # sigmoid(z) is the second of softmax(-z/2, z/2): one logit is treated as two.
        logits = np.stack((-logits / 2, logits / 2), -1)
        logits = logits[:, 0] if spec.num_classes == 2 else logits
    return np.asarray(log_softmax(logits, -1))


def pooled(members: np.ndarray) -> np.ndarray:
    """Return the logarithm of the mean of several models' probabilities from their logarithms `[members, ...]`."""
    return np.asarray(logsumexp(members, 0)) - math.log(len(members))


def predicted_values(log_probability: np.ndarray) -> np.ndarray:
    """Return probabilities as tasks predict them: `[rows, C]` for classes; for labels, that of yes `[rows, T]`."""
    values = np.exp(log_probability)
    return values if values.ndim == 2 else values[..., 1]


def known_choices(log_probability: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the (log-)probabilities `[n, choices]` of the rows or labels whose truth is known, and the truth `[n]`.

    Probabilities are `[rows, C]` with classes `[rows, 1]`, negative if unknown, or `[rows, T, 2]` with labels
    `[rows, T]`, NaN if unknown.
    """
    truth = targets[:, 0] if log_probability.ndim == 2 else targets
    mask = truth.astype(np.float64) >= 0  # NaN is not
    return log_probability[mask], truth[mask].astype(np.int64)


@dataclass(frozen=True)
class Temperature:
    """A temperature, and its effect on the rows it was fitted on.

    Args:
        value: T.
        rows: validation rows, or known labels, that it is based on.
        loss: their negative log-likelihood before and after.
        error: their expected calibration error before and after.
        held_out: negative log-likelihood before and after on rows that the temperature was not fitted on: each fifth of
            the rows with the temperature of the others. None if some of them define no temperature.
    """

    value: float
    rows: int
    loss: tuple[float, float]
    error: tuple[float, float]
    held_out: tuple[float, float] | None = None

    @property
    def caution(self) -> str:
        """Return why not to trust the temperature; "" if it improves rows that it was not fitted on."""
        if self.held_out is None:
            return f"{self.rows} rows are too few to test it on rows that it was not fitted on"
        before, after = self.held_out
        if after < before:
            return ""
        return (
            f"fitted on four fifths of the {self.rows} rows, it makes the negative log-likelihood of the others no "
            f"better ({before:.4g}, then {after:.4g})"
        )

    @classmethod
    def fit(cls, log_probability: np.ndarray, targets: np.ndarray) -> Temperature:
        """Fit the most likely temperature of validation rows; see `known_choices` for the arguments.

        Raises:
            BadInput: no target is known, every row is predicted correctly, or predictions are no better than chance, so
                there is no most likely temperature.
        """
        values, truth = known_choices(log_probability, targets)
        if not len(truth):
            raise BadInput("--calibrate: no row of the validation split has a prediction and a known target.")
        inverse = _most_likely(values, truth)
        labels = log_probability.ndim == 3
        pairs = [(_loss(one, truth), _error(one, truth, labels)) for one in (values, _sharpened(values, inverse))]
        loss, error = (pairs[0][0], pairs[1][0]), (pairs[0][1], pairs[1][1])
        return cls(1 / inverse, len(truth), loss, error, _held_out(values, truth))

    def applied(self, log_probability: np.ndarray) -> np.ndarray:
        """Return log-probabilities at this temperature."""
        return _sharpened(log_probability, 1 / self.value)


def _held_out(log_probability: np.ndarray, truth: np.ndarray) -> tuple[float, float] | None:
    """Compute `Temperature.held_out`."""
    # Shuffled: a file may be sorted by class, and a part with a missing class may define no temperature.
    fold = np.random.default_rng(0).permutation(len(truth)) % _FOLDS
    sums = np.zeros(2)
    for number in range(_FOLDS):
        held_out = fold == number
        if not held_out.any() or held_out.all():
            return None
        try:
            inverse = _most_likely(log_probability[~held_out], truth[~held_out])
        except BadInput:
            return None
        parts = (log_probability[held_out], _sharpened(log_probability[held_out], inverse))
        sums += [_loss(part, truth[held_out]) * held_out.sum() for part in parts]
    before, after = sums / len(truth)
    return float(before), float(after)


def _sharpened(log_probability: np.ndarray, inverse: float) -> np.ndarray:
    return np.asarray(log_softmax(log_probability * inverse, -1))


def _loss(log_probability: np.ndarray, truth: np.ndarray) -> float:
    """Return the mean negative log-likelihood."""
    return float(-np.take_along_axis(log_probability, truth[:, None], 1).mean())


def _most_likely(log_probability: np.ndarray, truth: np.ndarray) -> float:
    """Find the 1 / T at which the slope of the loss is 0.

    The loss is convex in b = 1 / T with the slope `mean(sum_k p_k(b) l_k - l_true)`, which never decreases.
    """
    finite = np.maximum(log_probability, np.finfo(np.float64).min / 1e6)  # 0 times -inf is NaN
    of_truth = np.take_along_axis(finite, truth[:, None], 1)[:, 0]

    def slope(inverse: float) -> float:
        weights = np.exp(log_softmax(finite * inverse, -1))
        return float(((weights * finite).sum(-1) - of_truth).mean())

    # The slope never decreases: with the same sign at both ends there is no root in between.
    if slope(_FLATTEST) >= 0:
        raise BadInput(
            "--calibrate: the predictions for the validation split are no better than chance, which no temperature can "
            "mend."
        )
    if slope(_SHARPEST) <= 1e-12:  # rounding
        raise BadInput(
            "--calibrate: every row of the validation split is predicted correctly, so no temperature is too small. "
            "Calibrate on a larger validation split."
        )
    # In the logarithm, since temperatures differ by factors.
    return float(np.exp(brentq(lambda power: slope(math.exp(power)), math.log(_FLATTEST), math.log(_SHARPEST))))


def _error(log_probability: np.ndarray, truth: np.ndarray, labels: bool) -> float:
    """Compute the expected calibration error: of the predicted class, or of yes for labels."""
    probabilities, target = torch.from_numpy(np.exp(log_probability)), torch.from_numpy(truth)
    if labels:
        return float(calibration_error(probabilities[:, 1], target == 1))
    confidence, chosen = probabilities.max(1)
    return float(calibration_error(confidence, chosen == target))
