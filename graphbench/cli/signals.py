"""Signals while a fit trains: all processes end at the same step, with one checkpoint."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from types import FrameType
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments import SLURMEnvironment
from pytorch_lightning.trainer.connectors.signal_connector import _SignalConnector
from torch.utils.data import get_worker_info

from graphbench.cli.stopping import Stopped, by_default, handled

log = logging.getLogger(__name__)


class Signals(_SignalConnector):
    """Takes the place of Lightning's handlers, which talk to the other processes from within a handler and so hang.

    Before and after training a signal ends the process at once. While it trains, a signal is noted, and the processes
    compare notes after every optimizer step (`OrderlyStop`); a second Ctrl-C ends at once.

    Args:
        trainer: whose handlers these are.
    """

    def __init__(self, trainer: pl.Trainer) -> None:
        self.noted = 0
        self.agreed = 0
        self.waiting = False
        self._owner = os.getpid()
        super().__init__(trainer)

    @property
    def received_sigterm(self) -> bool:
        """What Lightning asks after every step: once all know of a signal it leaves, but never within a validation."""
        return bool(self.agreed) and not self.trainer.validating

    @received_sigterm.setter
    def received_sigterm(self, value: bool) -> None:
        """Lightning's own notes are not needed."""

    @property
    def requeue_signal(self) -> int | None:
        """The signal by which SLURM announces the end of a job that is to be queued again."""
        environment = self.trainer._accelerator_connector.cluster_environment
        if isinstance(environment, SLURMEnvironment) and environment.auto_requeue:
            return int(environment.requeue_signal or signal.SIGUSR1)
        return None

    def register_signal_handlers(self) -> None:
        """Set the handlers, for the time between Lightning's set-up and its tear-down."""
        signals = {*map(int, handled()), *([self.requeue_signal] if self.requeue_signal else [])}
        self._original_handlers = {signum: signal.getsignal(signum) for signum in signals}
        for signum in signals:
            self._register_signal(signum, self._note)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:
            if get_worker_info() is None:  # those that cut batches end with this process, which still needs them
                by_default(signum)
        elif self.waiting and not (signum == signal.SIGINT and self.noted):
            self.noted = self.noted or signum
            log.warning("%s: leaving after this step.", signal.Signals(signum).name)
        else:
            raise Stopped(signum)

    def teardown(self) -> None:
        """Put back what was there; a process that leaves is not to be stopped once more."""
        if self.noted or self.agreed:
            self._original_handlers = dict.fromkeys(self._original_handlers, signal.SIG_IGN)
        super().teardown()

    def requeue(self) -> None:
        """Ask SLURM to queue this job again.

        The same command then meets a folder with a checkpoint: give it `--if-exists resume`.
        """
        job = os.environ["SLURM_JOB_ID"]
        if "SLURM_ARRAY_JOB_ID" in os.environ:
            job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
        try:
            subprocess.run(["scontrol", "requeue", job], check=True)
            log.info("SLURM queues job %s again.", job)
        except (OSError, subprocess.CalledProcessError) as error:
            log.warning("SLURM does not queue job %s again: %s", job, error)


class OrderlyStop(pl.Callback):
    """Lets the processes compare, after every optimizer step, whether one of them was asked to stop.

    Between batches whose gradients are accumulated nobody stops: a checkpoint holds no gradients.

    Args:
        signals: the notes of this process.
    """

    def __init__(self, signals: Signals) -> None:
        self._signals = signals

    def _compare(self, trainer: pl.Trainer) -> None:
        own = torch.tensor(float(self._signals.noted), device=trainer.strategy.root_device)
        self._signals.agreed = int(trainer.strategy.reduce(own, reduce_op="max"))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """From here on a signal waits for the end of a step."""
        self._signals.waiting = True

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Compare after an optimizer step."""
        if trainer.is_last_batch or (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self._compare(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare after a validation."""
        self._compare(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """All checkpoints are written."""
        self._signals.waiting = False
