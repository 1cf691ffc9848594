"""Show other scores that `graphbench test` stored: compared with expected ones, and on additional labelled files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from graphbench.report.figures import Section
from graphbench.report.groups import Group
from graphbench.report.loading import Run, is_number, mapping, numbers
from graphbench.report.scores import Quantity
from graphbench.runs.tables import show_number

_NONE = "–"
#: Format a number with the decimals of another one, as in the table of results.
_number = Quantity("", "").number


def expectations(groups: Sequence[Group]) -> list[list[str]]:
    """Compare every run whose configuration expects a score: rows of a table, header first; empty without any."""
    lines = [line for group in groups for run in group.runs if (line := _expectation(group, run))]
    return [["run", "metric", "obtained", "expected", "by", "so"], *lines] if lines else []


def _expectation(group: Group, run: Run) -> list[str]:
    stored = mapping(run.results.get("expected"))
    if not is_number(stored.get("value")):
        return []
    obtained = stored.get("obtained")
    sd = f" ± {_number(stored['sd'], stored['value'])}" if is_number(stored.get("sd")) else ""
    return [
        f"{group.label}, seed {run.seed}" if group.several else group.label,
        str(stored.get("metric") or ""),
        _number(obtained, obtained) if is_number(obtained) and math.isfinite(obtained) else "not finite",
        f"{_number(stored['value'], stored['value'])}{sd}",
        str(stored.get("source") or _NONE),
        str(stored.get("verdict") or ""),
    ]


def external_section(runs: Sequence[Run], name: str) -> Section | None:
    """Tabulate the scores on labelled files, a row for each model and baseline; None without any."""
    files = [(run, title, record) for run in runs for title, record in run.external.items()]
    if not files:
        return None
    names = [str(record.get("metric", "")) for _, _, record in files]
    names += [metric for _, _, record in files for metric in numbers(record.get("scores"))]
    metrics = [metric for metric in dict.fromkeys(names) if metric]
    section = Section(
        name,
        "Labelled files outside the splits",
        "Every labelled row of a file, scored by graphbench test --input; no split was made from it, and the results "
        "above do not include it. Baselines are fitted on the training part.",
        lines=[["file", "model", "rows scored", *metrics]],
    )
    for run, title, record in files:
        label = title if len(runs) == 1 else f"{title} ({run.name})"
        for model, scores in [(run.architecture, record.get("scores")), *mapping(record.get("baselines")).items()]:
            values = numbers(scores)
            cells = [show_number(values[metric]) if metric in values else _NONE for metric in metrics]
            section.lines.append([label, str(model), _count(record, "scored"), *cells])
        section.notes += _notes(record, label)
    return section


def _count(record: Mapping[str, Any], key: str) -> str:
    return f"{value:,}" if is_number(value := record.get(key)) else _NONE


def _notes(record: Mapping[str, Any], label: str) -> list[str]:
    """Count rows that were not scored or that are in the training part, and list undefined scores."""
    unscored = [
        f"{value:,} {words}"
        for key, words in (("unlabelled", "without a label"), ("failed", "that cannot be scored"))
        if is_number(value := record.get(key)) and value > 0
    ]
    notes = [f"{label}: {_count(record, 'rows')} rows, {', '.join(unscored)}."] if unscored else []
    if is_number(seen := record.get("in_training")) and seen > 0:
        notes.append(f"{label}: {seen:,} of the scored rows are in the training part.")
    undefined = mapping(record.get("undefined"))
    return notes + [f"{label}: {metric} is undefined, {reason}." for metric, reason in undefined.items()]
