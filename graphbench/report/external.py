"""Show other scores that `graphbench test` stored: against expected ones, and on labelled files beside the splits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphbench.report.figures import Section
from graphbench.report.groups import Group
from graphbench.report.loading import Run, is_number, numbers
from graphbench.runs.tables import show_number


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


_NONE = "–"


def external_section(runs: Sequence[Run], name: str) -> Section | None:
    """Return a table of all files that the runs were scored on, a row for each model and baseline; None without any."""
    found = [(run, title, one) for run in runs for title, one in run.external.items()]
    if not found:
        return None
    first = [str(one.get("metric", "")) for _, _, one in found]
    names = list(dict.fromkeys([*first, *(metric for _, _, one in found for metric in numbers(one.get("scores")))]))
    names = [metric for metric in names if metric]
    section = Section(
        name,
        "Labelled files beside the splits",
        "Every labelled row of a file, scored by graphbench test --input; no split was made of it, and the results "
        "above do not change with it. Baselines are fitted on the training part.",
        lines=[["file", "model", "rows scored", *names]],
    )
    for run, title, one in found:
        label = title if len(runs) == 1 else f"{title} ({run.name})"
        scored = _count(one, "scored")
        section.lines.append([label, run.architecture, scored, *_cells(one.get("scores"), names)])
        baselines = one.get("baselines")
        for baseline, scores in (baselines if isinstance(baselines, dict) else {}).items():
            section.lines.append([label, str(baseline), scored, *_cells(scores, names)])
        section.notes += _notes(one, label)
    return section


def _cells(scores: object, names: Sequence[str]) -> list[str]:
    known = numbers(scores)
    return [show_number(known[name]) if name in known else _NONE for name in names]


def _count(one: Mapping[str, Any], key: str) -> str:
    return f"{value:,}" if is_number(value := one.get(key)) else _NONE


def _notes(one: Mapping[str, Any], label: str) -> list[str]:
    """Say what became of rows that are not scored, which are known from training, and what is undefined."""
    told = [
        f"{_count(one, key)} {words}"
        for key, words in (("unlabelled", "without a label"), ("failed", "that cannot be scored"))
        if is_number(value := one.get(key)) and value > 0
    ]
    notes = [f"{label}: {_count(one, 'rows')} rows, {', '.join(told)}."] if told else []
    if is_number(seen := one.get("in_training")) and seen > 0:
        notes.append(f"{label}: {seen:,} of the scored rows are in the training part.")
    undefined = one.get("undefined")
    for name, why in (undefined if isinstance(undefined, dict) else {}).items():
        notes.append(f"{label}: {name} is undefined, {why}.")
    return notes
