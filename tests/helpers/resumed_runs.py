"""Runs that are resumed with other options, and the optimizer options of their steps."""

from __future__ import annotations

import contextlib
import shutil

import pytorch_lightning as pl
from command_line import SMALL_MODEL

from graphbench.cli.commands.fit import fit
from graphbench.runs import trust

#: Steps of an epoch: 96 of 120 molecules are trained on.
STEPS = 6
OPTIONS = [
    *SMALL_MODEL,
    "--model.optimizer", "AdamW",
    "--trainer.callbacks+=EarlyStopping",
    "--trainer.callbacks.monitor", "val/MAE",
    "--trainer.callbacks.patience", "50",
    "--trainer.callbacks+=AttentionCapacity",
    "--trainer.callbacks.num_graphs", "4",
    "--trainer.max_epochs", "1",
    "--trainer.logger", "false",  # pictures of the diagnostic on the board take longer than the steps
]  # fmt: skip


class Looked(Exception):
    """Enough steps were recorded."""


class Look(pl.Callback):
    """Records the options of the optimizer at every step, and stops after some.

    Args:
        steps: number of steps; None for all.
        at_end: called before it stops.
    """

    def __init__(self, steps=None, at_end=None):
        self.steps, self.at_end, self.groups, self.trainer = steps, at_end, [], None

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.trainer = trainer
        self.groups.append([{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups])

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if self.steps is not None and len(self.groups) >= self.steps:
            if self.at_end is not None:
                self.at_end(trainer)
            raise Looked


def go_on(begun, tmp_path, *options, steps=None, at_end=None):
    """Resume a copy of a run; return it and what was recorded."""
    run = shutil.copytree(begun, tmp_path / "run", dirs_exist_ok=True)
    look = Look(steps, at_end)
    with trust.admitting_all(), contextlib.suppress(Looked):  # as every command, after which no run limits imports
        assert fit(["--resume", str(run), "--trainer.max_epochs", "4", *options], callbacks=[look]) == 0
    return run, look


def rates(look):
    return [groups[0]["lr"] for groups in look.groups]
