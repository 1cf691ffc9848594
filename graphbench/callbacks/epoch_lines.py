"""One line per epoch where no progress bar can be drawn (a log file, a pipe)."""

from __future__ import annotations

import logging
import time

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

log = logging.getLogger(__name__)


class EpochLines(Checkpoint):
    """Logs epoch, losses, the benchmark's metric, throughput and time since the start.

    It is a `Checkpoint` for Lightning calls those last in an epoch, when the module has logged its scores.
    """

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """One line."""
        if not trainer.is_global_zero:
            return
        logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
        wanted = ("train/loss", "val/loss", getattr(pl_module, "monitor", ""), "time/graphs_per_s")
        parts = [f"{name} {logged[name]:.4g}" for name in wanted if name in logged]
        total = trainer.max_epochs if trainer.max_epochs and trainer.max_epochs > 0 else "?"
        elapsed = time.perf_counter() - self._start
        log.info("epoch %d/%s  %s  %.0f s", trainer.current_epoch + 1, total, "  ".join(parts), elapsed)
