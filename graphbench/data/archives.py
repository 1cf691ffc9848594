"""Read published archives within limits: refuse bombs, links and paths that leave the folder."""

from __future__ import annotations

import gzip
import io
import shutil
import stat
import struct
import tarfile
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

from graphbench.errors import CorruptData, MissingData

#: Maximum number of members. The largest archive read here, of movie reviews, has about a hundred thousand.
MOST_MEMBERS = 2_000_000
#: Maximum unpacked bytes of an archive, and of a file that is unpacked in memory.
MOST_BYTES, MOST_IN_MEMORY = 64 << 30, 4 << 30
#: Maximum ratio of unpacked to packed bytes, above `RATIO_ABOVE` bytes. Tables of zeros reach a few tens; a bomb
#: reaches a thousand, the limit of the format.
MOST_RATIO, RATIO_ABOVE = 500, 64 << 20
#: Errors of the standard library on zip archives that are truncated, altered, or not archives at all.
BAD_ZIP = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError)
_BAD_TAR = (tarfile.TarError, OSError, EOFError, zlib.error)
_BLOCK = 1 << 20
_AGAIN = "nothing was unpacked. Fetch it again from its publisher."


def leads_out(name: str) -> bool:
    """Return whether a path inside an archive is absolute or contains `..`, on any system.

    Examples:
        >>> [leads_out(name) for name in ("set/a.pt", "../a.pt", "/a.pt", "C:/a.pt")]
        [False, True, True, True]
    """
    windows = PureWindowsPath(name)
    return bool(windows.drive or windows.root) or ".." in windows.parts or PurePosixPath(name).is_absolute()


def check_size(name: str, unpacked: int, packed: int) -> None:
    """Refuse an archive that unpacks to more than any published one.

    Raises:
        CorruptData: it is too large, in total or relative to its packed size.

    Examples:
        >>> check_size("bomb.zip", 10 << 30, 10 << 20)
        Traceback (most recent call last):
        graphbench.errors.CorruptData: bomb.zip makes 10,240 MB out of 10 MB: nothing was unpacked. Fetch it again \
from its publisher.
    """
    if unpacked > MOST_BYTES or unpacked > max(RATIO_ABOVE, MOST_RATIO * packed):
        raise CorruptData(f"{name} makes {unpacked >> 20:,} MB out of {packed >> 20:,} MB: {_AGAIN}")


def _check_member(archive: Path, name: str, number: int, link: bool) -> None:
    if number > MOST_MEMBERS:
        raise CorruptData(f"{archive.name} holds more than {MOST_MEMBERS:,} files: {_AGAIN}")
    if leads_out(name):
        raise CorruptData(f"{archive.name} holds {name!r}, which leads out of its folder: {_AGAIN}")
    if link:
        raise CorruptData(f"{archive.name} holds {name!r}, which is a link or a device: {_AGAIN}")


def open_zip(archive: Path) -> zipfile.ZipFile:
    """Open a zip archive and check its members against the limits.

    Raises:
        CorruptData: the archive violates one, or is not a complete zip archive.
    """
    try:
        opened = zipfile.ZipFile(archive)
    except (*BAD_ZIP, OSError) as error:
        raise damaged_zip(archive, error) from error
    try:
        for number, info in enumerate(opened.infolist(), 1):
            # The upper half has the Unix mode of the member; archives of other systems have 0 there.
            special = stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR)
            _check_member(archive, info.filename, number, special)
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                method = NotImplementedError(f"{info.filename} is packed by method {info.compress_type}")
                raise damaged_zip(archive, method)
            check_size(f"{archive.name}, {info.filename},", info.file_size, info.compress_size)
        check_size(archive.name, sum(info.file_size for info in opened.infolist()), archive.stat().st_size)
    except BaseException:
        opened.close()
        raise
    return opened


def damaged_zip(archive: Path, error: Exception) -> CorruptData:
    """Build the error of an archive that `zipfile` cannot read."""
    return CorruptData(
        f"{archive.name} is not a whole zip file ({type(error).__name__}: {error}). Delete it and fetch it again."
    )


def unpack_member(opened: zipfile.ZipFile, member: str, target: Path) -> None:
    """Unpack one member to a file, whole or not at all.

    Raises:
        MissingData: the disk has no space for it.
        zipfile.BadZipFile: its content does not match its checksum.
    """
    size, free = opened.getinfo(member).file_size, shutil.disk_usage(target.parent).free
    if size > free:
        raise MissingData(
            f"{target} needs {size >> 20:,} MB, and its disk has {free >> 20:,} MB left. Make room there, or choose "
            "another folder with the benchmark's option `root`."
        )
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        packed = opened.open(member)
    except OSError as error:  # its offset is before the beginning of the file
        raise zipfile.BadZipFile(f"{member} is not where the directory says") from error
    try:
        with packed, part.open("wb") as file:
            shutil.copyfileobj(packed, file, _BLOCK)  # reads at most the stated size, then verifies the checksum
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def read_tar(archive: Path, wanted: Callable[[str], bool], publisher: str) -> Iterator[tuple[str, bytes]]:
    """Read path and content of the `wanted` files of a `.tar.gz` archive, in its order, without writing files.

    Raises:
        CorruptData: it is damaged, or violates the limits of this module.
    """
    packed, unpacked = archive.stat().st_size, 0
    try:
        with tarfile.open(archive, "r:gz") as members:
            for number, member in enumerate(members, 1):
                _check_member(archive, member.name, number, not (member.isfile() or member.isdir()))
                # Unread members count as well: a packed tar has to be unpacked to get past them.
                unpacked += member.size
                check_size(archive.name, unpacked, packed)
                if member.isfile() and wanted(member.name):
                    file = members.extractfile(member)
                    assert file is not None, "extractfile returns None only for directories"
                    yield member.name, file.read()
    except _BAD_TAR as error:
        raise CorruptData(
            f"{archive} is not the whole archive ({type(error).__name__}: {error}). Fetch it again from {publisher}."
        ) from error


class _Limited(io.RawIOBase):
    """Stream that raises an error when it exceeds the limits."""

    def __init__(self, stream: io.BufferedIOBase, path: Path) -> None:
        self._stream, self._path, self._read = stream, path, 0
        self._packed = path.stat().st_size

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer, or raise `CorruptData` if the content exceeds the limits."""
        count = self._stream.readinto(buffer)
        # Count while reading: a .gz file states its size modulo 2^32, and only that of its last part.
        self._read += count
        check_size(self._path.name, self._read, self._packed)
        if self._read > MOST_IN_MEMORY:
            raise CorruptData(f"{self._path.name} unpacks to more than {MOST_IN_MEMORY >> 30} GB: {_AGAIN}")
        return count

    def close(self) -> None:
        """Close the underlying stream as well."""
        self._stream.close()
        super().close()


def open_gzip(path: Path) -> io.BufferedReader:
    """Open the content of a `.gz` file as a stream that raises `CorruptData` on a bomb."""
    return io.BufferedReader(_Limited(gzip.open(path, "rb"), path), _BLOCK)  # type: ignore[arg-type]
