"""What scripts of experiments share: trainings that are skipped when finished and go on when they were interrupted.

A training is an ordinary `graphbench fit` and `graphbench test` in a folder of its own, so a script may be stopped at
any time and given again. The script names the folders and the options, and collects tables from `results`.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from graphbench.errors import BadInput
from graphbench.runs import RunFolder, write_text

__all__ = ["assign", "graphbench", "read_csv", "results", "train", "write_csv"]


def assign(content: dict[str, Any], assignment: str) -> None:
    """Apply `a.b.c=VALUE`, VALUE in YAML, to nested mappings.

    Args:
        content: a configuration; changed in place, and what is missing on the way is made.
        assignment: where and what.

    Raises:
        BadInput: there is no `=`.
    """
    path, sign, value = assignment.partition("=")
    if not sign:
        raise BadInput(f"--set expects NAME=VALUE, such as trainer.accelerator=gpu, but got {assignment!r}.")
    *parents, last = path.split(".")
    for parent in parents:
        content = content.setdefault(parent, {})
    content[last] = yaml.safe_load(value)


def graphbench(*arguments: str) -> None:
    """Run a command of graphbench in a process of its own.

    Raises:
        SystemExit: it failed; what is finished stays.
    """
    code = subprocess.run([sys.executable, "-m", "graphbench", *arguments], check=False).returncode
    if code:
        raise SystemExit(f"graphbench {arguments[0]} ended with {code}. Give the same command again to go on.")


def results(folder: Path) -> dict[str, Any]:
    """Scores of a run (`results.json`), empty before its training is finished."""
    return RunFolder(folder).read_results()


def train(folder: Path, options: Callable[[], Sequence[str]]) -> None:
    """Train and test, from wherever an earlier call stopped; what stopped before its first checkpoint starts anew.

    Args:
        folder: of the run.
        options: gives the options of `graphbench fit`; called only where a training starts.

    Raises:
        SystemExit: a command failed; what is finished stays.
    """
    if "val" not in results(folder):
        if RunFolder(folder).resumable is not None:
            graphbench("fit", "--resume", str(folder))
        else:
            graphbench("fit", *options(), "--run", str(folder))
    if "test" not in results(folder):
        graphbench("test", "--run", str(folder))


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows of a table, every value as text."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace a table as a whole, so that a reader never sees half of it; without rows nothing is written.

    Args:
        path: of the table.
        rows: all with the keys of the first, which become the header.

    Raises:
        ValueError: a row has a key that the first has not.
    """
    if not rows:
        return
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
