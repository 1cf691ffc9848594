"""Prediction intervals with a stated coverage: split-conformal regression.

For the n rows of the validation split the scores are `s_i = |y_i - f(x_i)|`, and q is the k-th smallest of them with
`k = ceil((n + 1) c)`. If a new row and the validation rows are exchangeable and the model saw none of them, the truth
is in `[f(x) - q, f(x) + q]` with a probability of at least c, and of at most `c + 1 / (n + 1)` if no two scores are
equal, whatever the model and the distribution (Vovk, Gammerman & Shafer, "Algorithmic learning in a random world",
2005; Lei et al., "Distribution-free predictive inference for regression", JASA 2018, theorem 2.2).

Several models disagree by a spread u, and intervals may depend on it: the scores are then `s_i = |y_i - f(x_i)| /
(u(x_i) + b)` and the interval is `[f(x) - q (u(x) + b), f(x) + q (u(x) + b)]` (Papadopoulos, Gammerman & Vovk,
"Normalized nonconformity measures for regression conformal prediction", 2008). The floor b is a tenth of the standard
deviation of the training targets: without one, an accidental agreement would give an interval of width 0. The guarantee
is the same for any u and b that do not depend on the validation targets.

For a target in log10 the scores are those of the logarithms, and the interval is `[f(x) / 10^q, f(x) 10^q]`. Rows whose
target is a bound have no score and are skipped; a new row whose target is beyond the bound is not exchangeable with the
others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from graphbench.data.columns import from_log10, to_log10
from graphbench.errors import BadInput


def parse_coverage(text: str | float) -> Fraction:
    """Parse a coverage as the decimal number that was written, so that rounding cannot change a rank; refuse others.

    Examples:
        >>> parse_coverage("0.9"), parse_coverage(0.55)
        (Fraction(9, 10), Fraction(11, 20))
    """
    try:
        coverage = Fraction(str(text))
    except (ValueError, ZeroDivisionError):
        coverage = Fraction(0)
    if not 0 < coverage < 1:
        raise BadInput(f"--interval {text}: must be the coverage, a number above 0 and below 1 such as 0.9.")
    return coverage


def conformal_rank(rows: int, coverage: Fraction) -> int:
    """Return the rank, from the smallest of n scores, that bounds a new one with this probability: `ceil((n + 1) c)`.

    It exceeds n if n scores are too few.

    Examples:
        >>> conformal_rank(99, Fraction(9, 10)), conformal_rank(8, Fraction(9, 10))
        (90, 9)
    """
    return math.ceil((rows + 1) * coverage)


def conformal_quantile(
    scores: np.ndarray, coverage: Fraction, target: str, rows: str = "the validation split"
) -> float:
    """Return the score at `conformal_rank` among those that are not NaN.

    Scores `[n]` are from `rows` that no model was trained on; the coverage is that of a new row.

    Examples:
        >>> conformal_quantile(np.array([3.0, 1.0, np.nan, 2.0]), Fraction(1, 2), "energy")
        2.0
    """
    present = np.sort(scores[~np.isnan(scores)])
    rank, count = conformal_rank(len(present), coverage), len(present)
    if rank <= count:
        return float(present[rank - 1])
    # (n + 1) c <= n, solved for n; the message rounds the coverage down, so that n allows it.
    least = math.ceil(coverage / (1 - coverage))
    most = f"; {count} rows allow at most {math.floor(1e4 * count / (count + 1)) / 1e4:g}." if count else "."
    raise BadInput(
        f"--interval {float(coverage):g}: {rows} has {count} rows with a prediction and a known {target!r}, and this "
        f"coverage needs at least {least}{most}"
    )


def spread_floors(targets: np.ndarray, logged: Sequence[bool] = ()) -> tuple[float, ...]:
    """Return a tenth of the standard deviation of training targets `[n, T]`, of their logarithms if `logged`.

    Examples:
        >>> spread_floors(np.array([[0.0, 1.0], [20.0, np.nan]]))
        (1.0, 0.0)
    """
    return tuple(float(floor) for floor in np.nanstd(to_log10(targets.astype(np.float64), logged), axis=0) / 10)


@dataclass(frozen=True)
class Intervals:
    """Intervals around predictions that contain the truth with a given probability.

    Args:
        coverage: stated probability, for each target separately.
        names: of the targets.
        half_widths: of each target, in its unit, or of its decimal logarithm if trained on that.
        rows: validation rows behind each of them.
        logged: which targets are trained on in log10; empty if none is.
        floors: of each target, added to the spread that widths are multiples of; empty if they use no spread.

    Examples:
        >>> errors = np.arange(1.0, 20.0)[:, None]
        >>> Intervals.fit(Fraction(9, 10), errors, np.zeros((19, 1)), ["energy"]).half_widths
        (18.0,)
    """

    coverage: Fraction
    names: tuple[str, ...]
    half_widths: tuple[float, ...]
    rows: tuple[int, ...]
    logged: tuple[bool, ...] = ()
    floors: tuple[float, ...] = ()

    @classmethod
    def fit(
        cls,
        coverage: Fraction,
        predictions: np.ndarray,
        targets: np.ndarray,
        names: Sequence[str],
        logged: Sequence[bool] = (),
        spreads: np.ndarray | None = None,
        floors: Sequence[float] = (),
        rows: str = "the validation split",
    ) -> Intervals:
        """Fit the widths to the errors of `predictions` of rows that the model was not trained on.

        Predictions, targets (NaN if unknown) and `spreads` of the predictions, in the unit of the target, are `[n, T]`;
        spreads are used if there are `floors`, and `rows` names the rows in messages. The other arguments are those of
        the class.
        """
        centre, widths = to_log10(predictions.astype(np.float64), logged), []
        scores = np.abs(to_log10(targets.astype(np.float64), logged) - centre)
        scores /= _scales(predictions, spreads, logged, floors)
        for number, name in enumerate(names):
            widths.append(conformal_quantile(scores[:, number], coverage, name, rows))
        counts = tuple((~np.isnan(scores)).sum(0).tolist())
        return cls(coverage, tuple(names), tuple(widths), counts, tuple(logged), tuple(floors))

    def bounds(self, predictions: np.ndarray, spreads: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper ends of the intervals around predictions, each `[rows, T]`."""
        width = np.array(self.half_widths) * _scales(predictions, spreads, self.logged, self.floors)
        centre = to_log10(predictions.astype(np.float64), self.logged)
        return from_log10(centre - width, self.logged), from_log10(centre + width, self.logged)

    def columns(self, predictions: np.ndarray, spreads: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Return `<target>_low` and `<target>_high` for predictions `[rows, T]`; NaN if there is none."""
        low, high = self.bounds(predictions, spreads)
        columns: dict[str, np.ndarray] = {}
        for number, name in enumerate(self.names):
            columns |= {f"{name}_low": low[:, number], f"{name}_high": high[:, number]}
        return columns

    def covers(self, predictions: np.ndarray, targets: np.ndarray, spreads: np.ndarray | None = None) -> np.ndarray:
        """Return 1 if a target is in its interval, 0 if not, NaN if it is unknown: float64 `[rows, T]`."""
        low, high = self.bounds(predictions, spreads)
        truth = targets.astype(np.float64)
        return np.where(np.isnan(truth), np.nan, (low <= truth) & (truth <= high))

    def record(self) -> dict[str, Any]:
        """Return JSON values for the results of a run."""
        return {
            "coverage": float(self.coverage),
            "half_widths": dict(zip(self.names, self.half_widths, strict=True)),
            "rows": dict(zip(self.names, self.rows, strict=True)),
            "log10": [name for name, logged in zip(self.names, self.logged, strict=False) if logged],
            **({"by": ["spread"]} if self.floors else {}),
        }

    def describe(self) -> list[str]:
        """Describe the interval of each target in a line."""
        return [
            f"Interval of {name}: {self.words(number)}, with a stated coverage of {float(self.coverage):g} from {rows} "
            "validation rows"
            for number, (name, rows) in enumerate(zip(self.names, self.rows, strict=True))
        ]

    def words(self, number: int) -> str:
        """Describe the interval of a target around its prediction.

        Examples:
            >>> Intervals(Fraction(9, 10), ("a", "b"), (0.5, 1.0), (19, 19), (False, True)).words(1)
            'prediction / 10 to prediction * 10'
        """
        width, logged = self.half_widths[number], bool(self.logged) and self.logged[number]
        if self.floors:
            return f"prediction -/+ {width:.4g} (spread + {self.floors[number]:.4g}){' in log10' if logged else ''}"
        if logged:
            return f"prediction / {10**width:.4g} to prediction * {10**width:.4g}"
        return f"prediction -/+ {width:.4g}"


def _scales(
    predictions: np.ndarray, spreads: np.ndarray | None, logged: Sequence[bool], floors: Sequence[float]
) -> np.ndarray:
    """Return what a width is a multiple of `[rows, T]`; 1 without floors.

    The spread of a target in log10 is relative to its prediction: `log10(1 + spread / prediction)`.
    """
    if not len(floors):
        return np.ones((1, 1))
    assert spreads is not None
    scales = spreads.astype(np.float64)
    if any(logged):
        scales = np.where(np.asarray(logged), np.log10(1 + scales / predictions.astype(np.float64)), scales)
    return np.asarray(scales + np.asarray(floors))
