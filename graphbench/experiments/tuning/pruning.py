"""End trials whose validation scores fall behind those of others."""

from __future__ import annotations

from typing import Protocol

import pytorch_lightning as pl
from torch import Tensor


class Reported(Protocol):
    """The methods of a trial of Optuna that the callback needs."""

    def report(self, value: float, step: int) -> None:
        """Record a score."""

    def should_prune(self) -> bool:
        """Tell whether the trial falls behind."""

    def set_user_attr(self, key: str, value: object) -> None:
        """Record an attribute."""


class PruneTrial(pl.Callback):
    """Report the validation score after every epoch that has one, and end the fit if the study prunes the trial.

    Args:
        trial: of Optuna.
        monitor: logged name of the score.
    """

    def __init__(self, trial: Reported, monitor: str) -> None:
        self._trial, self.monitor = trial, monitor
        self._validated = False
        #: Whether the study ended the trial.
        self.pruned = False

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Remember that this epoch has a score."""
        self._validated = not trainer.sanity_checking

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Report the score, and stop a pruned trial."""
        score = trainer.callback_metrics.get(self.monitor)
        if not self._validated or score is None:
            return
        self._validated = False
        self._trial.report(float(score) if isinstance(score, Tensor) else score, step=trainer.current_epoch)
        if self._trial.should_prune():
            self._trial.set_user_attr("pruned_in_epoch", trainer.current_epoch)  # before the fit writes its scores
            self.pruned = True
            trainer.should_stop = True
