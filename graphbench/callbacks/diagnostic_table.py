"""The CSV tables of a run's diagnostics, and the same numbers in its loggers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import pandas as pd
import pytorch_lightning as pl
from pytorch_lightning.loggers import TensorBoardLogger

from graphbench.callbacks.trackers import log_table, logged_step
from graphbench.data.files.writing import place_of
from graphbench.diagnostics.figures.series import heatmap_figure
from graphbench.runs import RunFolder
from graphbench.runs.checkpoints import load_checkpoint
from graphbench.runs.tables import POSITION, append_rows, load_table, write_table

log = logging.getLogger(__name__)


class DiagnosticTable:
    """`diagnostics/NAME.csv` in the folder of a run; only the first process writes.

    The first columns of every row are `epoch` (finished epochs) and `step` (optimizer steps done).

    Args:
        name: of the file, and prefix of what is logged.
        columns: additional columns.
    """

    def __init__(self, name: str, columns: Sequence[str]) -> None:
        self.name = name
        self.columns = (*POSITION, *columns)

    def path(self, trainer: pl.Trainer) -> Path:
        """Return the path of this run's table."""
        return RunFolder(Path(trainer.default_root_dir)).table(self.name)

    def start(self, trainer: pl.Trainer) -> None:
        """Start an empty table, or keep the rows of a continued run up to the step it resumes from."""
        if not _writes(trainer):
            return
        earlier = self.rows(trainer)
        if earlier and not trainer.global_step:
            log.warning(
                "%s: %d rows of an earlier training are replaced. Give each trainer its own default_root_dir to keep "
                "them.", self.path(trainer), len(earlier),
            )  # fmt: skip
        rows = [row for row in earlier if trainer.global_step and float(row["step"]) <= trainer.global_step]
        write_table(self.path(trainer), self.columns, rows)

    def add(
        self, trainer: pl.Trainer, epoch: int, rows: Iterable[Mapping[str, object]], step: int | None = None
    ) -> None:
        """Append rows of the additional columns; start the table if necessary.

        Epochs (finished) and steps are those of the model that the rows describe; None for the trainer's steps.
        """
        if not _writes(trainer):
            return
        if not self.path(trainer).is_file():
            write_table(self.path(trainer), self.columns, self.rows(trainer))
        position = {"epoch": epoch, "step": trainer.global_step if step is None else step}
        append_rows(self.path(trainer), self.columns, ({**position, **row} for row in rows))

    def replace(self, trainer: pl.Trainer, rows: Iterable[Mapping[str, object]]) -> None:
        """Replace the table's rows of the model with those from a test or prediction."""
        if not _writes(trainer):
            return
        epoch, step = trained_for(trainer)
        table: list[dict[str, object]] = [
            dict(row) for row in self.rows(trainer) if (float(row["epoch"]), float(row["step"])) != (epoch, step)
        ]
        table += [{"epoch": epoch, "step": step, **row} for row in rows]
        write_table(self.path(trainer), self.columns, sorted(table, key=lambda row: float(str(row["step"]))))

    def rows(self, trainer: pl.Trainer) -> list[dict[str, str]]:
        """Read the table so far, up to an incomplete row, columns as text; no rows if the columns differ."""
        path = self.path(trainer)
        table = load_table(path if path.is_file() else place_of(path))
        if table.torn is not None:
            log.warning("%s is incomplete in line %d: dropping that line and all after it.", place_of(path), table.torn)
        if table.columns and set(table.columns) != set(self.columns):
            log.warning("%s has columns other than %s: starting over.", self.path(trainer), ", ".join(self.columns))
            return []
        # A killed process may leave a row without its position; the steps of all rows after it are unknown.
        return list(takewhile(lambda row: all(row[name] for name in POSITION), table.as_dicts()))

    def publish(self, trainer: pl.Trainer) -> None:
        """Pass the whole table to the run's trackers."""
        if _writes(trainer):
            log_table(trainer, self.name, self.rows(trainer))

    def log(self, trainer: pl.Trainer, values: Mapping[str, float]) -> None:
        """Send numbers to every logger as `NAME/KEY`, at the last finished step."""
        self._send(trainer, trainer.loggers, values)

    def log_layers(self, trainer: pl.Trainer, rows: Iterable[Mapping[str, Any]], draw: bool) -> None:
        """Send measures of layers to every logger as `NAME/MEASURE/layer_LAYER`.

        TensorBoard, which has a card for each such name, gets a figure per measure instead, layers by epochs, if
        `draw`. The rows (layer, measure and value) are already in the table.
        """
        rows = list(rows)
        values = {f"{row['measure']}/layer_{row['layer']}": row["value"] for row in rows}
        self._send(trainer, [one for one in trainer.loggers if not isinstance(one, TensorBoardLogger)], values)
        boards = [one for one in trainer.loggers if isinstance(one, TensorBoardLogger)]
        if not draw or not boards or not _writes(trainer):
            return
        history = pd.DataFrame(self.rows(trainer))
        for measure in dict.fromkeys(str(row["measure"]) for row in rows):
            values_of = history[history["measure"] == measure].astype({"epoch": int, "layer": int, "value": float})
            table = values_of.pivot_table(index="layer", columns="epoch", values="value")
            figure = heatmap_figure(table.to_numpy(), table.index, table.columns, "layer", "finished epochs", measure)
            for board in boards:
                board.experiment.add_figure(f"{self.name}/{measure}", figure, logged_step(trainer))

    def _send(self, trainer: pl.Trainer, loggers: Iterable[Any], values: Mapping[str, float]) -> None:
        named = {f"{self.name}/{key}": value for key, value in values.items()}
        for logger in loggers:
            logger.log_metrics(named, step=logged_step(trainer))


def _writes(trainer: pl.Trainer) -> bool:
    return trainer.is_global_zero and not getattr(trainer, "fast_dev_run", False)


def trained_for(trainer: pl.Trainer) -> tuple[int, int]:
    """Return the epochs and steps that the tested model was trained for: its checkpoint's, else this trainer's.

    A trainer that only tests reads nothing but the weights of a checkpoint, so its own counters stay at 0. Epochs are
    counted when they start: a checkpoint is written within its epoch, which is not marked as finished yet.
    """
    if trainer.ckpt_path is None:
        return trainer.current_epoch, trainer.global_step
    path = Path(trainer.ckpt_path)
    return _position(path, path.stat().st_mtime_ns if path.is_file() else 0)


@lru_cache(maxsize=1)  # every diagnostic of a test calls this, and reading and verifying a checkpoint may take seconds
def _position(path: Path, changed: int) -> tuple[int, int]:
    checkpoint = load_checkpoint(path)
    return checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["started"], checkpoint["global_step"]
