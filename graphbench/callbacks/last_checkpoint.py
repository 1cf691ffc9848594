"""The checkpoint to go on from: every epoch, and once more when the process is asked to stop."""

from __future__ import annotations

import logging
from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.utilities.exceptions import SIGTERMException

from graphbench.runs import RunFolder

log = logging.getLogger(__name__)


class LastCheckpoint(Checkpoint):
    """Writes the run's `checkpoints/last.ckpt` at the end of every epoch, after `every_n_steps` steps, and on SIGTERM.

    Args:
        every_n_steps: also write after so many optimizer steps; 0 for epochs only. For epochs of hours.
    """

    def __init__(self, every_n_steps: int = 0) -> None:
        self.every_n_steps = every_n_steps

    def _save(self, trainer: pl.Trainer) -> None:
        for logger in trainer.loggers:  # what was logged up to here must not be lost while this checkpoint stays
            logger.save()
        trainer.save_checkpoint(RunFolder(Path(trainer.default_root_dir)).last, weights_only=False)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Write within an epoch, if asked to."""
        if self.every_n_steps and trainer.global_step and trainer.global_step % self.every_n_steps == 0:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write after validation and after the best checkpoint was chosen."""
        self._save(trainer)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """On SIGTERM Lightning stops between two steps, where all state is whole; other errors leave it torn."""
        if isinstance(exception, SIGTERMException) and trainer.training:
            self._save(trainer)
            log.info("SIGTERM in epoch %d: checkpoint written", trainer.current_epoch)
