"""Rows of a file that cannot be used or that repeat a molecule, collected as data and reported in one message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from graphbench.errors import BadInput

_SHOWN = 8  # rows named for each kind of problem; the rest is counted
_WIDTH = 60  # characters of a quoted value
UNREADABLE = "RDKit cannot read the molecule"
EMPTY = "the molecule has no atoms"
TOO_LARGE = "the molecule is too large"


class MoleculeProblem(BadInput):
    """One molecule cannot be used; `kind` is the same for all molecules with this defect."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind, self.detail = kind, detail


@dataclass(frozen=True, order=True)
class RowProblem:
    """Why one row cannot be used.

    Args:
        kind: the defect in words, the same for all rows that share it.
        line: line of the file, from 1 (in Parquet files: number of the row, from 1).
        detail: what stands there.
    """

    kind: str
    line: int
    detail: str = ""


def quote(value: str) -> str:
    """A value in quotes, cut to a readable length."""
    return repr(value if len(value) <= _WIDTH else value[: _WIDTH - 3] + "...")


def describe_problems(
    problems: Iterable[RowProblem], source: str, num_rows: int, unit: str = "line", what: str = "cannot be used"
) -> str:
    """All problems in one message: how many rows in all, then each kind with its count and its first lines.

    Args:
        problems: at most a few per row.
        source: name of the file.
        num_rows: rows of the file.
        unit: what `RowProblem.line` counts.
        what: is said of these rows.
    """
    ordered = sorted(problems)
    affected = len({problem.line for problem in ordered})
    text = [f"{source}: {affected:,} of {num_rows:,} rows {what}."]
    for kind, same in groupby(ordered, key=lambda problem: problem.kind):
        group = list(same)
        named = "; ".join(_name(problem, unit) for problem in group[:_SHOWN])
        more = f"; and {len(group) - _SHOWN:,} more" if len(group) > _SHOWN else ""
        text.append(f"  {len(group):,} x {kind}: {named}{more}")
    return "\n".join(text)


def _name(problem: RowProblem, unit: str) -> str:
    return f"{unit} {problem.line:,}" + (f" ({problem.detail})" if problem.detail else "")


def refuse_problems(
    problems: Sequence[RowProblem], source: str, num_rows: int, advice: str, unit: str = "line"
) -> None:
    """Stop when there is any problem.

    Raises:
        BadInput: the message of `describe_problems`, followed by `advice`.
    """
    if problems:
        raise BadInput(f"{describe_problems(problems, source, num_rows, unit)}\n{advice}")


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
