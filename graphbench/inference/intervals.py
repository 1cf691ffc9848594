"""Prediction intervals with a stated coverage: split-conformal prediction of regressions.

For the n rows of the validation split the scores are `s_i = |y_i - f(x_i)|`, and q is the k-th smallest of them with
`k = ceil((n + 1) c)`. Where a new row and the validation rows are exchangeable and the model saw none of them, its
truth lies in `[f(x) - q, f(x) + q]` with a probability of at least c, and of at most `c + 1 / (n + 1)` where no two
scores are equal, whatever the model and the distribution (Vovk, Gammerman & Shafer, "Algorithmic learning in a random
world", 2005; Lei et al., "Distribution-free predictive inference for regression", JASA 2018, theorem 2.2).

Of a target in log10 the scores are those of the logarithms, and the interval is `[f(x) / 10^q, f(x) 10^q]`. Rows whose
target is a bound have no score and are left out; a new row whose target is beyond the bound is not exchangeable with
the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from graphbench.data.columns import from_log10, to_log10
from graphbench.errors import BadInput


def parse_coverage(text: str | float) -> Fraction:
    """Parse a coverage as the decimal number that was written, so that no rank is off by rounding.

    Raises:
        BadInput: it is no number between 0 and 1.

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

    It exceeds n where n scores are too few.

    Examples:
        >>> conformal_rank(99, Fraction(9, 10)), conformal_rank(8, Fraction(9, 10))
        (90, 9)
    """
    return math.ceil((rows + 1) * coverage)


@dataclass(frozen=True)
class Intervals:
    """Intervals around predictions that hold the truth with a given probability.

    Args:
        coverage: stated probability, for each target by itself.
        names: of the targets.
        half_widths: of each target, in its unit, or of its decimal logarithm where that is trained on.
        rows: validation rows that each of them rests on.
        logged: which targets are trained on in log10; empty where none is.

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

    @classmethod
    def fit(
        cls,
        coverage: Fraction,
        predictions: np.ndarray,
        targets: np.ndarray,
        names: Sequence[str],
        logged: Sequence[bool] = (),
    ) -> Intervals:
        """Those that the errors on validation rows give.

        Args:
            coverage: see above.
            predictions: of rows that the model was not trained on `[n, T]`.
            targets: of the same rows, NaN where unknown `[n, T]`.
            names: of the targets.
            logged: see the class.

        Raises:
            BadInput: a target is known for too few rows.
        """
        widths, counts = [], []
        errors = to_log10(targets.astype(np.float64), logged) - to_log10(predictions.astype(np.float64), logged)
        for number, name in enumerate(names):
            scores = np.abs(errors[:, number])
            scores = np.sort(scores[~np.isnan(scores)])
            rank, count = conformal_rank(len(scores), coverage), len(scores)
            if rank > count:
                least = math.ceil(coverage / (1 - coverage))
                raise BadInput(
                    f"--interval {float(coverage):g}: the validation split has {count} rows with a prediction and a "
                    f"known {name!r}, and this coverage needs at least {least}"
                    + (
                        f"; {count} rows allow at most {math.floor(1e4 * count / (count + 1)) / 1e4:g}."
                        if count
                        else "."
                    )
                )
            widths.append(float(scores[rank - 1]))
            counts.append(count)
        return cls(coverage, tuple(names), tuple(widths), tuple(counts), tuple(logged))

    def columns(self, predictions: np.ndarray) -> dict[str, np.ndarray]:
        """`<target>_low` and `<target>_high` beside predictions `[rows, T]`; NaN where there is none."""
        bounds: dict[str, np.ndarray] = {}
        centre, width = to_log10(predictions.astype(np.float64), self.logged), np.array(self.half_widths)
        low, high = from_log10(centre - width, self.logged), from_log10(centre + width, self.logged)
        for number, name in enumerate(self.names):
            bounds |= {f"{name}_low": low[:, number], f"{name}_high": high[:, number]}
        return bounds

    def words(self, number: int) -> str:
        """Describe the interval of a target around its prediction.

        Examples:
            >>> Intervals(Fraction(9, 10), ("a", "b"), (0.5, 1.0), (19, 19), (False, True)).words(1)
            'prediction / 10 to prediction * 10'
        """
        width = self.half_widths[number]
        if self.logged and self.logged[number]:
            return f"prediction / {10**width:.4g} to prediction * {10**width:.4g}"
        return f"prediction -/+ {width:.4g}"
