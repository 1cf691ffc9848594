"""Files of a published set, read from its zip archive or from the folder out of it."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graphbench.data.archives import BAD_ZIP, damaged_zip, open_zip
from graphbench.errors import CorruptData, MissingData


@dataclass(frozen=True)
class Files:
    """Files below one folder, on disk or in an archive. Small: it is sent to other processes, which open it again.

    Args:
        path: the folder, or the archive.
        prefix: folder inside the archive; None when `path` is a folder.
    """

    path: Path
    prefix: str | None = None

    def names(self) -> list[str]:
        """Paths of all files below the folder, with forward slashes, sorted.

        Raises:
            CorruptData: the archive cannot be read.
        """
        if self.prefix is None:
            return sorted(file.relative_to(self.path).as_posix() for file in self.path.rglob("*") if file.is_file())
        with self._opened() as archive:
            start = self.prefix + "/"
            return sorted(n.removeprefix(start) for n in archive.namelist() if n.startswith(start) and n[-1] != "/")

    def read(self, names: Sequence[str]) -> list[bytes]:
        """Contents of some files.

        Raises:
            MissingData: a file is not there.
            CorruptData: the archive cannot be read.
        """
        if self.prefix is None:
            absent = [name for name in names if not (self.path / name).is_file()]
            if absent:
                raise MissingData(f"{self.path} lacks {absent[0]}. Unpack its archive again.")
            return [(self.path / name).read_bytes() for name in names]
        with self._opened() as archive:
            try:
                return [archive.read(f"{self.prefix}/{name}") for name in names]
            except KeyError as error:
                raise CorruptData(f"{self.path} is not the whole archive: {error}. Fetch it again.") from error
            except (*BAD_ZIP, OSError) as error:
                raise damaged_zip(self.path, error) from error

    def _opened(self) -> zipfile.ZipFile:
        return open_zip(self.path)


def bytes_of_name(name: str) -> bytes:
    r"""A file's name as numbers for a seed, the same on every system; names that are not UTF-8 have some, too.

    Examples:
        >>> bytes_of_name("\u00e9"), len(bytes_of_name("b\udcffad"))
        (b'\xc3\xa9', 6)
    """
    return name.encode("utf-8", "surrogatepass")


def shown_name(text: str) -> str:
    r"""A file's name, or a text with one, as it can be written: bytes that are not UTF-8 as their numbers.

    Examples:
        >>> print(shown_name("b\udcffad.xyz"))
        b\xffad.xyz
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def find_files(folder: Path, archive: str, prefix: str, marker: str) -> Files | None:
    """Where a set lies below `folder`; None where it does not.

    Args:
        folder: to look in.
        archive: name of the zip archive.
        prefix: the folder that it holds.
        marker: a file or folder of the set, which tells that a folder is it.
    """
    for place in (folder / prefix, folder / "raw", folder):
        if (place / marker).exists():
            return Files(place)
    return Files(folder / archive, prefix) if (folder / archive).is_file() else None
