"""Several files of a folder that appear together or not at all, whenever the process that writes them is killed.

They are written into a folder beside them; a rename of that folder decides, and whoever comes next moves what is left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_STAGED, _READY = ".staged-", ".commit-"


@contextlib.contextmanager
def writing_together(folder: Path) -> Iterator[Path]:
    """A folder whose files take their places below `folder` when the block ends well; after an error none does.

    Args:
        folder: made where it is missing.

    Raises:
        OSError: the disk is full, or the folder cannot be written to.
    """
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    finish_writing(folder)
    staged = Path(tempfile.mkdtemp(dir=folder, prefix=f"{_STAGED}{socket.gethostname()}-{os.getpid()}-"))
    try:
        yield staged
        staged.rename(folder / f"{_READY}{time.time_ns()}-{os.getpid()}")
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        if made:
            with contextlib.suppress(OSError):  # others have written there since
                folder.rmdir()
        raise
    finish_writing(folder)


def finish_writing(folder: Path) -> None:
    """Move the files of a process that was killed while it moved them, and remove what another one had not finished.

    Several processes may do so at once.

    Raises:
        OSError: the folder cannot be written to.
    """
    for ready in sorted(folder.glob(f"{_READY}*")):
        for path in sorted(path for path in ready.rglob("*") if path.is_file()):
            target = folder / path.relative_to(ready)
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # another process has just moved it
                path.replace(target)
        shutil.rmtree(ready, ignore_errors=True)
    for staged in folder.glob(f"{_STAGED}*"):
        if not _is_running(staged):
            shutil.rmtree(staged, ignore_errors=True)


def _is_running(staged: Path) -> bool:
    """Whether the process that writes a folder may be there; one of another host may be for a day."""
    host, _, process = staged.name.removeprefix(_STAGED).rpartition("-")[0].rpartition("-")
    if host != socket.gethostname():
        with contextlib.suppress(OSError):
            return time.time() - staged.stat().st_mtime < 24 * 3600
        return False
    try:
        os.kill(int(process), 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True


def place_of(path: Path) -> Path:
    """Where a file of a folder of `writing_together` will lie; any other path as it is.

    Examples:
        >>> place_of(Path("run/.staged-7-ab/diagnostics/gap.csv")).as_posix(), place_of(Path("run/a.csv")).as_posix()
        ('run/diagnostics/gap.csv', 'run/a.csv')
    """
    return Path(*(part for part in path.parts if not part.startswith(_STAGED)))
