"""Locks between processes, also on file systems that have none."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock

log = logging.getLogger(__name__)

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


def acquire_lock(path: Path, timeout: float = -1) -> BaseFileLock:
    """Take the lock of a file; where the file system has no locks, take a file that only one process can make.

    A lock ends with its process, however that ends. The file in its place, `PATH.taken`, outlives a process that was
    killed: the next one on the same machine removes it, for another machine a person has to. A warning says so.

    Args:
        path: of the lock; its folder exists.
        timeout: seconds to wait; below 0 for as long as it takes.

    Returns:
        The lock, held.

    Raises:
        Timeout: another process has it.
        OSError: nothing can be written there.
    """
    try:
        lock = FileLock(path, fallback_to_soft=False)
    except TypeError:  # before filelock 3.25, which raises by itself
        lock = FileLock(path)
    try:
        lock.acquire(timeout=timeout)
        return lock
    except (NotImplementedError, OSError) as error:
        if not is_without_locks(error):
            raise
        taken = path.with_name(f"{path.name}.taken")
        log.warning(
            "%s lies on a file system without locks: the file %s says that a process works there. Remove it where that "
            "process was killed on another machine.",
            path.parent,
            taken.name,
        )
        instead = SoftFileLock(taken)
        instead.acquire(timeout=timeout)
        return instead


def is_without_locks(error: BaseException) -> bool:
    """Return whether an error says that the file system has no locks, and not that this one cannot be had.

    Examples:
        >>> is_without_locks(OSError(errno.ENOLCK, "No locks available")), is_without_locks(PermissionError())
        (True, False)
    """
    return isinstance(error, NotImplementedError) or (isinstance(error, OSError) and error.errno in _NO_LOCKS)
