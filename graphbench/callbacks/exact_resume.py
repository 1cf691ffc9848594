"""Add to checkpoints what Lightning omits, so that a continued run equals an uninterrupted one."""

from __future__ import annotations

import random
from typing import Any, cast

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelPruning
from torch import Tensor
from torchmetrics import Metric

from graphbench.training.distributed import gather_objects
from graphbench.training.lightning_internals import begin_next_epoch, count_batch_once


def capture() -> dict[str, Any]:
    """Return the states of Python's, NumPy's and torch's generators as tensors and plain values."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    state: dict[str, Any] = {
        "python": random.getstate(),
        # As int64, since not every version of torch has uint32.
        "numpy": (kind, torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_initialized():  # a run on the CPU does not touch an available GPU
        state["cuda"] = torch.cuda.get_rng_state()
    if torch.backends.mps.is_available():
        state["mps"] = torch.mps.get_rng_state()
    return state


def restore(state: dict[str, Any]) -> None:
    """Restore the generators to a captured state."""
    # Generators accept states only on the CPU, and `map_location` may have moved them with the weights.
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.cpu().numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"].cpu())
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"].cpu())


def capture_generators(module: pl.LightningModule | None) -> dict[str, Tensor]:
    """Return the states of layers' own generators, in their attribute `generator`.

    A layer may also keep it in the weights, but these are from one rank, and ranks draw as their graphs need.
    """
    modules = module.named_modules() if module is not None else ()
    owned = {name: getattr(layer, "generator", None) for name, layer in modules}
    return {name: one.get_state() for name, one in owned.items() if isinstance(one, torch.Generator)}


def restore_generators(module: pl.LightningModule, states: dict[str, Tensor]) -> None:
    """Restore the layers' generators to captured states."""
    layers = dict(module.named_modules())
    for name in states.keys() & layers.keys():
        cast(torch.Generator, layers[name].generator).set_state(states[name].cpu())


def capture_scores(module: pl.LightningModule | None) -> dict[str, Any]:
    """Return the state of the training split's metrics in the epoch so far; empty for a module without them."""
    scores = getattr(module, "train_scores", None)
    if scores is None:
        return {}
    metrics = {name: metric for name, metric in scores.named_modules() if isinstance(metric, Metric)}
    cpu = torch.device("cpu")
    return {
        name: {key: _moved(value, cpu) for key, value in metric.metric_state.items()}
        for name, metric in metrics.items()
        if metric.update_count
    }


def restore_scores(module: pl.LightningModule, states: dict[str, Any]) -> None:
    """Restore the metrics of the training split to a captured state."""
    scores = getattr(module, "train_scores", None)
    metrics = dict(scores.named_modules()) if scores is not None else {}
    for name in states.keys() & metrics.keys():
        metric = metrics[name]
        for key, value in states[name].items():
            setattr(metric, key, _moved(value, module.device))
        metric._update_count = 1  # only whether there was an update matters


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to(device).clone()
    return [_moved(item, device) for item in value] if isinstance(value, list) else value


def _watching(trainer: pl.Trainer) -> list[Any]:
    """Return schedules that monitor a score."""
    return [config for config in trainer.lr_scheduler_configs if config.reduce_on_plateau]


def _watched_scores(trainer: pl.Trainer | None) -> dict[str, float]:
    """Return the scores that schedules monitor, if an epoch is over and they have not received them; else empty."""
    if trainer is None:
        return {}
    progress: Any = trainer.fit_loop.epoch_progress.total
    if progress.processed == progress.completed:  # they differ at the end of an epoch, before schedules step
        return {}
    scores, epoch = trainer.callback_metrics, trainer.current_epoch + 1
    due = [one for one in _watching(trainer) if one.interval == "epoch" and epoch % one.frequency == 0]
    return {one.monitor: float(scores[one.monitor]) for one in due if one.monitor in scores}


class ExactResume(pl.Callback):
    """Store what decides the coming steps and the scores of the epoch so far, and restore it when training resumes: the
    random state of every rank, the metrics of the training split, and the position in the training data.

    Lightning also stores the position, but does not restore it if the length of the run was queried before the
    checkpoint was read, as schedules do. A schedule that monitors a score receives that of the epoch at whose end the
    checkpoint was written: Lightning writes it before the schedule steps, and omits this step when resuming.
    """

    def __init__(self) -> None:
        self._restored: list[dict[str, Any]] | None = None
        self._position: dict[str, Any] | None = None
        self._watched: dict[str, float] = {}
        self._trainer: pl.Trainer | None = None

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Remember the trainer whose data are read."""
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        """Return states by rank; all ranks must call this, as Lightning collects a checkpoint on all of them."""
        module = self._trainer.lightning_module if self._trainer else None
        state = capture() | {"scores": capture_scores(module), "generators": capture_generators(module)}
        loader: Any = self._trainer.train_dataloader if self._trainer is not None else None
        position = loader.state_dict() if hasattr(loader, "state_dict") else None
        return {"ranks": gather_objects(state), "position": position, "watched": _watched_scores(self._trainer)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the states until training starts: building workers and optimizers may sample numbers before."""
        self._restored, self._position = state_dict["ranks"], state_dict["position"]
        self._watched = dict(state_dict.get("watched", {}))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Restore; random states only if the number of ranks is that of the checkpoint."""
        begin_next_epoch(trainer)
        count_batch_once(trainer)
        loader: Any = trainer.train_dataloader
        if self._position is not None and hasattr(loader, "load_state_dict"):
            loader.load_state_dict(self._position)
        # Lightning writes the checkpoint before these schedules step, and omits this step when resuming.
        for config in _watching(trainer):
            if config.monitor in self._watched:
                pl_module.lr_scheduler_step(config.scheduler, torch.tensor(self._watched[config.monitor]))
        if self._restored is not None and len(self._restored) == trainer.world_size:
            state = self._restored[trainer.global_rank]
            restore(state)
            restore_scores(pl_module, state.get("scores", {}))
            restore_generators(pl_module, state.get("generators", {}))
        elif self._restored is not None:
            pl.utilities.rank_zero_warn(
                f"The checkpoint of {len(self._restored)} processes is resumed by {trainer.world_size}: random numbers "
                "start again, so results differ from an uninterrupted run."
            )
        pruning = [one for one in trainer.callbacks if isinstance(one, ModelPruning)]  # type: ignore[attr-defined]
        if self._restored is not None and pruning:
            pl.utilities.rank_zero_warn(
                "ModelPruning: Lightning's checkpoints hold pruned weights without their masks. These weights are "
                "trained again until the next pruning, so results differ from an uninterrupted run."
            )
        self._restored = self._position = None
        self._watched = {}
