"""Lock a run, or its folder, for one process, and tell others which process it is."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from filelock import BaseFileLock, Timeout

from graphbench.data.files.foreign import load_json
from graphbench.data.files.sharing import acquire_lock, process_exists
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput
from graphbench.runs.environment import timestamp

_LOCK, _HOLDER = ".lock", ".holder"
#: Seconds to wait for the name of a lock's owner, which writes it once it has the lock.
_NAMED = 1.0


class InUse(BadInput):
    """Raised for a path that another process works on.

    Args:
        path: the folder or file.
        holder: the process.
        work: what that process does.
    """

    def __init__(self, path: Path, holder: str, work: str) -> None:
        super().__init__(f"{path} is in use: {holder} {work}. Wait for it or end it.")
        self.holder = holder


class Place:
    """An open folder, to detect that its path was renamed, removed or replaced.

    Device and inode identify a folder; the system does not reuse the inode while the folder is open.

    Raises:
        OSError: the folder cannot be opened.

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
        only_folders = getattr(os, "O_DIRECTORY", None)  # Windows cannot open folders
        self._handle = os.open(self.path, os.O_RDONLY | only_folders) if only_folders is not None else None
        self._identity = _identity(self.path)

    def is_there(self) -> bool:
        """Return whether the path still refers to this folder."""
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

    The lock is `.lock`, and `.holder` names its owner. Yield the folder's place, which detects that the folder was
    moved or removed.

    Raises:
        InUse: another process, which the message names, writes here.
        BadInput: the folder is not writable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _acquire(folder, "", folder, "writes to it")
        place = Place(folder)
    except OSError as error:
        raise BadInput(f"The run folder {folder} is not writable: {error.strerror}.") from error
    try:
        _name(folder / _HOLDER)
        yield place
    finally:
        if (path := place.current()) is not None:
            (path / _HOLDER).unlink(missing_ok=True)
        place.close()
        lock.release()


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Keep other processes from working on a run or a file until the block or the process ends.

    This covers all commands run in the block. The lock and its owner's name are next to `path`, which need not exist.

    Raises:
        InUse: another process, which the message names, works on it.
        OSError: the folder of `path` is not writable.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = _acquire(path.parent, f".{path.name}", path, "works on it")
    try:
        _name(claim_of(path))
        yield
    finally:
        claim_of(path).unlink(missing_ok=True)
        lock.release()


def claim_of(path: Path) -> Path:
    """Return the file that names the process that has claimed a path."""
    return path.with_name(f".{path.name}{_HOLDER}")


def refuse_writer(folder: Path) -> None:
    """Refuse to write to the folder of a run while another process trains it.

    Raises:
        InUse: one does.
        OSError: the folder is not writable.
    """
    if (folder / _LOCK).exists():
        _acquire(folder, "", folder, "writes to it").release()


def holder_of(folder: Path) -> str | None:
    """Name the running process of this machine that writes to a folder; None if none is known."""
    words, alive = _describe(folder / _HOLDER)
    return words if alive else None


def _name(holder: Path) -> None:
    """Name this process as the owner of a lock."""
    content = {"host": socket.gethostname(), "process": os.getpid(), "since": timestamp()}
    write_text(holder, json.dumps(content) + "\n")


def _acquire(folder: Path, prefix: str, shown: Path, work: str) -> BaseFileLock:
    """Acquire the lock `PREFIX.lock` in a folder; `PREFIX.holder` names its owner."""
    path, holder = folder / f"{prefix}{_LOCK}", folder / f"{prefix}{_HOLDER}"
    try:
        return acquire_lock(path, timeout=0)
    except Timeout:
        deadline = time.monotonic() + _NAMED
        while not holder.is_file() and time.monotonic() < deadline:
            time.sleep(0.02)
        name, alive = _describe(holder)
        try:  # workers of a killed process keep its lock for some seconds
            return acquire_lock(path, timeout=15 if alive is False else 0)
        except Timeout:
            raise InUse(shown, name, work) from None


def _describe(holder: Path) -> tuple[str, bool | None]:
    """Name the process that holds a lock, and return whether it is alive; None if unknown."""
    try:
        record = load_json(holder)
        words = f"process {record['process']} on {record['host']} (since {record['since']})"
        is_here, process = record["host"] == socket.gethostname(), int(record["process"])
    except (OSError, ValueError, KeyError, TypeError):  # no readable holder
        return "another process", None
    return words, process_exists(process) if is_here else None
