"""Determine which processes of a study are alive, from a file per process in the study's folder.

On one machine a lock is released with its process, so a killed one is noticed at once. Locks of another machine may not
be visible here, as with NFS mounts that keep locks local. So every process also touches its file every `BEAT` seconds,
and one on another machine is gone once its file is `STALE` seconds old, according to the file server's clock.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import uuid
from pathlib import Path

from filelock import BaseFileLock, Timeout

from graphbench.data.files.sharing import is_without_locks, plain_lock

#: Seconds between two heartbeats, and seconds without one after which a process on another machine is gone. NFS clients
#: show times that are up to a minute old.
BEAT, STALE = 10.0, 150.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def this_machine() -> str:
    """Return a name unique to this machine that changes when it reboots."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()}-{_BOOT.read_text()[:8]}"
    return f"{socket.gethostname()}-{uuid.getnode():012x}"  # systems without /proc


class Worker:
    """A process of a study, the one that creates the object, with a file in the folder that all of them share."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._machine = folder, this_machine()
        self.name = f"{self._machine}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._file_of(self.name).touch()
        self._lock: BaseFileLock | None = plain_lock(self._file_of(self.name))
        try:
            self._lock.acquire()
        except (NotImplementedError, OSError) as error:
            if not is_without_locks(error):
                raise
            self._lock = None  # file times remain
        self._closed = threading.Event()
        threading.Thread(target=self._beat, daemon=True, name="signs of life").start()

    def close(self) -> None:
        """Stop the heartbeat: trials of this process are left to others."""
        self._closed.set()
        if self._lock is not None:
            self._lock.release()
        self._file_of(self.name).unlink(missing_ok=True)

    def is_alive(self, name: str) -> bool:
        """Return whether a process of the study is alive, given its `name`."""
        if name == self.name:
            return True
        if not self._file_of(name).exists():  # closed by the process
            return False
        return self._holds_lock(name) if self._shows_locks_of(name) else self._age(name) < STALE

    def is_doubtful(self, name: str) -> bool:
        """Return whether a live process on another machine has missed several heartbeats."""
        if name == self.name or self._shows_locks_of(name):
            return False
        return 3 * BEAT < self._age(name) < STALE

    def _file_of(self, name: str) -> Path:
        return self._folder / f"{name}.lock"

    def _shows_locks_of(self, name: str) -> bool:
        return self._lock is not None and name.startswith(f"{self._machine}-")

    def _holds_lock(self, name: str) -> bool:
        lock = plain_lock(self._file_of(name))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        self._file_of(name).unlink(missing_ok=True)
        return False

    def _age(self, name: str) -> float:
        """Return the seconds since a process touched its file; infinite if it is missing."""
        clock = self._file_of(self.name)
        try:
            # Both times from the file server's clock, which may differ from this machine's.
            clock.touch()
            return clock.stat().st_mtime - self._file_of(name).stat().st_mtime
        except FileNotFoundError:
            return float("inf")

    def _beat(self) -> None:
        while not self._closed.wait(BEAT):
            with contextlib.suppress(OSError):  # the file server may be back for the next one
                os.utime(self._file_of(self.name))
