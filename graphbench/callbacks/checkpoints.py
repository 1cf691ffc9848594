"""Write checkpoints of the best and the last epoch, which a run keeps when its folder moves."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint, ModelCheckpoint
from pytorch_lightning.utilities.exceptions import SIGTERMException
from torch import Tensor

from graphbench.callbacks.csv_logger import RunCSVLogger
from graphbench.errors import check_range
from graphbench.runs import RunFolder
from graphbench.training.lightning_internals import epoch_metrics

log = logging.getLogger(__name__)


class BestCheckpoint(ModelCheckpoint):
    """`ModelCheckpoint` that keeps comparing with its best epoch wherever the run is when it is continued.

    Lightning forgets the best score when the folder is renamed, so the next epoch, however bad, replaces the best one.
    Paths in a checkpoint are read as names in the folder of this callback; if the best checkpoint is missing, the next
    epoch is the best. Among epochs with equal scores, which are common for accuracies of small splits, the one with the
    smallest loss on the same split is the best.
    """

    _trainer: pl.Trainer | None = None
    #: Loss of the best epoch, on the split of its score.
    _loss: float | None = None
    #: Whether another `ModelCheckpoint` of the run has Lightning's key, which both would write to.
    shared_key: bool = False

    @property
    def state_key(self) -> str:
        """The key of Lightning's own callback, which earlier runs used, unless another callback has it."""
        return super().state_key if self.shared_key else self.lightning_key

    @property
    def lightning_key(self) -> str:
        """The key of a `ModelCheckpoint` with the same options."""
        return super().state_key.replace(type(self).__qualname__, ModelCheckpoint.__qualname__, 1)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Remember the trainer, whose ranks must agree."""
        self._trainer = trainer
        super().setup(trainer, pl_module, stage)

    def check_monitor_top_k(self, trainer: pl.Trainer, current: Tensor | None = None) -> bool:
        """Return whether to write an epoch with this score; all processes have the same score."""
        # Lightning accepts any score, even NaN, while it has fewer than k checkpoints.
        if current is not None and bool(current.isnan()):
            return False
        is_best = super().check_monitor_top_k(trainer, current)
        loss = trainer.callback_metrics.get(f"{str(self.monitor).partition('/')[0]}/loss")
        equal = current is not None and current == self.best_k_models.get(self.kth_best_model_path)
        if not is_best and equal and loss is not None and self._loss is not None:
            is_best = bool(loss < self._loss)
        if is_best:
            self._loss = None if loss is None else float(loss)
        return is_best

    def state_dict(self) -> dict[str, Any]:
        """Return Lightning's state, and the loss of the best epoch."""
        return super().state_dict() | {"loss": self._loss}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score and its current path."""
        state = dict(state_dict)
        for name in ("best_model_path", "kth_best_model_path", "last_model_path"):
            state[name] = self._here(state.get(name, ""))
        state["best_k_models"] = {self._here(path): score for path, score in state.get("best_k_models", {}).items()}
        exists = not state["best_model_path"] or Path(state["best_model_path"]).is_file()
        if self._trainer is not None:  # the first process decides: others may see a shared folder later
            exists = self._trainer.strategy.broadcast(exists)
        self._loss = state.pop("loss", None) if exists else None
        if exists:
            super().load_state_dict(state | {"dirpath": self.dirpath})
        else:
            log.warning("The best checkpoint %s is missing: the next epoch counts as best.", state["best_model_path"])

    def _here(self, path: str) -> str:
        return str(Path(self.dirpath or "") / Path(path).name) if path else ""


class LastCheckpoint(Checkpoint):
    """Write the run's `checkpoints/last.ckpt` at the end of every epoch, after `every_n_steps` steps, and on SIGTERM.

    The existing file becomes `checkpoints/previous.ckpt`. The checkpoint contains the state of the callbacks before
    this one: in your own `Trainer`, list it after every `ModelCheckpoint`.

    Args:
        every_n_steps: also write after this many optimizer steps, for epochs that take hours; 0 for epochs only.

    Raises:
        BadInput: it is negative.
    """

    def __init__(self, every_n_steps: int = 0) -> None:
        check_range("LastCheckpoint: every_n_steps", every_n_steps, at_least=0, whole=True)
        self.every_n_steps = every_n_steps
        self._saved_at = 0
        self._row: dict[str, float] = {}
        self._restored: dict[str, float] = {}

    def state_dict(self) -> dict[str, Any]:
        """Keep the epoch's row of `metrics.csv`, which Lightning writes later: a kill may occur in between."""
        return {"row": self._row}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the row until there are loggers."""
        self._row = self._restored = dict(state_dict.get("row", {}))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Count steps from here, and log the row that was lost in a kill."""
        self._saved_at = trainer.global_step
        self._log_restored(trainer)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log it if no epoch was left to train."""
        self._log_restored(trainer)

    def _log_restored(self, trainer: pl.Trainer) -> None:
        row, self._restored = dict(self._restored), {}
        table = next((logger for logger in trainer.loggers if isinstance(logger, RunCSVLogger)), None)
        if row and table is not None and trainer.is_global_zero and not table.has(row):
            step = int(row.pop("step"))
            for logger in trainer.loggers:
                logger.log_metrics(row, step)
                logger.save()

    def _save(self, trainer: pl.Trainer) -> None:
        for logger in trainer.loggers:  # logs up to here must not be lost if this checkpoint is kept
            logger.save()
        trainer.save_checkpoint(RunFolder(Path(trainer.default_root_dir)).last, weights_only=False)
        self._saved_at = trainer.global_step

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Write within an epoch if configured.

        Never between batches whose gradients are accumulated, which a checkpoint does not contain; nor at the end of an
        epoch or before a validation, which Lightning would skip when resuming from there.
        """
        if not self.every_n_steps or trainer.global_step // self.every_n_steps == self._saved_at // self.every_n_steps:
            return
        whole = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if whole and not trainer.is_last_batch and not validates_now(trainer, batch_idx):
            self._save(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write after validation and after the best checkpoint was chosen."""
        self._row = {name: float(value) for name, value in epoch_metrics(trainer).items()}
        self._row |= {"epoch": float(trainer.current_epoch + 1), "step": trainer.global_step - 1}
        self._save(trainer)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Write when asked to stop, after the same step on all processes; not on errors, whose state is partial."""
        if isinstance(exception, SIGTERMException) and trainer.training and self._saved_at != trainer.global_step:
            self._save(trainer)
            log.info("Stopped in epoch %d: checkpoint written", trainer.current_epoch + 1)


def validates_now(trainer: pl.Trainer, batch_idx: int) -> bool:
    """Return whether a validation within the epoch follows this batch."""
    every = trainer.val_check_batch
    done = trainer.fit_loop.total_batch_idx if trainer.check_val_every_n_epoch is None else batch_idx
    return isinstance(every, int) and (done + 1) % every == 0
