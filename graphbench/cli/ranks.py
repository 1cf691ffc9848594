"""Let the processes of a training connect and stop together.

A signal, or a moved run folder, stops all processes at the same step with one checkpoint. On one host the processes
connect over the loopback interface: torch's address store, which rank 0 serves, would listen on all interfaces without
a password, and gloo on the interface of the host's name. After a restart they connect under new keys.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.plugins.environments import LightningEnvironment, SLURMEnvironment
from pytorch_lightning.strategies import DDPStrategy, FSDPStrategy
from torch.utils.data import get_worker_info

from graphbench.callbacks.checkpoints import LastCheckpoint, validates_now
from graphbench.callbacks.csv_logger import RunCSVLogger
from graphbench.cli.command_line import as_word
from graphbench.cli.process import Stopped, by_default, handled, leave_terminal
from graphbench.errors import BadInput, GraphbenchError
from graphbench.runs import RunFolder
from graphbench.runs.holding import Place
from graphbench.training.lightning_internals import cluster_environment, group_timeout, skip_sigterm_broadcast

log = logging.getLogger(__name__)
_LOOPBACK = "127.0.0.1"


# -- signals -----------------------------------------------------------------------------------------------------------


class Signals:
    """Handle signals instead of Lightning, whose handlers call collectives and therefore hang.

    Before and after training, a signal stops the process at once. During training, a signal is noted, and the processes
    compare notes after every optimizer step (`OrderlyStop`); a second Ctrl-C stops at once.

    Args:
        trainer: calls `register_signal_handlers` and `teardown` around its work, and reads `received_sigterm`.
    """

    def __init__(self, trainer: pl.Trainer) -> None:
        self.trainer = trainer
        #: Signal that this process received, and the one that all processes know about; 0 for none.
        self.noted = self.agreed = 0
        #: Whether a signal waits for the end of a step.
        self.waiting = False
        self._owner = os.getpid()
        self._previous: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}

    @property
    def received_sigterm(self) -> bool:
        """True if Lightning should stop after this step: once all processes know, but not during validation."""
        return bool(self.agreed) and not self.trainer.validating

    @property
    def requeue_signal(self) -> int | None:
        """Signal with which SLURM announces the end of a job that will be requeued."""
        environment = cluster_environment(self.trainer)
        if isinstance(environment, SLURMEnvironment) and environment.auto_requeue:
            return int(environment.requeue_signal or signal.SIGUSR1)
        return None

    def register_signal_handlers(self) -> None:
        """Set the handlers; Lightning calls this before its work."""
        signals = {*map(int, handled()), *([self.requeue_signal] if self.requeue_signal else [])}
        self._previous = {signum: signal.getsignal(signum) for signum in signals}
        self._set(dict.fromkeys(signals, self._note))

    def teardown(self) -> None:
        """Restore the earlier handlers; a process that is stopping ignores further signals."""
        if self.noted or self.agreed:
            self._previous = dict.fromkeys(self._previous, signal.SIG_IGN)
        self._set({signum: handler for signum, handler in self._previous.items() if handler is not None})
        self._previous = {}

    @staticmethod
    def _set(handlers: dict[int, Any]) -> None:
        if threading.current_thread() is threading.main_thread():
            for signum, handler in handlers.items():
                signal.signal(signum, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:
            if get_worker_info() is None:  # loader workers exit with this process, which still needs them
                by_default(signum)
            return
        leave_terminal()
        if not self.waiting or (signum == signal.SIGINT and self.noted):
            raise Stopped(signum)
        self.noted = self.noted or signum
        log.warning("%s: leaving after this step.", signal.Signals(signum).name)


class OrderlyStop(pl.Callback):
    """Check after every optimizer step whether one of the processes was asked to stop.

    Notes are compared on the host, over gloo, so that no step waits for a GPU. No process stops between batches whose
    gradients are accumulated, since a checkpoint contains no gradients. The first process also checks that the run's
    folder is in place; if not, every process raises `FolderLost`.

    Args:
        signals: the notes of this process.
    """

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._group: Any = None
        #: The run's folder, in the process that writes to it.
        self.place: Place | None = None

    def compare(self, trainer: pl.Trainer, whole: bool = False) -> None:
        """Compare notes, and raise `FolderLost` if the run's folder was moved or removed.

        `whole` tells whether a checkpoint written now would contain all that a run needs to resume.
        """
        lost = self.place is not None and not is_in_place(self.place)
        notes = torch.tensor([self._signals.noted, lost])
        if self._group is not None:
            dist.all_reduce(notes, op=dist.ReduceOp.MAX, group=self._group)
        self._signals.agreed, gone = notes.tolist()
        if gone:
            self._leave(trainer, whole)

    def _leave(self, trainer: pl.Trainer, whole: bool) -> None:
        """Let loggers and a last checkpoint follow the folder to its new place."""
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
        """Let signals wait for the end of a step from here on."""
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            self._group = self._group or dist.new_group(backend="gloo", timeout=group_timeout(trainer.strategy))
            skip_sigterm_broadcast(trainer)
            if trainer.num_nodes > 1:
                check_shared(Path(trainer.default_root_dir), self._group)
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
        """Record that all checkpoints are written."""
        self._signals.waiting = False


# -- the run's folder --------------------------------------------------------------------------------------------------


class FolderLost(GraphbenchError):
    """The run's folder was moved or removed during training."""


