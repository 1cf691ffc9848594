"""Regression losses that also learn how far the truth is from a prediction: a variance, or quantiles.

Both need several outputs per target; the first is the prediction, the mean or the median.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from graphbench.errors import BadInput
from graphbench.training.tasks.losses import meet_bounds

#: Smallest variance, in scaled units, as in Lakshminarayanan et al.
_LEAST = 1e-6
#: Default quantiles: the median and an interval of 90 %.
LEVELS = (0.05, 0.5, 0.95)


class Spread(ABC):
    """Outputs of a head in addition to its prediction of a target, scaled as in `Regression`."""

    #: Number of outputs of the head for each target.
    outputs: int
    #: Names of the values that are returned with a prediction.
    names: tuple[str, ...]

    @abstractmethod
    def errors(self, output: Tensor, target: Tensor, bounds: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Compute the loss of each row and target `[rows, T]` from outputs `[rows, T * outputs]`, predictions first.

        Targets are never NaN; lower and upper bounds `[rows, T]` of unknown targets are NaN where there is none.
        """

    @abstractmethod
    def values(self, output: Tensor, offset: Tensor, scale: Tensor) -> Tensor:
        """Return the values of `names`, in real units `[rows, T * len(names)]`, target after target."""

    def pooled(self, values: np.ndarray, targets: int) -> np.ndarray:
        """Pool `[models, rows, T + T * len(names)]`, predictions followed by `values`, into those of one model."""
        return np.asarray(values.mean(0, dtype=np.float64))


@dataclass(frozen=True)
class GaussianSpread(Spread):
    """A mean and a variance, with the negative log-likelihood of a normal distribution.

    The loss of a target y is `(log v + (y - m)^2 / v) / 2` with v = softplus(r) + 1e-6 (Nix and Weigend, 1994;
    Lakshminarayanan, Pritzel & Blundell, "Simple and scalable predictive uncertainty estimation using deep ensembles",
    NeurIPS 2017, equation 1). For a target above a bound c it is `-log P(y > c) = -log Phi((m - c) / sqrt(v))`, and
    the mirror image below a bound (Tobin, Econometrica 1958). Several models are pooled as a mixture with equal
    weights, with its mean and variance.

    Examples:
        >>> output = torch.tensor([[1.0, 0.5413]])  # a mean, and softplus(0.5413) = 1
        >>> GaussianSpread().errors(output, torch.tensor([[3.0]]))
        tensor([[2.0000]])
    """

    outputs = 2
    names = ("std",)

    def errors(self, output: Tensor, target: Tensor, bounds: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Compute the loss, see the class."""
        mean, raw = output.chunk(2, dim=1)
        variance = F.softplus(raw) + _LEAST
        errors = (variance.log() + (target - mean).square() / variance) / 2
        for bound, sign in zip(bounds or (), (1, -1), strict=False):
            # `log_ndtr`, not the log of Phi, which is minus infinity below about -39 deviations.
            distance = sign * (mean - bound.nan_to_num()) / variance.sqrt()
            errors = torch.where(bound.isnan(), errors, -torch.special.log_ndtr(distance))
        return errors

    def values(self, output: Tensor, offset: Tensor, scale: Tensor) -> Tensor:
        """Return standard deviations `[rows, T]`."""
        return (F.softplus(output.chunk(2, dim=1)[1]) + _LEAST).sqrt() * scale

    def pooled(self, values: np.ndarray, targets: int) -> np.ndarray:
        """Return the mixture's mean `sum_k m_k / K` and deviation `sqrt(sum_k (v_k + m_k^2) / K - mean^2)`.

        Examples:
            >>> GaussianSpread().pooled(np.array([[[1.0, 2.0]], [[3.0, 2.0]]]), 1)  # sqrt(4 + 1)
            array([[2.        , 2.23606798]])
        """
        means, deviations = np.split(values.astype(np.float64), [targets], axis=2)
        variance = (deviations**2).mean(0) + means.var(0)
        return np.concatenate([means.mean(0), np.sqrt(variance)], axis=1)


@dataclass(frozen=True)
class QuantileSpread(Spread):
    """Quantiles, with the pinball loss averaged over their levels; the median is the prediction.

    The loss of a target y and level t is `max(t (y - q), (t - 1) (y - q))` (Koenker and Bassett, 1978), and 0 for a
    quantile on the valid side of a bound. Quantiles never cross: each is its neighbour on the side of the median plus
    (or minus) the softplus of an output.

    Examples:
        >>> spread = QuantileSpread((0.25, 0.5, 0.75))
        >>> spread.names, QuantileSpread((0.5, 0.9999998, 0.9999999)).names
        (('q0.25', 'q0.75'), ('q0.9999998', 'q0.9999999'))
        >>> spread.errors(torch.tensor([[0.0, 0.5413, 0.5413]]), torch.tensor([[2.0]])) * 3  # 3 / 4 + 1 + 3 / 4
        tensor([[2.5000]])
    """

    levels: tuple[float, ...] = LEVELS  # ascending, 0.5 among them

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """One output for each level."""
        return len(self.levels)

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of all levels except the median."""
        return tuple(f"q{level:.15g}" for level in self.levels if level != 0.5)

    @property
    def _below(self) -> int:
        return self.levels.index(0.5)

    def quantiles(self, output: Tensor) -> Tensor:
        """Return the quantiles of all levels `[rows, T, levels]`, scaled."""
        targets = output.shape[1] // len(self.levels)
        median = output[:, :targets, None]
        steps = F.softplus(output[:, targets:].unflatten(1, (targets, len(self.levels) - 1)))
        below, above = steps[..., : self._below], steps[..., self._below :]
        return torch.cat([median - below.cumsum(2).flip(2), median, median + above.cumsum(2)], dim=2)

    def errors(self, output: Tensor, target: Tensor, bounds: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Compute the loss, see the class."""
        quantiles, truth = self.quantiles(output), target[..., None]
        if bounds is not None:
            truth = meet_bounds(truth, quantiles, *(bound[..., None] for bound in bounds))
        difference = truth - quantiles
        levels = torch.tensor(self.levels, dtype=difference.dtype, device=difference.device)
        return torch.maximum(levels * difference, (levels - 1) * difference).mean(2)

    def values(self, output: Tensor, offset: Tensor, scale: Tensor) -> Tensor:
        """Return all quantiles except the median `[rows, T * (levels - 1)]`."""
        every = self.quantiles(output) * scale[:, None] + offset[:, None]
        return torch.cat([every[..., : self._below], every[..., self._below + 1 :]], dim=2).flatten(1)


def quantile_levels(levels: Sequence[float]) -> tuple[float, ...]:
    """Check levels and return them in ascending order.

    Examples:
        >>> quantile_levels([0.9, 0.5, 0.1])
        (0.1, 0.5, 0.9)
    """
    quantiles = tuple(sorted(float(level) for level in levels))
    distinct = len(set(quantiles)) == len(quantiles) >= 2
    # Each level, not the ends: NaN has no place in an order.
    if not (distinct and all(0 < level < 1 for level in quantiles) and 0.5 in quantiles):
        raise BadInput(
            f"quantiles must be different levels above 0 and below 1, including 0.5 (the prediction), as in "
            f"[0.05, 0.5, 0.95], but got {list(levels)}."
        )
    return quantiles
