"""Random states in checkpoints, so that a continued run draws what the uninterrupted one would have drawn."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, distributed


def capture() -> dict[str, Any]:
    """States of Python's, NumPy's and torch's generators as tensors and plain values."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore(state: dict[str, Any]) -> None:
    """Put the generators back to a captured state."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, _cpu(keys).numpy().astype(np.uint32), *rest))
    torch.set_rng_state(_cpu(state["torch"]))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(_cpu(state["cuda"]))


def _cpu(tensor: Tensor) -> Tensor:
    return tensor.cpu()


class RandomState(pl.Callback):
    """Stores the random state of every rank and restores it when training goes on."""

    def __init__(self) -> None:
        self._restored: list[dict[str, Any]] | None = None

    def state_dict(self) -> dict[str, Any]:
        """States by rank; every rank takes part, since Lightning collects a checkpoint on all of them."""
        own = capture()
        if distributed.is_available() and distributed.is_initialized():
            states: list[dict[str, Any]] = [{} for _ in range(distributed.get_world_size())]
            distributed.all_gather_object(states, own)
        else:
            states = [own]
        return {"ranks": states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the states until training starts: building workers and optimizers may draw numbers before."""
        self._restored = state_dict["ranks"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Restore, if this run continues one with as many ranks."""
        if self._restored is not None and len(self._restored) == trainer.world_size:
            restore(self._restored[trainer.global_rank])
        elif self._restored is not None:
            pl.utilities.rank_zero_warn(
                f"The checkpoint was written by {len(self._restored)} processes and {trainer.world_size} go on: random "
                "numbers start afresh, so results differ from an uninterrupted run."
            )
        self._restored = None
