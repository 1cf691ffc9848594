"""Folders that several processes and several people use: locks, and modes that let a group write.

A folder is shared where its group may write to it (`chmod g+ws FOLDER`). What is made in it belongs to the same group
and may be written by it, whatever the umask says; in all other folders the umask decides alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from filelock import Timeout

from graphbench.data.files.locking import acquire_lock

__all__ = ["access_advice", "locked", "make_folder", "share"]

logger = logging.getLogger(__name__)


def share(path: Path, folder: Path) -> None:
    """Let the group of a shared folder read and write what this process has made in it, and in it all the way down.

    Args:
        path: a file, or a folder of files.
        folder: where it lies. A sticky one (`/tmp`) is nobody's, and not shared.
    """
    place = folder.stat()
    if os.name != "posix" or not place.st_mode & stat.S_IWGRP or place.st_mode & stat.S_ISVTX:
        return
    for item in (path, *path.iterdir()) if path.is_dir() else (path,):
        with contextlib.suppress(OSError):  # somebody else's, who has shared it
            if item.stat().st_gid != place.st_gid:
                os.chown(item, -1, place.st_gid)
            mode = stat.S_IMODE(item.stat().st_mode) | stat.S_IRGRP | stat.S_IWGRP
            item.chmod(mode | stat.S_IXGRP | stat.S_ISGID if item.is_dir() else mode)


def make_folder(folder: Path) -> None:
    """Make a folder and what it lies in, each shared where the one around it is.

    Raises:
        OSError: nothing can be made there.
    """
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        share(folder, folder.parent)


@contextlib.contextmanager
def locked(file: Path, waiting: str) -> Iterator[None]:
    """Hold a lock, which ends with the process, and say so when another process has it.

    Args:
        file: the lock; made where it is missing, and its folder.
        waiting: the warning while another process holds it.

    Raises:
        OSError: nothing can be written there.
    """
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


def access_advice(path: Path, root: Path) -> str:
    """Say whose a path is that this user may not write to, and what its owner sets so that a group can."""
    while not path.exists() and path != path.parent:
        path = path.parent
    status = path.stat()
    return (
        f"{path} belongs to user {status.st_uid}, group {status.st_gid}, with mode {stat.S_IMODE(status.st_mode):o}. "
        f"To share the folder with that group its owner runs: chmod -R g+rwX {root} && find {root} -type d -exec "
        "chmod g+s {} +"
    )
