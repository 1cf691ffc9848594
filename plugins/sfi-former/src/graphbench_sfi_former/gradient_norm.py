"""The norm of all gradients, step by step."""

from __future__ import annotations

import pytorch_lightning as pl
import torch
from torch import nn

from graphbench.callbacks import DiagnosticTable


class GradientNorm(pl.Callback):
    """Writes the norm of all gradients before clipping, of every optimizer step, to `diagnostics/gradient_norm.csv`.

    A norm that jumps by orders of magnitude from one step to the next is a sign of arithmetic that overflows or
    cancels, which clipping hides from the loss.

    Examples:
        >>> from graphbench_sfi_former import GradientNorm
        >>> GradientNorm().columns
        ('epoch', 'step', 'norm')
    """

    def __init__(self) -> None:
        self._table = DiagnosticTable("gradient_norm", ["norm"])

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the table: epochs finished, number of the step (from 1), norm."""
        return self._table.columns

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin the table, or keep what a run that goes on had written."""
        self._table.start(trainer)

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Add a row; Lightning clips after this."""
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        norm = float(nn.utils.get_total_norm(gradients)) if gradients else 0.0
        self._table.add(trainer, trainer.current_epoch, [{"norm": norm}], step=trainer.global_step + 1)
