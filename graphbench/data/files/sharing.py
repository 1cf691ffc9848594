"""Share folders between processes and users: locks, and modes that let a group write.

A folder is shared if its group may write to it (`chmod g+ws FOLDER`). Whatever is created in it belongs to the same
group, which may write to it regardless of the umask. In all other folders only the umask decides.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

logger = logging.getLogger(__name__)

#: Errors of file systems that have no locks.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


def share(path: Path, folder: Path) -> None:
    """Let the group of a shared folder read and write what this process has created in it.

    `folder` is the parent of `path`; a sticky folder (`/tmp`) is not shared.
    """
    place = folder.stat()
    if os.name != "posix" or not place.st_mode & stat.S_IWGRP or place.st_mode & stat.S_ISVTX:
        return
    for item in (path, *path.iterdir()) if path.is_dir() else (path,):
        with contextlib.suppress(OSError):  # owned by another user, who has shared it
            if item.stat().st_gid != place.st_gid:
                os.chown(item, -1, place.st_gid)
            mode = stat.S_IMODE(item.stat().st_mode) | stat.S_IRGRP | stat.S_IWGRP
            item.chmod(mode | stat.S_IXGRP | stat.S_ISGID if item.is_dir() else mode)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, each shared if its parent is."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        share(folder, folder.parent)


def write_shared(path: Path, text: str) -> None:
    """Replace a text file by one that the group of its folder may also write.

    Raises:
        OSError: nothing can be written there; the old file stays.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        temporary.write_text(text, encoding="utf-8")
        share(temporary, path.parent)
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def access_advice(path: Path, root: Path) -> str:
    """Describe who owns a path that this user may not write to, and how the owner can share it with a group."""
    while not path.exists() and path != path.parent:
        path = path.parent
    status = path.stat()
    return (
        f"{path} belongs to user {status.st_uid}, group {status.st_gid}, with mode {stat.S_IMODE(status.st_mode):o}. "
        f"To share the folder with that group its owner runs: chmod -R g+rwX {root} && find {root} -type d -exec "
        "chmod g+s {} +"
    )


@contextlib.contextmanager
def locked(file: Path, waiting: str) -> Iterator[None]:
    """Hold a lock that is released when the process exits; warn while another process holds it."""
    make_folder(file.parent)
    try:
        lock = acquire_lock(file, timeout=0)
    except Timeout:
        logger.warning("%s", waiting)
        lock = acquire_lock(file)
    try:
        if file.exists():
            share(file, file.parent)
        yield
    finally:
        lock.release()


def plain_lock(path: Path) -> BaseFileLock:
    """Return a lock, not acquired, that raises an error on a file system without locks; see `is_without_locks`."""
    return FileLock(path, fallback_to_soft=False)


def acquire_lock(path: Path, timeout: float = -1) -> BaseFileLock:
    """Acquire a file lock; on a file system without locks, create a file that only one process can create.

    A lock is released when its process exits, however it exits. The file used instead, `PATH.taken`, outlives a killed
    process: the next one on the same machine removes it; on another machine, a person has to. A warning says so.

    Args:
        path: path of the lock, in an existing folder.
        timeout: seconds to wait; a negative value waits forever.

    Returns:
        The lock, held.

    Raises:
        Timeout: another process has it.
        OSError: nothing can be written there.
    """
    lock = plain_lock(path)
    try:
        lock.acquire(timeout=timeout)
        return lock
    except (NotImplementedError, OSError) as error:
        if not is_without_locks(error):
            raise
        taken = path.with_name(f"{path.name}.taken")
        logger.warning(
            "%s is on a file system without locks: the file %s says that a process works there. Remove it if that "
            "process was killed on another machine.",
            path.parent,
            taken.name,
        )
        soft = SoftFileLock(taken)
        soft.acquire(timeout=timeout)
        return soft


def process_exists(number: int) -> bool:
    """Return whether a process of this machine runs, whoever owns it; True if the system cannot tell.

    Examples:
        >>> process_exists(os.getpid())
        True
    """
    # Signal 0 is not delivered and only tests for existence, except on Windows, where it is Ctrl-C.
    if os.name != "posix":
        return True
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # owned by another user
        pass
    with contextlib.suppress(OSError, IndexError):  # systems without /proc
        # A killed process stays as a zombie until its parent collects it, which a container without an init never does.
        return Path(f"/proc/{number}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return True


def is_without_locks(error: BaseException) -> bool:
    """Return whether an error means that the file system has no locks, rather than that this lock is unavailable.

    Examples:
        >>> is_without_locks(OSError(errno.ENOLCK, "No locks available")), is_without_locks(PermissionError())
        (True, False)
    """
    return isinstance(error, NotImplementedError) or (isinstance(error, OSError) and error.errno in _NO_LOCKS)
