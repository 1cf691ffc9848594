"""Show a training: a line per epoch, a bar in a terminal, and a forecast; lay out TensorBoard's charts."""

from __future__ import annotations

import logging
import math
import re
import statistics
import time
from functools import partial
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint, RichProgressBar, Timer
from pytorch_lightning.callbacks.progress.rich_progress import CustomTimeColumn
from pytorch_lightning.loggers import TensorBoardLogger
from rich.progress import BarColumn
from rich.table import Column

from graphbench.training.lightning_internals import metrics_column

log = logging.getLogger(__name__)
_SPEED = "time/graphs_per_s"
#: Columns of a terminal of default width.
_COLUMNS = 80


class RunProgressBar(RichProgressBar):
    """Lightning's bar in one line: epochs counted from 1, the loss, and the time left of the whole run.

    The time left follows from the run's `Timer`, which keeps counting in a continued run, and the share of finished
    batches. It is not shown for a run without an end. Scores are in the lines of `EpochLines` above.
    """

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock of a run without a `Timer`, which does not know the time before it was continued."""
        super().on_train_start(trainer, pl_module)
        self._began, self._before = time.monotonic(), trainer.fit_loop.total_batch_idx + 1

    def configure_columns(self, trainer: pl.Trainer) -> list[Any]:
        """Return Lightning's columns without the times of a single epoch, which do not fit into 80 columns.

        Only the bar itself shrinks in a narrow terminal; otherwise rich wraps the values next to it.
        """
        columns = [one for one in super().configure_columns(trainer) if not isinstance(one, CustomTimeColumn)]
        for column in (*columns, metrics_column(self)):  # Lightning appends the latter
            if column is not None and not isinstance(column, BarColumn):
                column.get_table_column = partial(Column, no_wrap=True)
        return columns

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Any]:
        """Return the values next to the bar."""
        loss = trainer.callback_metrics.get("train/loss_step")
        items: dict[str, Any] = {} if loss is None else {"loss": f"{float(loss):.4g}"}
        left = self._left(trainer) if trainer.training else None
        return items if left is None else items | {"left": left}

    def _left(self, trainer: pl.Trainer) -> str | None:
        timer = next((callback for callback in trainer.callbacks if isinstance(callback, Timer)), None)  # type: ignore[attr-defined]
        done = trainer.fit_loop.total_batch_idx + 1  # batches, as steps may differ between epochs
        if timer is not None:
            elapsed = timer.time_elapsed()
        else:
            elapsed, done = time.monotonic() - self._began, done - self._before
        left = _batches_left(trainer, trainer.fit_loop.batch_idx + 1)
        until = min(elapsed * left / done if done > 0 else math.inf, _until_max_time(trainer))
        if not trainer.global_step or math.isinf(until):
            return None
        seconds = max(0, round(until))
        return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"

    def _get_train_description(self, current_epoch: int) -> str:
        """Count from 1; Lightning counts from 0 and shows the last epoch instead of the number of epochs."""
        total = self.trainer.max_epochs
        described = f"Epoch {current_epoch + 1}" + (f"/{total}" if total is not None and total > 0 else "")
        # As wide as that of a validation, so that the bars are aligned.
        return described.ljust(len(self.validation_description))


class EpochLines(Checkpoint):
    """Log epoch, losses, the benchmark's metric, throughput and time since the start, within 80 columns.

    If there is no room, throughput and then the validation loss are omitted; the latter also if it equals the metric.
    metrics.csv has both. It is a `Checkpoint` because Lightning calls those last in an epoch, when the module has
    logged its scores.
    """

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock."""
        self._start = time.perf_counter()
        self._validated = False

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note that this epoch has scores."""
        self._validated = not trainer.sanity_checking

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log one line."""
        if not trainer.is_global_zero:
            return
        # Lightning keeps the scores of the last validation, which may be that of an earlier epoch.
        metrics = trainer.callback_metrics.items()
        logged = {name: float(value) for name, value in metrics if self._validated or not name.startswith("val/")}
        self._validated = False
        monitor = getattr(pl_module, "monitor", "val/loss")
        parts = {name: f"{name} {logged[name]:.4g}" for name in ("train/loss", "val/loss", monitor) if name in logged}
        shown = {name: part.split()[-1] for name, part in parts.items()}
        if monitor != "val/loss" and shown.get("val/loss") == shown.get(monitor):  # such as MAE if trained with L1
            parts.pop("val/loss", None)
        if _SPEED in logged:
            parts[_SPEED] = f"{logged[_SPEED]:,.0f} graphs/s"
        total = trainer.max_epochs if trainer.max_epochs and trainer.max_epochs > 0 else "?"  # -1: no end
        epoch, elapsed = f"epoch {trainer.current_epoch + 1}/{total}", f"{time.perf_counter() - self._start:.0f} s"
        for name in (_SPEED, "val/loss"):
            if len("  ".join((epoch, *parts.values(), elapsed))) > _COLUMNS:
                parts.pop(name, None)
        log.info("%s", "  ".join((epoch, *parts.values(), elapsed)))


