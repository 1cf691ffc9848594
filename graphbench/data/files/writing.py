"""Files that are replaced as a whole: a kill or a power cut at any moment leaves the old one or the new one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from graphbench.data.files.together import place_of


@contextlib.contextmanager
def writing(path: Path, keep: Path | None = None) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when the block ends well; until then and after an error the old one stays.

    It is made in the same folder, so that the last step is a rename on one file system, and it is on the disk before
    that step, so that a power cut leaves a whole file as well.

    Args:
        path: what to replace.
        keep: where the old file goes when the new one is whole.

    Raises:
        OSError: the disk is full, or the folder cannot be written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        if keep is not None and path.is_file():
            _keep(path, keep)
        Path(temporary).replace(path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, temporary):
            error.filename = str(place_of(path))  # what was to be written is what a person knows
        raise
    _sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new one, never half of it."""
    with writing(path) as file:
        file.write(text.encode("utf-8"))


def _keep(path: Path, kept: Path) -> None:
    """Give a file a second name, so that it is never without its first."""
    beside = kept.with_name(f".{kept.name}-{os.getpid()}")
    beside.unlink(missing_ok=True)
    try:
        beside.hardlink_to(path)
    except OSError:  # a file system without hard links: for a moment the file has only its new name
        path.replace(kept)
        return
    beside.replace(kept)
    beside.unlink(missing_ok=True)  # a rename onto another name of the same file does nothing


def _sync_folder(folder: Path) -> None:
    """Bring a rename to the disk, where the system allows it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
