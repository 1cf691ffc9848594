"""Train without validation: all epochs run, and the weights after the last one count."""

from __future__ import annotations

import logging
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint

from graphbench.errors import BadInput

log = logging.getLogger(__name__)


class NoValidation(pl.Callback):
    """Remove what selects or stops by validation scores from a fit that has none.

    That is a fit whose data have no validation part, that uses no batch of it, or that stops before its first
    validation. Early stopping and checkpoints of the best epoch are removed, which is logged; anything else that needs
    validation scores is refused. Other fits are unchanged.
    """

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Check the data, which are open by now."""
        why, remedy = _reason(trainer)
        if stage != "fit" or not why:
            return
        # Lightning then runs no validation and requests no loader.
        trainer.limit_val_batches = 0
        callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
        left = [one for one in callbacks if isinstance(one, (EarlyStopping, ModelCheckpoint)) and _watches(one)]
        remaining = [one for one in callbacks if one not in left]
        needing = [one for one in remaining if _watches(one) or "val" in (getattr(one, "splits", None) or ())]
        if needing:
            raise BadInput(
                f"{type(needing[0]).__name__} needs scores of the validation part, but {why}. Leave it out, or "
                f"{remedy}."
            )
        if getattr(getattr(pl_module, "schedule", None), "name", "") == "plateau":
            raise BadInput(
                f"--model.schedule.name plateau follows scores of the validation part, but {why}. Use another "
                f"schedule, such as cosine, or {remedy}."
            )
        trainer.callbacks = remaining  # type: ignore[attr-defined]
        if trainer.is_global_zero:
            named = dict.fromkeys(_called(one) for one in left)
            log.warning(
                "No validation, since %s: training ends after %s, and its final weights are used "
                "(checkpoints/last.ckpt).%s", why, _end(trainer), f" Left out: {', '.join(named)}." if named else "",
            )  # fmt: skip


def _reason(trainer: pl.Trainer) -> tuple[str, str]:
    """Return why a fit does not validate, and what would change that; two empty texts if it does."""
    data: Any = getattr(trainer, "datamodule", None)
    if getattr(data, "is_empty", lambda split: False)("val"):
        return "the data have no row in it (data.fractions)", "give validation a share"
    if trainer.limit_val_batches == 0:
        return "--trainer.limit_val_batches is 0", "raise that"
    every, last = trainer.check_val_every_n_epoch, trainer.max_epochs
    if every is not None and last is not None and 0 < last < every:
        run = f"the run has {last} epoch{'s' * (last != 1)}"
        return f"--trainer.check_val_every_n_epoch is {every} and {run}", "lower that"
    return "", ""


def _watches(callback: pl.Callback) -> bool:
    """Return whether a callback monitors a score of the validation part."""
    return str(getattr(callback, "monitor", None) or "").startswith("val/")


def _called(callback: pl.Callback) -> str:
    if isinstance(callback, ModelCheckpoint):
        return "the checkpoint of the best epoch"
    return f"{type(callback).__name__} on {getattr(callback, 'monitor', '')}"


def _end(trainer: pl.Trainer) -> str:
    """Name every limit that is set; the first one reached ends the training."""
    limits = ((trainer.max_epochs, "epoch"), (trainer.max_steps, "step"))
    named = [f"{limit:,} {unit}{'s' * (limit != 1)}" for limit, unit in limits if limit is not None and limit >= 0]
    return " or ".join(named) or "max_time"
