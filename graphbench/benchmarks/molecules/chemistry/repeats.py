"""Molecules that a file has more than once: how many, and where their targets contradict each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphbench.benchmarks.molecules.chemistry.problems import quote

_SHOWN = 8  # molecules that are named; the others are counted


@dataclass(frozen=True)
class Repeats:
    """Molecules that are there more than once.

    Args:
        rows: of each of them its rows, ascending.
        contradicting: places in `rows` of those whose rows have different values of one target.
    """

    rows: list[list[int]]
    contradicting: list[int]


def find_repeats(canonical: Sequence[str], y: np.ndarray) -> Repeats:
    """Molecules with one canonical SMILES in several rows.

    Args:
        canonical: one SMILES per row.
        y: targets `[rows, T]`, NaN where unknown.

    Examples:
        >>> find_repeats(["C", "CC", "C", "CC"], np.array([[1.0], [2.0], [3.0], [2.0]]))
        Repeats(rows=[[0, 2], [1, 3]], contradicting=[0])
    """
    members: dict[str, list[int]] = {}
    for row, text in enumerate(canonical):
        members.setdefault(text, []).append(row)
    rows = [found for found in members.values() if len(found) > 1]
    return Repeats(rows, [place for place, found in enumerate(rows) if _contradict(y[found])])


def _contradict(values: np.ndarray) -> bool:
    """Whether a column `[rows, T]` has two different known values."""
    return any(len(np.unique(column[~np.isnan(column)])) > 1 for column in values.T.astype(float))


def describe_repeats(
    repeats: Repeats, y: np.ndarray, smiles: Sequence[str], lines: Sequence[int], source: str, unit: str
) -> str:
    """How many molecules are repeated, and those with different targets by name, line and value.

    Args:
        repeats: at least one.
        y: targets `[rows, T]`.
        smiles: of each row, as the file has it.
        lines: of each row.
        source: name of the file.
        unit: what `lines` counts.

    Examples:
        >>> y = np.array([[1.0], [3.0]])
        >>> describe_repeats(find_repeats(["CO", "CO"], y), y, ["CO", "OC"], [2, 9], "f", "line")
        "f: 1 molecule is there more than once, in 2 rows; 1 of them with different targets: 'CO' (lines 2, 9: 1, 3)."
    """
    count, bad = len(repeats.rows), repeats.contradicting
    told = f"{source}: {count:,} {'molecule is' if count == 1 else 'molecules are'} there more than once, in "
    told += f"{sum(map(len, repeats.rows)):,} rows"
    if not bad:
        return f"{told}, with equal targets."
    named = []
    for place in bad[:_SHOWN]:
        rows = repeats.rows[place]
        values = ", ".join(_values(y[row]) for row in rows[:_SHOWN])
        where = ", ".join(f"{lines[row]:,}" for row in rows[:_SHOWN])
        more = f", and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        named.append(f"{quote(smiles[rows[0]])} ({unit}s {where}: {values}{more})")
    more = f"; and {len(bad) - _SHOWN:,} more" if len(bad) > _SHOWN else ""
    return f"{told}; {len(bad):,} of them with different targets: {'; '.join(named)}{more}."


def _values(targets: np.ndarray) -> str:
    told = ["empty" if np.isnan(value) else f"{value:.6g}" for value in targets.astype(float)]
    return told[0] if len(told) == 1 else f"({', '.join(told)})"


def describe_leaks(repeats: Repeats, labels: Sequence[str], smiles: Sequence[str], source: str) -> str:
    """Molecules that stand in several splits of a file, by name; "" where there is none.

    Args:
        repeats: of the file.
        labels: split of each row.
        smiles: of each row.
        source: name of the file.

    Examples:
        >>> describe_leaks(Repeats([[0, 1]], []), ["train", "test"], ["CO", "OC"], "a.csv")
        "a.csv: 1 molecule stands in several splits, so that scores are too good: 'CO' (train, test)."
    """
    leaks = [rows for rows in repeats.rows if len({labels[row] for row in rows}) > 1]
    if not leaks:
        return ""
    named = [f"{quote(smiles[r[0]])} ({', '.join(dict.fromkeys(labels[row] for row in r))})" for r in leaks[:_SHOWN]]
    more = f"; and {len(leaks) - _SHOWN:,} more" if len(leaks) > _SHOWN else ""
    stand = "molecule stands" if len(leaks) == 1 else "molecules stand"
    told = f"{source}: {len(leaks):,} {stand} in several splits, so that scores are too good: "
    return told + "; ".join(named) + more + "."
