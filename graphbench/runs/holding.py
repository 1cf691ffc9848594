"""One process at a time writes to a folder of a run; who else comes is told which one that is."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from graphbench.errors import BadInput
from graphbench.files.writing import write_text
from graphbench.runs.environment import timestamp
from graphbench.runs.place import Place

log = logging.getLogger(__name__)

_HOLDER = ".holder"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Place]:
    """Let nobody else write to a folder until the block ends; the lock ends with the process, however that ends.

    The lock is `.lock`, and `.holder` says whose it is. The folder is made where it is missing. The block gets the
    folder's place, which tells when somebody moves or removes it.

    Raises:
        BadInput: another process writes here, which is named; or nobody can.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _acquired(folder)
        place = Place(folder)
    except OSError as error:
        raise BadInput(f"The run folder {folder} cannot be written to: {error.strerror}.") from error
    try:
        own = {"host": socket.gethostname(), "process": os.getpid(), "since": timestamp()}
        write_text(folder / _HOLDER, json.dumps(own) + "\n")
        yield place
    finally:
        if (now := place.current()) is not None:
            (now / _HOLDER).unlink(missing_ok=True)
        place.close()
        lock.release()


def _acquired(folder: Path) -> BaseFileLock:
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        name, alive = _described(folder / _HOLDER)
        try:  # the workers of a killed process hold its lock until they notice, which takes seconds
            lock.acquire(timeout=0 if alive else 15)
        except Timeout:
            raise BadInput(f"{folder} is in use: {name} writes to it. Wait for it or end it.") from None
    except NotImplementedError:
        log.warning("%s lies on a file system without locks: see that nobody else writes to it.", folder)
    return lock


def _described(holder: Path) -> tuple[str, bool]:
    """Who holds a lock, in words, and whether that process may be alive."""
    try:
        said = json.loads(holder.read_text(encoding="utf-8"))
        words = f"process {said['process']} on {said['host']} (since {said['since']})"
        if said["host"] == socket.gethostname():
            os.kill(int(said["process"]), 0)
    except ProcessLookupError:
        return words, False
    except (OSError, ValueError, KeyError, TypeError):  # no holder is named, or it belongs to somebody else
        return "another process", True
    return words, True
