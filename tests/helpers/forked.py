"""Run graphbench in a forked process, which inherits the imports of this one and may be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch


@dataclass
class Ended:
    """How the process ended.

    Args:
        code: exit code, or the negative signal that killed it.
        text: both output streams.
    """

    code: int
    text: str


def forked(folder: Path, *arguments: Any, prepare: Callable[[], None] = lambda: None, cwd: Path | None = None) -> Ended:
    """Run `graphbench ARGUMENTS` in a fork of this process.

    Args:
        folder: gets the output.
        arguments: the command line after `graphbench`.
        prepare: called in the fork before the command.
        cwd: where to run it.
    """
    return wait(*start(folder, *arguments, prepare=prepare, cwd=cwd))


def start(
    folder: Path, *arguments: Any, prepare: Callable[[], None] = lambda: None, cwd: Path | None = None
) -> tuple[int, Path]:
    """Like `forked`, but do not wait; return the process id and the output file."""
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / f"output-{len(list(folder.glob('output-*')))}.txt"
    output.touch()
    child = os.fork()
    if child:
        return child, output
    code = 70
    try:
        handle = os.open(output, os.O_WRONLY | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
        if cwd is not None:
            os.chdir(cwd)
        for name in ("GRAPHBENCH_RUN", "LOCAL_RANK", "PL_GLOBAL_SEED"):
            os.environ.pop(name, None)
        torch.cuda.is_available = lambda: False  # a fork cannot use a GPU that this process has used
        prepare()
        from graphbench.cli import main

        code = main([str(argument) for argument in arguments])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def wait(child: int, output: Path) -> Ended:
    """Wait for a started process and return how it ended."""
    _, status = os.waitpid(child, 0)
    return Ended(os.waitstatus_to_exitcode(status), output.read_text(errors="replace"))


def at(hook: str, action: Callable[[pl.Trainer], None]) -> Callable[[], None]:
    """Return a `prepare` that calls `action(trainer)` after every call of a hook, such as "on_train_batch_end".

    The hooks are those of the callback that measures throughput, which every fit has.
    """

    def prepare() -> None:
        from graphbench.callbacks.throughput import Throughput

        original = getattr(Throughput, hook)

        def acting(self: pl.Callback, trainer: pl.Trainer, *rest: Any) -> None:
            original(self, trainer, *rest)
            action(trainer)

        setattr(Throughput, hook, acting)

    return prepare


def signal_at_step(step: int, signum: int) -> Callable[[pl.Trainer], None]:
    """Return an action with which the process sends itself a signal at a step."""

    def action(trainer: pl.Trainer) -> None:
        if trainer.global_step == step:
            os.kill(os.getpid(), signum)

    return action


def killed_at_write(run: Path, number: int, temporary: str | None = None) -> Callable[[], None]:
    """Return a `prepare` that kills the process before its n-th change of a file in the run folder."""

    def prepare() -> None:
        if temporary is not None:
            os.environ["TMPDIR"], tempfile.tempdir = temporary, None
        seen = 0

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal seen
            changes = event in ("os.rename", "os.link", "os.remove", "os.chmod") or (
                event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            )
            if changes and str(run) in str(arguments[0]):
                seen += 1
                if seen == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)

    return prepare
