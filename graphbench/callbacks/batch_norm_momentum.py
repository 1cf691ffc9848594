"""Decrease the momentum of batch norms during training, as in published recipes for point clouds."""

from __future__ import annotations

from typing import Any, Literal, get_args

import pytorch_lightning as pl
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from graphbench.errors import BadInput, check_choice, check_range

Interval = Literal["step", "epoch"]


class BatchNormMomentum(pl.Callback):
    """Set the momentum of batch norms to `max(floor, momentum * gamma ** (e // step_size))` before epoch or step e.

    Momentum is PyTorch's: the share of a batch in the running mean and variance. TensorFlow's "decay" is 1 minus it.
    PointNet begins with 0.5 and halves it with the learning rate, down to 0.01 (Qi et al., CVPR 2017, supplementary C).
    It depends only on the number of the epoch or step, so a resumed run has the momentum of an uninterrupted one.

    Args:
        momentum: initial value.
        gamma: factor of a drop; 1 for none.
        step_size: number of intervals between two drops.
        interval: what `step_size` counts: optimizer steps or epochs.
        floor: minimum.

    Raises:
        BadInput: an option is out of range, or the model has no batch norm (when the fit begins).

    Examples:
        >>> falling = BatchNormMomentum(0.5, gamma=0.5, step_size=20, floor=0.01)
        >>> [falling.momentum_at(epoch) for epoch in (0, 19, 20, 40, 400)]
        [0.5, 0.5, 0.25, 0.125, 0.01]
    """

    def __init__(
        self, momentum: float, gamma: float = 1.0, step_size: int = 1, interval: Interval = "epoch", floor: float = 0.0
    ) -> None:
        check_range("BatchNormMomentum: momentum", momentum, above=0, at_most=1)
        check_range("BatchNormMomentum: gamma", gamma, above=0, at_most=1)
        check_range("BatchNormMomentum: step_size", step_size, at_least=1, whole=True)
        check_choice("BatchNormMomentum: interval", interval, get_args(Interval))
        check_range("BatchNormMomentum: floor", floor, at_least=0, at_most=momentum)
        self.momentum, self.gamma, self.step_size = momentum, gamma, step_size
        self.interval, self.floor = interval, floor

    def momentum_at(self, count: int) -> float:
        """Return the momentum in an interval, counted from 0."""
        return max(self.floor, self.momentum * self.gamma ** (count // self.step_size))

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check that the model has batch norms."""
        if not any(isinstance(module, _BatchNorm) for module in pl_module.modules()):
            raise BadInput("BatchNormMomentum: the model has no batch norm; leave this callback out.")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Set it if a run resumes within an epoch, whose start Lightning skips."""
        self.on_train_epoch_start(trainer, pl_module)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Set it for the epoch."""
        if self.interval == "epoch":
            self._set(pl_module, trainer.current_epoch)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Set it for the step."""
        if self.interval == "step":
            self._set(pl_module, trainer.global_step)

    def _set(self, model: nn.Module, count: int) -> None:
        value = self.momentum_at(count)
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                module.momentum = value
