"""Prediction intervals with a stated coverage: split-conformal prediction of regressions.

For the n rows of the validation split the scores are `s_i = |y_i - f(x_i)|`, and q is the k-th smallest of them with
`k = ceil((n + 1) c)`. Where a new row and the validation rows are exchangeable and the model saw none of them, its
truth lies in `[f(x) - q, f(x) + q]` with a probability of at least c, and of at most `c + 1 / (n + 1)` where no two
scores are equal, whatever the model and the distribution (Vovk, Gammerman & Shafer, "Algorithmic learning in a random
world", 2005; Lei et al., "Distribution-free predictive inference for regression", JASA 2018, theorem 2.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

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
        half_widths: of each target, in its unit.
        rows: validation rows that each of them rests on.

    Examples:
        >>> errors = np.arange(1.0, 20.0)[:, None]
        >>> Intervals.fit(Fraction(9, 10), errors, np.zeros((19, 1)), ["energy"]).half_widths
        (18.0,)
    """

    coverage: Fraction
    names: tuple[str, ...]
    half_widths: tuple[float, ...]
    rows: tuple[int, ...]

    @classmethod
    def fit(cls, coverage: Fraction, predictions: np.ndarray, targets: np.ndarray, names: Sequence[str]) -> Intervals:
        """Those that the errors on validation rows give.

        Args:
            coverage: see above.
            predictions: of rows that the model was not trained on `[n, T]`.
            targets: of the same rows, NaN where unknown `[n, T]`.
            names: of the targets.

        Raises:
            BadInput: a target is known for too few rows.
        """
        widths, counts = [], []
        for number, name in enumerate(names):
            scores = np.abs(targets[:, number].astype(np.float64) - predictions[:, number].astype(np.float64))
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
        return cls(coverage, tuple(names), tuple(widths), tuple(counts))

    def columns(self, predictions: np.ndarray) -> dict[str, np.ndarray]:
        """`<target>_low` and `<target>_high` beside predictions `[rows, T]`; NaN where there is none."""
        bounds: dict[str, np.ndarray] = {}
        for number, (name, width) in enumerate(zip(self.names, self.half_widths, strict=True)):
            centre = predictions[:, number].astype(np.float64)
            bounds |= {f"{name}_low": centre - width, f"{name}_high": centre + width}
        return bounds
