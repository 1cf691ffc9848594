"""Run commands of graphbench in processes of their own, several side by side, and pass signals on to them."""

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
    """Error of a command of graphbench; finished trainings stay.

    Args:
        command: its name.
        returncode: its exit code; negative for a signal.
    """

    def __init__(self, command: str, returncode: int) -> None:
        super().__init__(f"graphbench {command} ended with {returncode}. Give the same command again to go on.")
        self.returncode = returncode


def graphbench(*arguments: str, log: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
    """Run a command of graphbench in a process that stops cleanly on a signal to this one.

    Its output is appended to the file `log` if there is one; `environment` has variables beside those of this process.

    Raises:
        CommandFailed: it failed.
    """
    # By this interpreter: the `graphbench` on the PATH may be that of another environment.
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
            process.wait()  # a training ends its step and writes a checkpoint
            raise
        finally:
            _running.discard(process)
    if code:
        raise CommandFailed(arguments[0], code)


def pass_on(signum: int) -> None:
    """Send a signal to every running command, except a Ctrl-C that the terminal has sent already."""
    if signum == signal.SIGINT and _in_foreground():
        return
    # A copy, as threads begin and end commands meanwhile.
    for process in list(_running):
        process.send_signal(signum)  # does nothing if the process has ended


def _in_foreground() -> bool:
    """Tell whether a Ctrl-C in the terminal reaches this process and its children."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except (OSError, AttributeError):  # no terminal, or Windows
        return False


def run_in_parallel(
    work: Callable[[_Item, _Place], _Result], items: Sequence[_Item], places: Sequence[_Place]
) -> list[_Result]:
    """Return `work(item, place)` of every item, with one item at a time in each place.

    A signal stops the running commands cleanly, and no other starts.
    """
    if len(places) == 1:  # without a thread, so that the signal reaches the command by itself
        return [work(item, places[0]) for item in items]
    # One queue of places for all items, so that a long training holds up no others but at its own place.
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
            # Before the signal: a thread whose command ends takes the next item at once.
            pool.shutdown(wait=False, cancel_futures=True)
            pass_on(getattr(stop, "signum", signal.SIGTERM))
            raise


def visible_gpus() -> list[str]:
    """Return the value of `CUDA_VISIBLE_DEVICES` for each GPU that this process may use."""
    import torch  # takes seconds, which most commands do without

    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return visible.split(",") if visible else [str(index) for index in range(torch.cuda.device_count())]
