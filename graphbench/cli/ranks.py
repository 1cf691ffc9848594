"""Signals, and a folder that moves, while a fit trains: all processes end at the same step, with one checkpoint."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.plugins.environments import LightningEnvironment, SLURMEnvironment
from pytorch_lightning.strategies import DDPStrategy, FSDPStrategy
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher
from pytorch_lightning.trainer.connectors.signal_connector import _SignalConnector
from torch import distributed
from torch.utils.data import get_worker_info

from graphbench.callbacks.checkpoints import LastCheckpoint, validates_now
from graphbench.callbacks.csv_logger import RunCSVLogger
from graphbench.cli.process import Stopped, by_default, handled, leave_terminal
from graphbench.errors import GraphbenchError
from graphbench.runs import RunFolder
from graphbench.runs.holding import Place

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
            leave_terminal()
            self.noted = self.noted or signum
            log.warning("%s: leaving after this step.", signal.Signals(signum).name)
        else:
            leave_terminal()
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


class FolderLost(GraphbenchError):
    """The run's folder was moved or removed while it was trained in."""


class OrderlyStop(pl.Callback):
    """Lets the processes compare, after every optimizer step, whether one of them was asked to stop.

    Notes are compared on the host, over gloo, so that no step waits for a graphics card. Between batches whose
    gradients are accumulated nobody stops: a checkpoint holds no gradients.

    The first process also looks whether the run's folder is still where it was; a stop without it is `FolderLost` in
    every process.

    Args:
        signals: the notes of this process.
    """

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._group: Any = None
        #: The run's folder, in the process that writes into it.
        self.place: Place | None = None

    def compare(self, trainer: pl.Trainer, whole: bool = False) -> None:
        """Compare notes, and leave where the run's folder is gone.

        Args:
            trainer: whose processes these are.
            whole: a checkpoint that is written now holds all that a run needs to go on.

        Raises:
            FolderLost: it is no longer where it was.
        """
        lost = self.place is not None and not is_in_place(self.place)
        notes = torch.tensor([self._signals.noted, lost])
        if self._group is not None:
            distributed.all_reduce(notes, op=distributed.ReduceOp.MAX, group=self._group)
        self._signals.agreed, gone = notes.tolist()
        if gone:
            self._leave(trainer, whole)

    def _leave(self, trainer: pl.Trainer, whole: bool) -> None:
        """Let loggers and a last checkpoint follow the folder to where it is now."""
        now = self.place.current() if self.place is not None else None
        for logger in trainer.loggers:
            if isinstance(logger, RunCSVLogger):
                logger.follow(now)
        if now is not None and not RunFolder(now).config.is_file():
            whole = False
        now, whole = trainer.strategy.broadcast((now, whole))
        if whole and now is not None and any(isinstance(one, LastCheckpoint) for one in trainer.checkpoint_callbacks):
            trainer.save_checkpoint(RunFolder(now).last)
        raise FolderLost(lost_folder(Path(trainer.default_root_dir), now, trainer.global_step))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """From here on a signal waits for the end of a step."""
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            self._group = self._group or distributed.new_group(backend="gloo")
            # Lightning's own question after every batch is asked on the device; `agreed` answers it
            trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
        self._signals.waiting = True

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Compare after an optimizer step."""
        if trainer.is_last_batch or (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self.compare(trainer, whole=not trainer.is_last_batch and not validates_now(trainer, batch_idx))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare after a validation."""
        self.compare(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """All checkpoints are written."""
        self._signals.waiting = False


class FolderWatch(pl.Callback):
    """Looks for the run's folder before other callbacks write at the end of a validation or an epoch.

    Args:
        stop: compares the notes of all processes.
    """

    def __init__(self, stop: OrderlyStop) -> None:
        self._stop = stop

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Look before the best checkpoint and tables of diagnostics are written."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._stop.compare(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Look before the last checkpoint is written."""
        self._stop.compare(trainer)


def is_in_place(place: Place) -> bool:
    """Return whether a run's folder is where it was and holds its configuration, without which nothing goes on."""
    return place.is_there() and RunFolder(place.path).config.is_file()


def lost_folder(path: Path, now: Path | None, step: int) -> str:
    """What a person is told about a run's folder that is no longer where it was, or is empty.

    Args:
        path: where it was.
        now: where it is; None where nobody knows.
        step: optimizer steps done.
    """
    what = "emptied" if now == path.absolute() else "moved or removed"
    said = f"The run's folder {path} was {what} while it was trained in: the fit ended after step {step}."
    if now is None:
        return f"{said} Where it was moved to, `graphbench fit --resume FOLDER` goes on from its last checkpoint."
    run = RunFolder(now)
    if not run.config.is_file():
        return f"{said} Without its {run.config.name} nothing goes on from there."
    if run.resumable is None:
        return f"{said} It is {now} now and holds no checkpoint yet: give the command again to start anew."
    return f"{said} It is {now} now. Continue with: graphbench fit --resume {now}"


_LOOPBACK = "127.0.0.1"


def join_again(trainer: pl.Trainer) -> None:
    """Open the process group of a restart; Lightning finds it open, and the first start is left to Lightning.

    torchrun keeps its store of addresses from one start to the next (PyTorch 2.13: `--standalone`, c10d and static
    rendezvous). A process that asks before another one has written its new address gets the address of one that is no
    more, and the restart ends with "Connection refused". So the keys of a restart begin with its number.

    Args:
        trainer: of several processes or of one.
    """
    restart, shared = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), os.environ.get("TORCHELASTIC_USE_AGENT_STORE")
    strategy = trainer.strategy
    if restart == "0" or shared != "True" or not isinstance(strategy, DDPStrategy | FSDPStrategy):
        return
    if dist.is_initialized():
        return
    timeout = getattr(strategy, "_timeout", None) or timedelta(minutes=30)
    size = int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, is_master=False, timeout=timeout
    )
    dist.init_process_group(
        strategy._get_process_group_backend(),
        store=dist.PrefixStore(f"restart-{restart}", store),
        rank=int(os.environ["RANK"]),
        world_size=size,
        timeout=timeout,
    )


