"""Run graphbench commands in separate processes, several in parallel, and forward signals to them."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from graphbench.data.files.writing import remove_link

_Item = TypeVar("_Item")
_Place = TypeVar("_Place")
_Result = TypeVar("_Result")

#: Running commands of all threads.
_running: set[subprocess.Popen[bytes]] = set()


class CommandFailed(SystemExit):
    """Error of a graphbench command; finished trainings stay.

    Args:
        command: its name.
        returncode: its exit code; negative for a signal.
    """

    def __init__(self, command: str, returncode: int) -> None:
        super().__init__(f"graphbench {command} exited with {returncode}. Run the same command again to resume.")
        self.returncode = returncode


def graphbench(*arguments: str, log: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
    """Run a graphbench command in a process that stops cleanly on a signal to this one.

    Its output is appended to the file `log` if given; `environment` has variables in addition to this process's.

    Raises:
        CommandFailed: it failed.
    """
    # With this interpreter: the `graphbench` on the PATH may be from another environment.
    command = [sys.executable, "-m", "graphbench", *arguments]
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        remove_link(log)
    with contextlib.nullcontext() if log is None else log.open("ab") as output:
        errors = None if output is None else subprocess.STDOUT
        process = subprocess.Popen(command, stdout=output, stderr=errors, env={**os.environ, **(environment or {})})
        _running.add(process)
        try:
            code = process.wait()
        except BaseException as stop:
            usual = signal.SIGINT if isinstance(stop, KeyboardInterrupt) else signal.SIGTERM
            pass_on(getattr(stop, "signum", usual))
            process.wait()  # a training finishes its step and writes a checkpoint
            raise
        finally:
            _running.discard(process)
    if code:
        raise CommandFailed(arguments[0], code)


def pass_on(signum: int) -> None:
    """Send a signal to every running command, except a Ctrl-C that the terminal has already sent."""
    if signum == signal.SIGINT and _in_foreground():
        return
    # A copy, since threads start and finish commands in the meantime.
    for process in list(_running):
        process.send_signal(signum)  # does nothing if the process has exited


def _in_foreground() -> bool:
    """Return whether a Ctrl-C in the terminal reaches this process and its children."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except (OSError, AttributeError):  # no terminal, or Windows
        return False


def run_in_parallel(
    work: Callable[[_Item, _Place], _Result], items: Sequence[_Item], places: Sequence[_Place]
) -> list[_Result]:
    """Return `work(item, place)` for every item, with one item at a time in each place.

    A signal stops the running commands cleanly, and no others start.
    """
    if len(places) == 1:  # without a thread, so that the signal reaches the command directly
        return [work(item, places[0]) for item in items]
    # One queue of places for all items, so that a long training only blocks its own place.
    free: queue.SimpleQueue[_Place] = queue.SimpleQueue()
    for place in places:
        free.put(place)

    def run(item: _Item) -> _Result:
        place = free.get()
        try:
            return work(item, place)
        finally:
            free.put(place)

    with ThreadPoolExecutor(len(places)) as pool:
        try:
            return list(pool.map(run, items))
        except BaseException as stop:
            # Before the signal: a thread whose command exits takes the next item at once.
            pool.shutdown(wait=False, cancel_futures=True)
            pass_on(getattr(stop, "signum", signal.SIGTERM))
            raise


def visible_gpus() -> list[str]:
    """Return the value of `CUDA_VISIBLE_DEVICES` for each GPU that this process may use."""
    import torch  # takes seconds, and most commands do not need it

    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return visible.split(",") if visible else [str(index) for index in range(torch.cuda.device_count())]
