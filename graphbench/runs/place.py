"""Where a folder is while a program writes into it, whatever others do with its name."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType


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
            path = Path(os.readlink(f"/proc/self/fd/{self._handle}"))
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
