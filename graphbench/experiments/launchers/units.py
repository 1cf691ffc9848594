"""Run graphbench commands one after another in a job that may be preempted, and record how each ended.

A unit is a command that can resume: a training of a sweep, a job of a published table, a worker of a study, a share of
a prediction. A job of a cluster runs one or several of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from graphbench.data.files.foreign import load_json
from graphbench.data.files.writing import remove_link, write_text
from graphbench.runs.environment import timestamp
from graphbench.runs.slurm import job_number, queue_again_if_preempted

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

#: Seconds between two heartbeats of a running unit.
BEAT = 15.0


def _signals(*names: str) -> tuple[signal.Signals, ...]:
    """Return the signals with these names that this system has; Windows has only SIGINT and SIGTERM."""
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


#: Exit codes of a command that a signal has stopped cleanly.
STOPPED = tuple(128 + number for number in _signals("SIGHUP", "SIGINT", "SIGTERM", "SIGUSR1"))
#: Signals that clusters use as warnings; some send them to all processes of a task.
_WARNINGS = _signals("SIGUSR1", "SIGUSR2")
#: Variables that would make Lightning treat the command as one of several ranks.
_OF_RANKS = ("SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "RANK", "WORLD_SIZE", "LOCAL_RANK")


@dataclass(frozen=True)
class Unit:
    """A command that may be run again at any time.

    Args:
        name: unique in its folder.
        words: the command line after `graphbench`.
        log: file that its output is appended to; `record` is next to it.
    """

    name: str
    words: tuple[str, ...]
    log: Path

    @property
    def record(self) -> Path:
        """The file that records how it ended."""
        return record_of(self.log)


def record_of(log: Path) -> Path:
    """Return the record that belongs to a log."""
    return log.with_suffix(".json")


def note_begin(record: Path) -> None:
    """Record that a unit runs in this process."""
    notes = {"host": socket.gethostname(), "process": os.getpid(), "job": job_number(), "began": timestamp()}
    write_text(record, json.dumps(notes) + "\n")


def note_end(record: Path, code: int | None, problem: str = "") -> None:
    """Record the exit code of a unit, None if another process ran it, and the reason if known."""
    notes = read_notes(record) | {"ended": timestamp(), "code": code, "problem": problem}
    write_text(record, json.dumps(notes) + "\n")


class Note:
    """The record of a unit that this process may run; nothing is recorded if the unit does not start.

    Its file is None if another process records how the unit ends.
    """

    def __init__(self, record: Path | None) -> None:
        self._record, self._begun = record, False

    def begin(self) -> None:
        """Record once that the unit runs in this process."""
        if self._record is not None and not self._begun:
            note_begin(self._record)
        self._begun = True

    def end(self, code: int | None, problem: str = "") -> None:
        """Record how it ended, see `note_end`."""
        if self._record is not None and self._begun:
            note_end(self._record, code, problem)


def read_notes(record: Path) -> dict[str, Any]:
    """Read the record of a unit; empty if it is missing or cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        notes = load_json(record)
        return notes if isinstance(notes, dict) else {}
    return {}


class Bundle:
    """Units that share a submitit job; a failed one does not stop the others.

    submitit calls it in the job, and `checkpoint` after a warning; it then requeues the job with the result of
    `checkpoint`.

    Args:
        units: to run one after another.
        folder: working directory.
        cards: value of `CUDA_VISIBLE_DEVICES` to use instead of the job's.
    """

    def __init__(self, units: Sequence[Unit], folder: Path, cards: str | None = None) -> None:
        self.units, self.folder, self.cards = tuple(units), folder, cards
        self._running: tuple[Unit, subprocess.Popen[bytes]] | None = None

    def __call__(self) -> list[str]:
        """Run the units that have not succeeded; return the names of those that failed."""
        before = {number: signal.signal(number, self._end) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            missing = [unit for unit in self.units if read_notes(unit.record).get("code") != 0]
            return [unit.name for unit in missing if self._run(unit) != 0]
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def checkpoint(self) -> DelayedSubmission:
        """Stop the running unit cleanly, and return what the job does when it restarts."""
        from submitit.helpers import DelayedSubmission

        self._stop()
        return DelayedSubmission(Bundle(self.units, self.folder, self.cards))

    def _run(self, unit: Unit) -> int:
        """Run one unit, and return its exit code.

        Raises:
            SystemExit: a signal has stopped it.
        """
        note_begin(unit.record)
        remove_link(unit.log)
        environment = {name: value for name, value in os.environ.items() if name not in _OF_RANKS}
        if self.cards is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self.cards
        with unit.log.open("ab") as output:
            command = [sys.executable, "-m", "graphbench", *unit.words]
            signal.pthread_sigmask(signal.SIG_BLOCK, _WARNINGS)  # the command inherits this
            try:
                child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=self.folder
                )
                self._running = unit, child
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _WARNINGS)
            code = _wait(child, unit.record)
        self._running = None
        note_end(unit.record, code)
        if code in STOPPED:  # the cluster signalled the command itself, and stops this process next
            raise SystemExit(code)
        return code

    def _stop(self) -> None:
        """Let the running unit write its checkpoint and exit."""
        if self._running is None:
            return
        unit, child = self._running
        child.send_signal(signal.SIGTERM)
        with contextlib.suppress(ChildProcessError):  # already waited for
            # not `Popen.wait`: a signal handler may run within it, and would wait for its lock
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        note_end(unit.record, 128 + signal.SIGTERM)

    def _end(self, signum: int, frame: FrameType | None) -> None:
        """Exit with the running unit, since the job was cancelled, or preempted with a grace time."""
        self._stop()
        queue_again_if_preempted()
        raise SystemExit(128 + signum)


def _wait(child: subprocess.Popen[bytes], record: Path) -> int:
    """Wait for a command, with a regular heartbeat: the time of its record."""
    while True:
        try:
            return child.wait(BEAT)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):  # the file server may be back for the next one
                os.utime(record)
