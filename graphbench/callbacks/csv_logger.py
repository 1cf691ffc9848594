"""Log to CSV, keeping what an interrupted run has already written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter
from pytorch_lightning.loggers.logger import rank_zero_experiment

from graphbench.runs import RunFolder
from graphbench.runs.tables import append_rows, load_table, write_table

Row = Mapping[str, float]


class RunCSVLogger(CSVLogger):
    """Write `metrics.csv` directly to the run folder.

    Lightning's logger starts a new file; here a continued run keeps the rows of the steps before `continue_at`.
    """

    def __init__(self, folder: str | Path, continue_at: int | None = None) -> None:
        super().__init__(save_dir=str(folder), name="", version="", flush_logs_every_n_steps=200)
        self._folder, self._continue_at = RunFolder(Path(folder)), continue_at

    @property
    @rank_zero_experiment
    def experiment(self) -> ExperimentWriter:
        """Return the writer, created at first use: until a run is sure to resume, its file is unchanged."""
        if self._experiment is None:
            earlier = counted_from_one(read_rows(self._folder.metrics)) if self._continue_at is not None else []
            self._experiment = _Writer(
                # Step s is logged as s - 1, so rows below `continue_at` are from steps that the checkpoint includes.
                str(self._folder.path),
                [row for row in earlier if row["step"] < (self._continue_at or 0)],
            )
        return cast(ExperimentWriter, self._experiment)

    def follow(self, folder: Path | None) -> None:
        """Continue in the new place of the run's folder; None if nothing should be written any more."""
        writer = self._experiment
        if folder is not None:
            self._folder = RunFolder(folder)
        if writer is None:
            return
        if folder is None:
            writer.metrics.clear()
            return
        writer.log_dir, writer.metrics_file_path = str(folder), str(self._folder.metrics)
        self.save()

    def has(self, row: Row) -> bool:
        """Return whether one row of the file has all values of `row`."""
        wanted = {key: repr(float(value)) for key, value in row.items()}  # as text, in which NaN equals NaN
        logged = ({key: repr(float(value)) for key, value in one.items()} for one in read_rows(self._folder.metrics))
        return any(wanted.items() <= one.items() for one in logged)


class _Writer(ExperimentWriter):
    """Continue an existing file."""

    def __init__(self, log_dir: str, kept: list[dict[str, float]]) -> None:
        self._kept = kept
        super().__init__(log_dir=log_dir)

    def _check_log_dir_exists(self) -> None:
        """Keep the rows that count; Lightning's writer removes the file."""
        names = sorted({name for row in self._kept for name in row})
        path = Path(self.metrics_file_path)
        if self._kept:
            self.metrics_keys = names
            write_table(path, names, self._kept)
        else:
            path.unlink(missing_ok=True)

    def save(self) -> None:
        """Append what was logged since the last call; a new column rewrites the file."""
        if not self.metrics:
            return
        path = Path(self.metrics_file_path)
        new = set().union(*self.metrics) - set(self.metrics_keys)
        self.metrics_keys = sorted({*self.metrics_keys, *new})
        if new and path.is_file():
            write_table(path, self.metrics_keys, read_rows(path))
        append_rows(path, self.metrics_keys, self.metrics)
        self.metrics = []


def read_rows(path: Path) -> list[dict[str, float]]:
    """Return the rows of a `metrics.csv` without its gaps; none if there is no file.

    A row that a killed process left incomplete, and everything after it, is dropped.
    """
    rows: list[dict[str, float]] = []
    for row in load_table(path).as_dicts():
        try:
            values = {name: _number(value) for name, value in row.items() if value != ""}
        except ValueError:
            break
        if "step" not in values:
            break
        rows.append(values)
    return rows


def counted_from_one(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return the rows with epochs counted from 1; those of older versions counted from 0.

    Examples:
        >>> counted_from_one([{"step": 5, "epoch": 0}, {"step": 6}, {"step": 11, "epoch": 1}])
        [{'step': 5, 'epoch': 1}, {'step': 6}, {'step': 11, 'epoch': 2}]
        >>> counted_from_one([{"step": 5, "epoch": 1}])
        [{'step': 5, 'epoch': 1}]
    """
    if not any(row.get("epoch") == 0 for row in rows):
        return rows
    return [row | {"epoch": row["epoch"] + 1} if "epoch" in row else row for row in rows]


def _number(text: str) -> float:
    return int(text) if text.isdigit() else float(text)
