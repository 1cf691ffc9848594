"""Read files of a published data set from its zip archive or its unpacked folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graphbench.data.archives import BAD_ZIP, damaged_zip, open_zip
from graphbench.data.files.listing import files_below
from graphbench.errors import CorruptData, MissingData


@dataclass(frozen=True)
class Files:
    """Files below one folder, on disk or in an archive; can be pickled, since each process opens the archive itself.

    `prefix` is the folder inside the archive; None if `path` is a folder.
    """

    path: Path
    prefix: str | None = None

    def names(self) -> list[str]:
        """List the paths of all files below the folder, with forward slashes, sorted."""
        if self.prefix is None:
            return sorted(file.relative_to(self.path).as_posix() for file in files_below(self.path))
        with open_zip(self.path) as archive:
            start = self.prefix + "/"
            return sorted(n.removeprefix(start) for n in archive.namelist() if n.startswith(start) and n[-1] != "/")

    def read(self, names: Sequence[str]) -> list[bytes]:
        """Read some files."""
        if self.prefix is None:
            absent = [name for name in names if not (self.path / name).is_file()]
            if absent:
                raise MissingData(f"{self.path} lacks {absent[0]}. Unpack its archive again.")
            return [(self.path / name).read_bytes() for name in names]
        with open_zip(self.path) as archive:
            try:
                return [archive.read(f"{self.prefix}/{name}") for name in names]
            except KeyError as error:
                raise CorruptData(f"{self.path} is not the whole archive: {error}. Fetch it again.") from error
            except (*BAD_ZIP, OSError) as error:
                raise damaged_zip(self.path, error) from error


def bytes_of_name(name: str) -> bytes:
    r"""Encode a file's name for a seed, with the same result on every system, even if it is not UTF-8.

    Examples:
        >>> bytes_of_name("\u00e9"), len(bytes_of_name("b\udcffad"))
        (b'\xc3\xa9', 6)
    """
    return name.encode("utf-8", "surrogatepass")


def shown_name(text: str) -> str:
    r"""Return a text with a file's name in printable form, where bytes that are not UTF-8 become escapes.

    Examples:
        >>> print(shown_name("b\udcffad.xyz"))
        b\xffad.xyz
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def find_files(folder: Path, archive: str, prefix: str, marker: str) -> Files | None:
    """Find a data set below `folder`, unpacked (its folder has a `marker`) or as an archive with folder `prefix`."""
    for place in (folder / prefix, folder / "raw", folder):
        if (place / marker).exists():
            return Files(place)
    return Files(folder / archive, prefix) if (folder / archive).is_file() else None