class FolderWatch(pl.Callback):
    """Check the run's folder before other callbacks write at the end of a validation or an epoch."""

    def __init__(self, stop: OrderlyStop) -> None:
        self._stop = stop

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check before the best checkpoint and tables of diagnostics are written."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._stop.compare(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check before the last checkpoint is written."""
        self._stop.compare(trainer)


def check_shared(run: Path, group: dist.ProcessGroup | None = None, patience: float = 90) -> None:
    """Refuse processes that do not see the run's folder: all read checkpoints from it, the best one at the end.

    Args:
        run: the folder, as each process names it; the first one has written its configuration.
        group: of all processes, over gloo.
        patience: seconds until another host may see a new file; network file systems cache missing files.
    """
    end = time.monotonic() + patience
    while not (is_seen := RunFolder(run).config.is_file()) and time.monotonic() < end:
        time.sleep(1)
    unseen = torch.tensor([not is_seen]).int()
    dist.all_reduce(unseen, group=group)
    if unseen.item():
        raise BadInput(
            f"--run {run}: {unseen.item()} of {dist.get_world_size()} processes do not see this folder, from which all "
            "read checkpoints. Name one on a disk that all hosts share."
        )


def is_in_place(place: Place) -> bool:
    """Return whether a run's folder is where it was and contains its configuration."""
    return place.is_there() and RunFolder(place.path).config.is_file()


def lost_folder(path: Path, now: Path | None, step: int) -> str:
    """Describe how a run's folder, now at `now` (None if unknown), was lost, and how to continue."""
    change = "emptied" if now == path.absolute() else "moved or removed"
    text = f"The run's folder {path} was {change} during training: the fit stopped after step {step}."
    if now is None:
        return f"{text} If it was moved, `graphbench fit --resume FOLDER` continues from its last checkpoint."
    run = RunFolder(now)
    if not run.config.is_file():
        return f"{text} Without its {run.config.name} it cannot be continued."
    if run.resumable is None:
        return f"{text} It is {now} now and has no checkpoint yet: run the command again to start over."
    return f"{text} It is {now} now. Continue with: graphbench fit --resume {as_word(now)}"


# -- rendezvous --------------------------------------------------------------------------------------------------------


def join_again(trainer: pl.Trainer) -> None:
    """Open the process group of a restart; Lightning finds it open, and opens that of a first start by itself.

    torchrun keeps its address store between starts (PyTorch 2.13: `--standalone`, c10d and static rendezvous). A
    process that reads before another one has written its new address gets the address of a process that exited, and the
    restart fails with "Connection refused". So the keys of a restart begin with its number.
    """
    restart, shared = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), os.environ.get("TORCHELASTIC_USE_AGENT_STORE")
    strategy = trainer.strategy
    if restart == "0" or shared != "True" or not isinstance(strategy, DDPStrategy | FSDPStrategy):
        return
    if dist.is_initialized():
        return
    timeout = group_timeout(strategy)
    size = int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, is_master=False, timeout=timeout
    )
    dist.init_process_group(
        strategy.process_group_backend or ("nccl" if strategy.root_device.type == "cuda" else "gloo"),
        store=dist.PrefixStore(f"restart-{restart}", store),
        rank=int(os.environ["RANK"]),
        world_size=size,
        timeout=timeout,
    )


def meet_on_loopback(trainer: pl.Trainer) -> dist.TCPStore | None:
    """Serve the address store of processes on this host only on the loopback interface.

    This is for processes that Lightning starts, or SLURM on one node. torchrun serves its store in a separate process;
    forked processes cannot use the store of this one, and are left to torch.

    Args:
        trainer: before it starts other processes.

    Returns:
        An object to keep until the processes have connected: torch finds this server by its port instead of starting
        its own. None in processes other than rank 0, and if nothing is served here.
    """
    strategy = trainer.strategy
    environment = getattr(strategy, "cluster_environment", None)
    on_slurm = isinstance(environment, SLURMEnvironment) and os.environ.get("SLURM_NNODES") == "1"
    if (
        environment is None
        or trainer.world_size < 2
        or trainer.num_nodes > 1
        or not isinstance(strategy, DDPStrategy | FSDPStrategy)
        or not (strategy.launcher is None or hasattr(strategy.launcher, "cluster_environment"))  # forks or spawns
        or not (on_slurm or isinstance(environment, LightningEnvironment))
    ):
        return None
    if on_slurm:
        os.environ.setdefault("MASTER_ADDR", _LOOPBACK)  # else the name of the node, where others may listen
    if environment.main_address not in (_LOOPBACK, "localhost"):
        return None  # chosen by the user
    for interface in ("lo", "lo0"):
        if interface in (name for _, name in socket.if_nameindex()):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    if trainer.global_rank != 0 or dist.is_initialized():
        return None
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_LOOPBACK, environment.main_port))
    except OSError:  # served for an earlier trainer of this process, or in use, which torch reports
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
