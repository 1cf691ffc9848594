"""Training without a validation part: all epochs run, and the weights after the last one count."""

from __future__ import annotations

import logging
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint

from graphbench.errors import BadInput

log = logging.getLogger(__name__)


class NoValidation(pl.Callback):
    """Take what selects or stops by validation scores out of a fit whose data have no validation part.

    Early stopping and checkpoints of the best epoch are left out, and a line says so; anything else that needs
    validation scores is refused. Data with a validation part are trained on as they are.
    """

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Look at the data, which are open by now.

        Raises:
            BadInput: a callback or the schedule needs validation scores.
        """
        data: Any = getattr(trainer, "datamodule", None)
        if stage != "fit" or not getattr(data, "is_empty", lambda split: False)("val"):
            return
        # Lightning then runs no validation and asks for no loader.
        trainer.limit_val_batches = 0
        callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
        left = [one for one in callbacks if isinstance(one, (EarlyStopping, ModelCheckpoint)) and _watches(one)]
        remaining = [one for one in callbacks if one not in left]
        needing = [one for one in remaining if _watches(one) or "val" in (getattr(one, "splits", None) or ())]
        if needing:
            raise BadInput(
                f"{type(needing[0]).__name__} needs scores of the validation part, which has no row here "
                "(data.fractions). Leave it out, or give validation a share."
            )
        if getattr(getattr(pl_module, "schedule", None), "name", "") == "plateau":
            raise BadInput(
                "--model.schedule.name plateau follows scores of the validation part, which has no row here "
                "(data.fractions). Take another schedule, such as cosine, or give validation a share."
            )
        trainer.callbacks = remaining  # type: ignore[attr-defined]
        if trainer.is_global_zero:
            named = dict.fromkeys(_called(one) for one in left)
            log.warning(
                "No validation part: training ends after %s, and the weights of its end count (checkpoints/last.ckpt)."
                "%s", _end(trainer), f" Left out: {', '.join(named)}." if named else "",
            )  # fmt: skip


def _watches(callback: pl.Callback) -> bool:
    """Tell whether a callback follows a score of the validation part."""
    return str(getattr(callback, "monitor", None) or "").startswith("val/")


def _called(callback: pl.Callback) -> str:
    if isinstance(callback, ModelCheckpoint):
        return "the checkpoint of the best epoch"
    return f"{type(callback).__name__} on {getattr(callback, 'monitor', '')}"


def _end(trainer: pl.Trainer) -> str:
    """Name every limit that is set, of which the first that is reached ends the training."""
    limits = ((trainer.max_epochs, "epoch"), (trainer.max_steps, "step"))
    named = [f"{limit:,} {unit}{'s' * (limit != 1)}" for limit, unit in limits if limit is not None and limit >= 0]
    return " or ".join(named) or "max_time"
