"""Replace files atomically: a kill or a power cut at any moment leaves either the old file or the new one.

Several files that belong together are staged in a folder next to them. Renaming that folder commits them, and the next
process finishes interrupted moves.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from graphbench.data.files.sharing import process_exists
from graphbench.errors import BadInput

#: Prefixes of folders that are being filled, and of those that are complete.
_STAGED, _READY = ".staged-", ".commit-"
#: Errors of a file system that accepts no more data, and what they mean.
NO_ROOM = {
    errno.ENOSPC: "its disk is full",
    errno.EDQUOT: "it would exceed your quota",
    errno.EFBIG: "its file system takes no file of that size",
    errno.EROFS: "it is mounted read-only",
}


def no_room(error: BaseException | None) -> str:
    """Return the system's message if an error, or a cause of it, means that the disk accepts no more data, else "".

    Examples:
        >>> no_room(OSError(errno.ENOSPC, "No space left on device")), no_room(ValueError())
        ('No space left on device', '')
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return os.strerror(error.errno)
        error = error.__cause__ or error.__context__
    return ""


@contextlib.contextmanager
def writing(path: Path, keep: Path | None = None) -> Iterator[IO[bytes]]:
    """Open a file that replaces `path` when the block succeeds; until then and after an error the old one stays.

    The new file is written in the same folder, so that the last step is a rename on one file system. It is synced
    before the rename, so that a power cut also leaves a whole file. When it is complete, the old file moves to `keep`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    except OSError as error:
        error.filename = str(place_of(path))  # the user knows this name, not the temporary one
        raise
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes the file readable only by its owner.
        Path(temporary).chmod(0o666 & ~_umask())
        if keep is not None and path.is_file():
            _keep(path, keep)
        Path(temporary).replace(path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, temporary):
            error.filename = str(place_of(path))
        raise
    with contextlib.suppress(OSError):  # Windows cannot sync the folder to persist the rename
        sync_path(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace the text of a file, in UTF-8."""
    with writing(path) as file:
        file.write(text.encode("utf-8"))


def _keep(path: Path, backup: Path) -> None:
    """Link a file to a second name, so that it always keeps its first one."""
    link = backup.with_name(f".{backup.name}-{os.getpid()}")
    link.unlink(missing_ok=True)
    try:
        link.hardlink_to(path)
    except OSError:  # without hard links, the file has only its new name for a moment
        path.replace(backup)
        return
    link.replace(backup)
    link.unlink(missing_ok=True)  # a rename onto another name of the same file does nothing


def remove_link(path: Path) -> None:
    """Remove a link at a path that is about to be written: in a folder from someone else it may lead anywhere."""
    if path.is_symlink():
        path.unlink(missing_ok=True)


def sync_path(path: Path) -> None:
    """Sync a file, or a folder with its list of names, to the disk; raise `OSError` if the system cannot."""
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)  # it can only be read by setting it
    os.umask(mask)
    return mask


@contextlib.contextmanager
def writing_together(folder: Path) -> Iterator[Path]:
    """Open a folder whose files move to their places below `folder` when the block succeeds, and only then."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    finish_writing(folder)
    staged = Path(tempfile.mkdtemp(dir=folder, prefix=f"{_STAGED}{socket.gethostname()}-{os.getpid()}-"))
    try:
        yield staged
        # This is the commit: from here on this process or the next one will move the files.
        staged.rename(folder / f"{_READY}{time.time_ns()}-{os.getpid()}")
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        if is_new:
            with contextlib.suppress(OSError):  # other processes have written there since
                folder.rmdir()
        raise
    finish_writing(folder)


def finish_writing(folder: Path) -> None:
    """Finish the moves of a killed process, and remove what a process that has exited left unfinished.

    Several processes may do so at once. A folder from someone else may also contain such files, and links that lead
    elsewhere: nothing is moved into or out of `folder` through a link.

    Raises:
        BadInput: a link leads out of the folder.
        OSError: the folder cannot be written to.
    """
    # In commit order, since names begin with the time: the files of the latest commit win.
    for ready in sorted(folder.glob(f"{_READY}*")):
        _refuse_link(ready, folder)
        for path in sorted(path for path in ready.rglob("*") if path.is_file()):
            target = folder / path.relative_to(ready)
            _refuse_link(target.parent, folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # another process has just moved it
                path.replace(target)
        shutil.rmtree(ready, ignore_errors=True)
    for staged in folder.glob(f"{_STAGED}*"):
        if not _is_running(staged):
            shutil.rmtree(staged, ignore_errors=True)


def _refuse_link(path: Path, folder: Path) -> None:
    if not path.resolve().is_relative_to(folder.resolve()):
        raise BadInput(
            f"{path} is a link that leads out of {folder}, where files wait to be moved ({_READY}*). graphbench makes "
            "no such links: remove it, or those files."
        )


def _is_running(staged: Path) -> bool:
    """Return whether the process that writes a folder may still be running; if unknown, assume so for a day."""
    host, _, process = staged.name.removeprefix(_STAGED).rpartition("-")[0].rpartition("-")
    if host == socket.gethostname() and os.name == "posix":
        return process.isdigit() and process_exists(int(process))
    with contextlib.suppress(OSError):
        return time.time() - staged.stat().st_mtime < 24 * 3600
    return False


def place_of(path: Path) -> Path:
    """Return the final path of a file in a folder of `writing_together`; return any other path unchanged.

    Examples:
        >>> place_of(Path("run/.staged-7-ab/diagnostics/gap.csv")).as_posix(), place_of(Path("run/a.csv")).as_posix()
        ('run/diagnostics/gap.csv', 'run/a.csv')
    """
    return Path(*(part for part in path.parts if not part.startswith(_STAGED)))
