"""Scores beside what the configuration of each run expects, as `graphbench test` stored them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from graphbench.report.groups import Group
from graphbench.report.loading import Run, is_number


@dataclass(frozen=True)
class Line:
    """One run beside its expectation.

    Args:
        label: name of its group, with the seed.
        metric: what is scored.
        obtained: score of the run.
        expected: expected score, with its standard deviation where one is known.
        source: where that stands.
        verdict: whether the run reached it, or why that cannot be said.
    """

    label: str
    metric: str
    obtained: str
    expected: str
    source: str
    verdict: str


def expectations(groups: Sequence[Group]) -> list[Line]:
    """A line per run whose configuration expects a score."""
    return [line for group in groups for run in group.runs if (line := _line(group, run)) is not None]


def _line(group: Group, run: Run) -> Line | None:
    stored = run.results.get("expected")
    if not isinstance(stored, dict) or not is_number(stored.get("value")):
        return None
    sd = f" ± {stored['sd']:.4f}" if is_number(stored.get("sd")) else ""
    obtained = stored.get("obtained")
    return Line(
        label=f"{group.label}, seed {run.seed}" if group.several else group.label,
        metric=str(stored.get("metric") or ""),
        obtained=f"{obtained:.4f}" if is_number(obtained) and math.isfinite(obtained) else "not finite",
        expected=f"{stored['value']:.4f}{sd}",
        source=str(stored.get("source") or ""),
        verdict=str(stored.get("verdict") or ""),
    )
