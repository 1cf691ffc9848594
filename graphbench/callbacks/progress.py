"""The progress bar of a terminal."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import RichProgressBar, Timer


class RunProgressBar(RichProgressBar):
    """Lightning's bar with the loss, the time of the whole run and what is left of it, and epochs counted from 1.

    The time is that of the run's `Timer`, which goes on counting in a continued run. What is left is estimated from
    the share of the steps that are done; it is not shown for a run without an end.
    """

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock of a run without a `Timer`."""
        self._began = time.monotonic()

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Any]:
        """What stands beside the bar."""
        items: dict[str, Any] = dict(super().get_metrics(trainer, pl_module))
        items.pop("v_num", None)
        if (loss := trainer.callback_metrics.get("train/loss_step")) is not None:
            items = {"loss": float(loss)} | items
        if trainer.training:
            items["total"] = self._times(trainer)
        return items

    def _times(self, trainer: pl.Trainer) -> str:
        timer = next((callback for callback in trainer.callbacks if isinstance(callback, Timer)), None)  # type: ignore[attr-defined]
        elapsed = timer.time_elapsed() if timer is not None else time.monotonic() - self._began
        steps = trainer.estimated_stepping_batches
        shown = _clock(elapsed)
        if trainer.global_step and 0 < steps < float("inf"):
            shown += f", {_clock(elapsed * (steps / trainer.global_step - 1))} left"
        return shown

    def _get_train_description(self, current_epoch: int) -> str:
        """Lightning counts from 0 and names the last epoch instead of their number."""
        total = self.trainer.max_epochs
        described = f"Epoch {current_epoch + 1}" + (f"/{total}" if total is not None and total > 0 else "")
        return described.ljust(len(self.validation_description))


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=max(0, round(seconds))))
