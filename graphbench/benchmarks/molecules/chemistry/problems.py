"""Collect rows of a file that cannot be used or that repeat a molecule, and report them in one message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from graphbench.errors import BadInput

_SHOWN = 8  # rows or molecules that a message names; others are counted
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
    """A row that cannot be used: the kind of defect in words, the line (or row) from 1, and the faulty text."""

    kind: str
    line: int
    detail: str = ""


def quote(value: str) -> str:
    """Return a value in quotes, cut to a readable length."""
    return repr(value if len(value) <= _WIDTH else value[: _WIDTH - 3] + "...")


def describe_problems(
    problems: Iterable[RowProblem], source: str, num_rows: int, unit: str = "line", what: str = "cannot be used"
) -> str:
    """Combine all problems into one message: the number of rows, then each kind with its count and first lines."""
    ordered = sorted(problems)
    affected = len({problem.line for problem in ordered})
    text = [f"{source}: {affected:,} of {num_rows:,} rows {what}."]
    for kind, group in groupby(ordered, key=lambda problem: problem.kind):
        lines = [f"{unit} {p.line:,}" + (f" ({p.detail})" if p.detail else "") for p in group]
        text.append(f"  {len(lines):,} x {kind}: {_first(lines)}")
    return "\n".join(text)


def _first(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more


def refuse_problems(
    problems: Sequence[RowProblem], source: str, num_rows: int, advice: str, unit: str = "line"
) -> None:
    """Raise `BadInput` with the message of `describe_problems` and some advice if there is any problem."""
    if problems:
        raise BadInput(f"{describe_problems(problems, source, num_rows, unit)}\n{advice}")


@dataclass(frozen=True)
class Repeats:
    """Ascending rows of each repeated molecule, and indices of molecules with different values of one target."""

    rows: list[list[int]]
    contradicting: list[int]


def find_repeats(canonical: Sequence[str], y: np.ndarray) -> Repeats:
    """Group rows with the same canonical SMILES; targets `y` are `[rows, T]`, NaN where unknown.

    Examples:
        >>> find_repeats(["C", "CC", "C", "CC"], np.array([[1.0], [2.0], [3.0], [2.0]]))
        Repeats(rows=[[0, 2], [1, 3]], contradicting=[0])
    """
    groups: dict[str, list[int]] = {}
    for row in _maybe_repeated(canonical):
        groups.setdefault(canonical[row], []).append(row)
    rows = [group for group in groups.values() if len(group) > 1]

    def contradict(values: np.ndarray) -> bool:
        return any(len(np.unique(column[~np.isnan(column)])) > 1 for column in values.T.astype(float))

    return Repeats(rows, [number for number, group in enumerate(rows) if contradict(y[group])])


def has_repeats(texts: Sequence[str]) -> bool:
    """Return whether a text occurs more than once.

    Examples:
        >>> has_repeats(["C", "CC"]), has_repeats(["C", "CC", "C"])
        (False, True)
    """
    rows = _maybe_repeated(texts)
    return len({texts[row] for row in rows}) < len(rows)


def _maybe_repeated(texts: Sequence[str]) -> list[int]:
    """Return the rows of texts whose hash occurs more than once, ascending: all repeats, and hardly any other text.

    The hashes of ten million texts take 80 MB; the texts in a dictionary would take several gigabytes.
    """
    hashes = np.fromiter(map(hash, texts), dtype=np.int64, count=len(texts))
    _, number, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    return np.flatnonzero(counts[number.reshape(-1)] > 1).tolist()


def describe_repeats(
    repeats: Repeats, y: np.ndarray, smiles: Sequence[str], lines: Sequence[int], source: str, unit: str
) -> str:
    """Count the repeated molecules, and list those with different targets with their lines and values.

    Examples:
        >>> y = np.array([[1.0], [3.0]])
        >>> describe_repeats(find_repeats(["CO", "CO"], y), y, ["CO", "OC"], [2, 9], "f", "line")
        "f: 1 molecule is there more than once, in 2 rows; 1 of them with different targets: 'CO' (lines 2, 9: 1, 3)."
    """
    count, num_rows = len(repeats.rows), sum(map(len, repeats.rows))
    text = f"{source}: {count:,} {'molecule is' if count == 1 else 'molecules are'} there more than once, in "
    text += f"{num_rows:,} rows"
    if not repeats.contradicting:
        return f"{text}, with equal targets."
    named = []
    for rows in (repeats.rows[number] for number in repeats.contradicting):
        values = ", ".join(_values(y[row]) for row in rows[:_SHOWN])
        numbers = ", ".join(f"{lines[row]:,}" for row in rows[:_SHOWN])
        more = f", and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else ""
        named.append(f"{quote(smiles[rows[0]])} ({unit}s {numbers}: {values}{more})")
    return f"{text}; {len(named):,} of them with different targets: {_first(named)}."


def _values(targets: np.ndarray) -> str:
    texts = ["empty" if np.isnan(value) else f"{value:.6g}" for value in targets.astype(float)]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def describe_leaks(repeats: Repeats, labels: Sequence[str], smiles: Sequence[str], source: str) -> str:
    """Name the molecules that are in several splits of a file; "" if there are none.

    Examples:
        >>> describe_leaks(Repeats([[0, 1]], []), ["train", "test"], ["CO", "OC"], "a.csv")
        "a.csv: 1 molecule is in several splits, so that scores are too good: 'CO' (train, test)."
    """
    splits = [(quote(smiles[rows[0]]), dict.fromkeys(labels[row] for row in rows)) for rows in repeats.rows]
    leaks = [f"{molecule} ({', '.join(names)})" for molecule, names in splits if len(names) > 1]
    if not leaks:
        return ""
    verb = "molecule is" if len(leaks) == 1 else "molecules are"
    return f"{source}: {len(leaks):,} {verb} in several splits, so that scores are too good: {_first(leaks)}."
