"""Intervals and sets for each range of distances to the training set: Mondrian conformal prediction.

Errors grow with the distance to the training data, and new rows are often farther from it than validation rows. One
width for all is then too narrow for distant rows. Here each bin of distances has its own width (Vovk, Gammerman &
Shafer 2005, section 4.5; Boström & Johansson, "Mondrian conformal regressors", COPA 2020), so that the coverage holds
in every bin, whatever share of the new rows falls into it: under a shift of the distances, but not under a shift of the
targets at equal distance.

The edges are quantiles of the distances of the validation rows, known without their targets. In a bin of m rows without
ties, the row at its upper edge is not exchangeable with a new row, so the coverage is at least `c - (1 - c) / m` there,
and at least c in the last bin, which has no upper edge. New rows beyond the farthest validation row use the last bin,
without any guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from graphbench.errors import BadInput
from graphbench.inference.class_sets import ClassSets
from graphbench.inference.intervals import Intervals

#: Maximum number of bins, and minimum number of validation rows in each.
_MAX_BINS, _MIN_ROWS = 4, 50
#: Column with the distance of each row.
DISTANCE = "distance_to_training"

Conformal = Intervals | ClassSets
#: Function that fits intervals or sets to some rows with a description.
Fit = Callable[[np.ndarray, str], Conformal]


def bin_edges(distances: np.ndarray, coverage: Fraction) -> tuple[float, ...]:
    """Return the largest distance of each bin except the last, for bins of equally many validation rows `[n]`.

    A bin has at least twice as many rows as its coverage needs, and at least 50.

    Examples:
        >>> bin_edges(np.arange(200) / 200, Fraction(9, 10))
        (0.245, 0.495, 0.745)
    """
    fewest = max(_MIN_ROWS, 2 * math.ceil(coverage / (1 - coverage)))
    bins = min(_MAX_BINS, len(distances) // fewest)
    ordered = np.sort(distances)
    edges: list[float] = []
    below = 0  # rows up to the last edge
    for number in range(1, bins):
        edge = float(ordered[number * len(ordered) // bins - 1])
        up_to = int(np.searchsorted(ordered, edge, side="right"))
        # Many equal distances leave few before the next edge, or beyond it; those join a neighbouring bin.
        if min(up_to - below, len(ordered) - up_to) >= fewest:
            edges.append(edge)
            below = up_to
    if not edges:
        raise BadInput(
            f"--interval-by distance: bins of distances need {fewest} validation rows each for a coverage of "
            f"{float(coverage):g}, and there are {len(distances)} of {len(set(distances.tolist()))} different "
            "distances. Leave it out, or validate on more rows."
        )
    return tuple(edges)


@dataclass(frozen=True)
class DistanceBins:
    """Intervals or sets for each bin of distances to the training set.

    `edges` are the largest distances of each bin except the last, ascending.

    Examples:
        >>> near, far = (Intervals(Fraction(9, 10), ("y",), (width,), (99,)) for width in (1.0, 2.0))
        >>> bins = DistanceBins((0.5,), (near, far))
        >>> bins.columns(np.zeros((2, 1)), None, np.array([0.5, 0.6]))["y_high"].tolist()
        [1.0, 2.0]
    """

    edges: tuple[float, ...]
    bins: tuple[Conformal, ...]

    @classmethod
    def fit(cls, coverage: Fraction, distances: np.ndarray, fit: Fit) -> DistanceBins:
        """Fit one for each bin of the distances of validation rows `[n]`, with the coverage stated for every bin."""
        edges = bin_edges(distances, coverage)
        # A row at an edge belongs to the bin that ends there; the bin's coverage depends on this.
        place, spans = np.searchsorted(edges, distances), _spans(edges)
        return cls(edges, tuple(fit(place == number, f"the bin of {span}") for number, span in enumerate(spans)))

    def spans(self) -> list[str]:
        """Describe the distances of each bin."""
        return _spans(self.edges)

    def masks(self, distances: np.ndarray) -> list[np.ndarray]:
        """Return which rows fall into each bin."""
        place = np.searchsorted(self.edges, distances)
        return [place == number for number in range(len(self.bins))]

    @property
    def coverage(self) -> Fraction:
        """Return the stated probability."""
        return self.bins[0].coverage

    def columns(self, values: np.ndarray, spreads: np.ndarray | None, distances: np.ndarray) -> dict[str, np.ndarray]:
        """Return the columns of each row's bin, and the distance; arguments as for `Intervals.columns`."""
        # Every bin computes every row, and each row uses its own: bins are few.
        each = [one.columns(values, spreads) for one in self.bins]
        place = np.searchsorted(self.edges, distances)
        chosen = {name: np.choose(place, [columns[name] for columns in each]) for name in each[0]}
        return chosen | {DISTANCE: distances}

    def covers(
        self, values: np.ndarray, targets: np.ndarray, spreads: np.ndarray | None, distances: np.ndarray
    ) -> np.ndarray:
        """Return the same as `Intervals.covers`, using each row's bin."""
        each = np.stack([one.covers(values, targets, spreads) for one in self.bins])
        return np.asarray(each[np.searchsorted(self.edges, distances), np.arange(len(distances))])

    def record(self) -> dict[str, Any]:
        """Return JSON values for the results of a run."""
        records = [one.record() for one in self.bins]
        by = ["distance", *records[0].get("by", ())]
        bins = [
            {name: value for name, value in one.items() if name not in ("coverage", "by", "log10")} for one in records
        ]
        return {"coverage": float(self.coverage), "by": by, "edges": list(self.edges), "bins": bins}

    def describe(self) -> list[str]:
        """Describe each bin."""
        pairs = zip(_spans(self.edges), self.bins, strict=True)
        return [f"{line} ({span})" for span, one in pairs for line in one.describe()]


def _spans(edges: Sequence[float]) -> list[str]:
    """Describe the bins between edges.

    Examples:
        >>> _spans([0.25, 0.5])
        ['distances up to 0.25', 'distances 0.25 to 0.5', 'distances above 0.5']
    """
    between = [f"distances {low:.4g} to {high:.4g}" for low, high in pairwise(edges)]
    return [f"distances up to {edges[0]:.4g}", *between, f"distances above {edges[-1]:.4g}"]