def meet_on_loopback(trainer: pl.Trainer) -> dist.TCPStore | None:
    """Serve the store of addresses of processes on this host on the loopback interface alone.

    Lightning, or SLURM on one node, starts the processes. torchrun serves its store in a process of its own, as it was
    told to; processes that are forked have no part in what this one serves, and are left to torch.

    Args:
        trainer: of several processes or of one, before it starts any.

    Returns:
        What has to live until the processes have met: torch finds this server by its port, where it would start its
        own. None in processes other than rank 0, and where nothing is served here.
    """
    strategy = trainer.strategy
    environment = getattr(strategy, "cluster_environment", None)
    on_slurm = isinstance(environment, SLURMEnvironment) and os.environ.get("SLURM_NNODES") == "1"
    if (
        environment is None
        or trainer.world_size < 2
        or trainer.num_nodes > 1
        or not isinstance(strategy, DDPStrategy | FSDPStrategy)
        or not isinstance(strategy.launcher, _SubprocessScriptLauncher | None)  # forks, or spawns
        or not (on_slurm or isinstance(environment, LightningEnvironment))
    ):
        return None
    if on_slurm:
        os.environ.setdefault("MASTER_ADDR", _LOOPBACK)  # else the name of the node, on which others may listen
    if environment.main_address not in (_LOOPBACK, "localhost"):
        return None  # the user's choice
    for interface in ("lo", "lo0"):
        if interface in (name for _, name in socket.if_nameindex()):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    if trainer.global_rank != 0 or dist.is_initialized():
        return None
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_LOOPBACK, environment.main_port))
    except OSError:  # served for an earlier trainer of this process, or taken: torch says so
        listening.close()
        return None
    return dist.TCPStore(
        _LOOPBACK,
        environment.main_port,
        is_master=True,
        wait_for_workers=False,
        multi_tenant=True,
        master_listen_fd=listening.detach(),
    )
