"""Sets of classes that contain the true one with a stated probability: split-conformal classification.

The score of a validation row is `s_i = 1 - p_i`, p_i the probability of its true class, and q the `conformal_rank`-th
smallest score. The set of a new row has the classes k with `1 - p_k <= q`: LAC, the least ambiguous sets of Sadinle,
Lei & Wasserman ("Least ambiguous set-valued classifiers with bounded error levels", JASA 2019). It contains the true
class with the coverage of `intervals`, over all rows together. With a q for each class, from the rows of that class
only, it does so in each class (label-conditional: Vovk, Gammerman & Shafer 2005, section 4.5), even in a rare one.

A set may be empty: then no class is as probable as the true one usually is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from graphbench.inference.calibration import known_choices
from graphbench.inference.intervals import conformal_quantile

#: Separator of the names of the classes in a set.
SEPARATOR = " | "


@dataclass(frozen=True)
class ClassSets:
    """Sets of classes that contain the true one with a given probability.

    Args:
        coverage: stated probability.
        target: name of the target.
        classes: names of the C classes.
        thresholds: lowest probability at which each class is in the set `[C]`.
        rows: validation rows behind each threshold `[C]`.
        by_class: whether the coverage applies to each class.

    Examples:
        >>> probabilities = np.array([[0.9, 0.1]] * 8 + [[0.3, 0.7]])
        >>> sets = ClassSets.fit(Fraction(8, 10), probabilities, np.zeros((9, 1)), "kind", ["no", "yes"])
        >>> sets.columns(np.array([[0.95, 0.05], [0.5, 0.5]]))["set_kind"].tolist()
        ['no', '']
    """

    coverage: Fraction
    target: str
    classes: tuple[str, ...]
    thresholds: tuple[float, ...]
    rows: tuple[int, ...]
    by_class: bool = False

    @classmethod
    def fit(
        cls,
        coverage: Fraction,
        probabilities: np.ndarray,
        targets: np.ndarray,
        target: str,
        classes: Sequence[str],
        by_class: bool = False,
        rows: str = "the validation split",
    ) -> ClassSets:
        """Fit the thresholds to `probabilities` and `targets` of rows that the model was not trained on.

        Probabilities are `[n, C]`, targets their classes `[n, 1]`, negative if unknown; `rows` names them in messages.
        The other arguments are those of the class.
        """
        labelled, truth = known_choices(probabilities.astype(np.float64), targets)
        chosen = np.take_along_axis(labelled, truth[:, None], 1)[:, 0]
        thresholds, counts = [], []
        for number, name in enumerate(classes):
            scores = 1 - chosen[truth == number] if by_class else 1 - chosen
            label = f"{target}={name}" if by_class else target
            thresholds.append(1 - conformal_quantile(scores, coverage, label, rows))
            counts.append(len(scores))
        return cls(coverage, target, tuple(classes), tuple(thresholds), tuple(counts), by_class)

    def members(self, probabilities: np.ndarray) -> np.ndarray:
        """Return which classes are in the set of each row, bool `[rows, C]`."""
        # 1 - (1 - p) may round below p, and the row whose score is the quantile must be covered
        return np.asarray(1 - probabilities.astype(np.float64) <= 1 - np.array(self.thresholds) + 1e-12)

    def columns(self, probabilities: np.ndarray, spreads: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Return `set_<target>` for probabilities `[rows, C]`: names of classes separated by bars."""
        members = self.members(probabilities)
        texts = [
            SEPARATOR.join(name for name, inside in zip(self.classes, row, strict=True) if inside) for row in members
        ]
        return {f"set_{self.target}": np.array(texts, dtype=object)}

    def covers(self, probabilities: np.ndarray, targets: np.ndarray, spreads: np.ndarray | None = None) -> np.ndarray:
        """Return 1 if the true class is in the set, 0 if not, NaN if it is unknown: float64 `[rows, 1]`."""
        truth = targets[:, 0].astype(np.float64)
        mask = truth >= 0
        inside = np.full(len(truth), np.nan)
        inside[mask] = self.members(probabilities)[mask, truth[mask].astype(np.int64)]
        return inside[:, None]

    def record(self) -> dict[str, Any]:
        """Return JSON values for the results of a run."""
        return {
            "coverage": float(self.coverage),
            "thresholds": dict(zip(self.classes, self.thresholds, strict=True)),
            "rows": dict(zip(self.classes, self.rows, strict=True)),
            "by": ["class"] if self.by_class else [],
        }

    def describe(self) -> list[str]:
        """Describe the thresholds in a line, or a line for each class."""
        stated = f"with a stated coverage of {float(self.coverage):g}"
        if not self.by_class:
            return [
                f"Set of {self.target}: classes with a probability of {self.thresholds[0]:.4g} or more, {stated} from "
                f"{self.rows[0]} validation rows"
            ]
        return [
            f"Set of {self.target}: {name} from a probability of {threshold:.4g} up, {stated} from {rows} of its rows"
            for name, threshold, rows in zip(self.classes, self.thresholds, self.rows, strict=True)
        ]