class FirstBoard(pl.Callback):
    """Lay out TensorBoard's tab "Custom Scalars": loss, metric and gap, each in one chart with both splits."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the layout into the logs, once for each part of a run."""
        metric = getattr(pl_module, "monitor", "val/loss").partition("/")[2]
        charts = {name: ["Multiline", [rf"(train|val)/{re.escape(name)}$"]] for name in ("loss", metric)}
        charts["gap"] = ["Multiline", [r"train_test_gap/"]]
        for logger in trainer.loggers if trainer.is_global_zero else ():
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_custom_scalars({"training and validation": charts})


#: First steps, not counted: they compile kernels and allocate memory.
_UNCOUNTED = 3
#: Steps after which the time is logged, and seconds after which fewer are enough.
_ENOUGH, _FEW, _PATIENCE = 20, 3, 5.0


class Forecast(pl.Callback):
    """Log, from the first steps of a training, how long an epoch and the rest of the run will take.

    A step counts from the end of the previous one, including waiting for data. The forecast uses the median of twenty
    steps, or of as many as fit into five seconds, and excludes validation. Nothing is logged if the length of an epoch
    is unknown or if the training is over before.
    """

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Forget the steps of another training, and start the clock if a run resumes within an epoch."""
        self._seconds: list[float] = []
        self._last = time.perf_counter()
        self._done = not trainer.is_global_zero or not math.isfinite(trainer.num_training_batches)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock: the time between two epochs is not a step."""
        self._last = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a step, and log when there are enough."""
        if self._done:
            return
        before, self._last = self._last, time.perf_counter()
        self._seconds.append(self._last - before)
        counted = self._seconds[_UNCOUNTED:]
        if len(counted) >= _ENOUGH or (len(counted) >= _FEW and sum(counted) >= _PATIENCE):
            self._tell(trainer, statistics.median(counted), batch_idx + 1)

    def _tell(self, trainer: pl.Trainer, step: float, done: int) -> None:
        self._done = True
        in_epoch, left = int(trainer.num_training_batches), _batches_left(trainer, done)
        epoch_time = f"An epoch of {in_epoch:,} batches takes about {format_time(in_epoch * step)}"
        seconds = min(left * step, _until_max_time(trainer))
        rest = f", the rest of the run about {format_time(seconds)}" if math.isfinite(seconds) else ""
        log.info("%s%s, without validation", epoch_time, rest)


def _batches_left(trainer: pl.Trainer, done: int) -> float:
    """Return the batches to train, of which `done` of this epoch are trained; infinite for a run without an end."""
    left, epochs = math.inf, trainer.max_epochs
    if epochs is not None and epochs > 0 and math.isfinite(trainer.num_training_batches):
        left = (epochs - trainer.current_epoch) * trainer.num_training_batches - done
    if trainer.max_steps > 0:
        left = min(left, (trainer.max_steps - trainer.global_step) * trainer.accumulate_grad_batches)
    return left


def _until_max_time(trainer: pl.Trainer) -> float:
    """Return the seconds until `trainer.max_time`, or a `Timer`, ends the run; infinite without either."""
    timers = [one for one in trainer.callbacks if isinstance(one, Timer)]  # type: ignore[attr-defined]
    left = [timer.time_remaining() for timer in timers]
    return min((one for one in left if one is not None), default=math.inf)


def format_time(seconds: float) -> str:
    """Format a time with its two largest units, or seconds with one digit.

    Examples:
        >>> format_time(2.53), format_time(80.4), format_time(7_260), format_time(200_000)
        ('2.5 s', '1 min 20 s', '2 h 1 min', '2 d 7 h')
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, smaller, other in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // smaller} {other}"
    return f"{whole} s"
