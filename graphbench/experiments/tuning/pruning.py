"""Stop trials with worse validation scores than others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytorch_lightning as pl
from torch import Tensor

if TYPE_CHECKING:
    from optuna.trial import Trial


class PruneTrial(pl.Callback):
    """Report the validation score after every epoch that has one, and stop the fit if the study prunes the trial.

    Args:
        trial: of Optuna.
        monitor: logged name of the score.
    """

    def __init__(self, trial: Trial, monitor: str) -> None:
        self._trial, self.monitor = trial, monitor
        self._validated = False
        #: Whether the study stopped the trial.
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
