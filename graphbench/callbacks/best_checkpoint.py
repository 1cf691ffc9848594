"""The checkpoint of the best epoch, which a run keeps when its folder moves."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor

log = logging.getLogger(__name__)


class BestCheckpoint(ModelCheckpoint):
    """`ModelCheckpoint` that goes on comparing with its best epoch wherever the run lies when it is continued.

    Lightning forgets the best score when the folder has another name than before, and so the next epoch, however bad,
    takes the place of the best one. Paths in a checkpoint are read as names in the folder of this callback; where the
    best checkpoint is not there any more, the next epoch is the best.
    """

    _trainer: pl.Trainer | None = None
    #: Whether another `ModelCheckpoint` of the run has Lightning's key, which both would write to.
    shared_key: bool = False

    @property
    def state_key(self) -> str:
        """That of Lightning's own callback, which runs had before this one, unless another callback has it."""
        return super().state_key if self.shared_key else self.lightning_key

    @property
    def lightning_key(self) -> str:
        """The key that a `ModelCheckpoint` of the same options has."""
        return super().state_key.replace(type(self).__qualname__, ModelCheckpoint.__qualname__, 1)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Remember the trainer, whose ranks must decide alike."""
        self._trainer = trainer
        super().setup(trainer, pl_module, stage)

    def check_monitor_top_k(self, trainer: pl.Trainer, current: Tensor | None = None) -> bool:
        """Whether an epoch with this score is to be written; all processes have the same score."""
        if current is not None and bool(current.isnan()):
            return False
        return super().check_monitor_top_k(trainer, current)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the best score, and its path as it is now."""
        state = dict(state_dict)
        for name in ("best_model_path", "kth_best_model_path", "last_model_path"):
            state[name] = self._here(state.get(name, ""))
        state["best_k_models"] = {self._here(path): score for path, score in state.get("best_k_models", {}).items()}
        there = not state["best_model_path"] or Path(state["best_model_path"]).is_file()
        if self._trainer is not None:
            there = self._trainer.strategy.broadcast(there)
        if there:
            super().load_state_dict(state | {"dirpath": self.dirpath})
        else:
            log.warning("The best checkpoint %s is gone: the next epoch counts as the best.", state["best_model_path"])

    def _here(self, path: str) -> str:
        return str(Path(self.dirpath or "") / Path(path).name) if path else ""
