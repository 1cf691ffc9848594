"""One process at a time writes to a folder of a run; who else comes is told which one that is."""

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
from graphbench.data.files.sharing import acquire_lock
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput
from graphbench.runs.environment import timestamp

_HOLDER = ".holder"


class Place:
    """Holds a folder open, so that a rename or removal is seen and no other folder is taken for it.

    Device and inode say which folder a name leads to; as long as this one is open, its inode is given to no other.

    Args:
        path: an existing folder.

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
        only_folders = getattr(os, "O_DIRECTORY", None)
        self._handle = os.open(self.path, os.O_RDONLY | only_folders) if only_folders is not None else None
        self._identity = _identity(self.path)

    def is_there(self) -> bool:
        """Return whether the path still leads to this folder."""
        try:
            return _identity(self.path) == self._identity
        except OSError:
            return False

    def current(self) -> Path | None:
        """Return the folder's path of today; None where it was removed, or the system does not tell (outside Linux)."""
        if self.is_there():
            return self.path
        with contextlib.suppress(OSError):
            path = Path(f"/proc/self/fd/{self._handle}").readlink()
            if _identity(path) == self._identity:
                return path
        return None

    def close(self) -> None:
        """Let the folder go."""
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
    path = folder / ".lock"
    try:
        return acquire_lock(path, timeout=0)
    except Timeout:
        name, alive = _described(folder / _HOLDER)
        try:  # the workers of a killed process hold its lock until they notice, which takes seconds
            return acquire_lock(path, timeout=0 if alive else 15)
        except Timeout:
            raise BadInput(f"{folder} is in use: {name} writes to it. Wait for it or end it.") from None


def _described(holder: Path) -> tuple[str, bool]:
    """Who holds a lock, in words, and whether that process may be alive."""
    try:
        said = load_json(holder)
        words = f"process {said['process']} on {said['host']} (since {said['since']})"
        if said["host"] == socket.gethostname():
            os.kill(int(said["process"]), 0)
    except ProcessLookupError:
        return words, False
    except (OSError, ValueError, KeyError, TypeError):  # no holder is named, or it belongs to somebody else
        return "another process", True
    return words, True
