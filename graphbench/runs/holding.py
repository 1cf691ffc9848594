"""Lock the folder of a run for one process, and name that process to others."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from filelock import BaseFileLock, Timeout

from graphbench.data.files.foreign import load_json
from graphbench.data.files.sharing import acquire_lock, process_exists
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput
from graphbench.runs.environment import timestamp

_HOLDER = ".holder"


class Place:
    """An open folder, to detect that its path was renamed, removed or replaced.

    Device and inode identify a folder; while it is open, the system does not reuse its inode.

    Raises:
        OSError: it cannot be opened.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with Place(folder) as place:
        ...     before = place.is_there()
        ...     folder.rmdir()
        ...     before, place.is_there(), place.current()
        (True, False, None)
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()  # the program may change its working directory
        only_folders = getattr(os, "O_DIRECTORY", None)  # Windows opens no folders
        self._handle = os.open(self.path, os.O_RDONLY | only_folders) if only_folders is not None else None
        self._identity = _identity(self.path)

    def is_there(self) -> bool:
        """Tell whether the path still leads to this folder."""
        try:
            return _identity(self.path) == self._identity
        except OSError:
            return False

    def current(self) -> Path | None:
        """Return the folder's current path; None if it was removed, or moved outside Linux."""
        if self.is_there():
            return self.path
        with contextlib.suppress(OSError):
            path = Path(f"/proc/self/fd/{self._handle}").readlink()
            if _identity(path) == self._identity:
                return path
        return None

    def close(self) -> None:
        """Close the folder."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _identity(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_dev, stat.st_ino


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Place]:
    """Lock a folder, created if missing, until the block or the process ends.

    The lock is `.lock`, and `.holder` names its owner. The block gets the folder's place, which detects that the folder
    was moved or removed.

    Raises:
        BadInput: another process, which is named, writes here; or the folder is not writable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _acquire(folder)
        place = Place(folder)
    except OSError as error:
        raise BadInput(f"The run folder {folder} cannot be written to: {error.strerror}.") from error
    try:
        holder = {"host": socket.gethostname(), "process": os.getpid(), "since": timestamp()}
        write_text(folder / _HOLDER, json.dumps(holder) + "\n")
        yield place
    finally:
        if (path := place.current()) is not None:
            (path / _HOLDER).unlink(missing_ok=True)
        place.close()
        lock.release()


def holder_of(folder: Path) -> str | None:
    """Name the living process of this machine that writes to a folder; None where none is known."""
    words, alive = _describe(folder / _HOLDER)
    return words if alive else None


def _acquire(folder: Path) -> BaseFileLock:
    path = folder / ".lock"
    try:
        return acquire_lock(path, timeout=0)
    except Timeout:
        name, alive = _describe(folder / _HOLDER)
        try:  # workers of a killed process keep its lock for some seconds until they notice
            return acquire_lock(path, timeout=15 if alive is False else 0)
        except Timeout:
            raise BadInput(f"{folder} is in use: {name} writes to it. Wait for it or end it.") from None


def _describe(holder: Path) -> tuple[str, bool | None]:
    """Name the process that holds a lock, and tell whether it is alive; None where nobody can say."""
    try:
        record = load_json(holder)
        words = f"process {record['process']} on {record['host']} (since {record['since']})"
        is_here, process = record["host"] == socket.gethostname(), int(record["process"])
    except (OSError, ValueError, KeyError, TypeError):  # no readable holder
        return "another process", None
    return words, process_exists(process) if is_here else None
