"""A CSV logger that keeps what an interrupted run has already written."""

from __future__ import annotations

import csv
from pathlib import Path

from pytorch_lightning.loggers import CSVLogger


class RunCSVLogger(CSVLogger):
    """Writes `metrics.csv` straight into the run folder.

    Lightning's logger starts the file anew; a run that goes on keeps the rows of the steps before it.

    Args:
        folder: the run folder.
        continue_at: optimizer step at which the run goes on; None for a new run.
    """

    def __init__(self, folder: str | Path, continue_at: int | None = None) -> None:
        super().__init__(save_dir=str(folder), name="", version="", flush_logs_every_n_steps=200)
        path = Path(folder) / "metrics.csv"
        if continue_at is None or not path.is_file():
            return
        with path.open(newline="", encoding="utf-8") as file:
            rows = [{k: float(v) for k, v in row.items() if v != ""} for row in csv.DictReader(file)]
        kept = [row for row in rows if row["step"] < continue_at]
        for row in kept:
            self.experiment.log_metrics({k: v for k, v in row.items() if k != "step"}, int(row["step"]))
        self.save()
