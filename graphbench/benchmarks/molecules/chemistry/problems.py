"""Rows of a file that cannot be used: collected as data, told in one message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

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
