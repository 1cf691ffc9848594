"""Fetch published files: whole or not at all, checked, and with one message that says what to do without a network.

Two calls, for a benchmark that is called NAME and keeps its files in `folder`:

    path = fetch(url, folder, "file.csv", what=NAME, sha256="...", advice="Or use source=...")
    paths = fetch_members(url, folder, {"train.pt": "NAME/train.pt"}, what=NAME, advice="Or use source=...")

Files that are there are taken as they are. Both write to a temporary name in `folder` first and rename at the end.
PyG's and OGB's own downloaders are not used: they leave certificates unchecked, wait for ever, or ask at the terminal,
and unpack whatever an archive holds.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path, PurePosixPath, PureWindowsPath
from urllib.parse import urlsplit

from graphbench.data.progress import progress
from graphbench.errors import CorruptData, MissingData

_TIMEOUT = 30.0  # seconds without an answer
_BLOCK = 1 << 20
#: What zipfile raises on archives that are cut short, altered, or no archives.
BAD_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


def fetch(
    url: str,
    folder: Path,
    file: str,
    *,
    what: str,
    sha256: str | None = None,
    md5: str | None = None,
    others: Mapping[str, str] | None = None,
    advice: str = "",
) -> Path:
    """The file `folder/file`, downloaded unless it is there.

    Args:
        url: where it is published.
        folder: where it belongs; made where it is missing.
        file: its name there.
        what: what it is part of ("ZINC"), for messages and the progress bar.
        sha256: of its content, in hexadecimal; also a file that is there already must have it.
        md5: the same, for publishers that give no better checksum.
        others: name -> address of further files that will be wanted in `folder`, so that one message tells them all.
        advice: what to do without a network, as whole sentences.

    Returns:
        Its path.

    Raises:
        MissingData: it could not be fetched; says what, from where, and where to put it.
        CorruptData: its content has another checksum.
    """
    target = folder / file
    if target.is_file():
        check_content(target, sha256=sha256, md5=md5)
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
        fetched = Path(temporary, PurePosixPath(file).name)
        _download(url, fetched, what, by_hand(folder, {file: url, **(others or {})}, advice))
        check_content(fetched, sha256=sha256, md5=md5)
        fetched.replace(target)
    return target


def fetch_members(
    url: str,
    folder: Path,
    members: Mapping[str, str],
    *,
    what: str,
    archive: str | None = None,
    archive_folder: Path | None = None,
    sha256: str | None = None,
    others: Mapping[str, str] | None = None,
    advice: str = "",
) -> dict[str, Path]:
    """Some files of a published zip archive as `folder/NAME`; the archive is not kept.

    They are taken as they are when all of them are there; else out of the archive, where somebody put it by hand; else
    it is downloaded.

    Args:
        url: of the archive.
        folder: where its files belong; made where it is missing.
        members: name in `folder` -> path inside the archive.
        what: what it is ("ZINC"), for messages and the progress bar.
        archive: its file name; by default the last part of `url`.
        archive_folder: where an archive put by hand lies, and `others`; `folder` by default.
        sha256: of the archive, in hexadecimal.
        others: name -> address of further files that will be wanted in `folder`, so that one message tells them all.
        advice: what to do without a network, as whole sentences.

    Returns:
        The paths by their names, in the order of `members`.

    Raises:
        MissingData: it could not be fetched; says what, from where, and where to put it.
        CorruptData: the archive is damaged, is another one, or has paths that lead out of its folder.
    """
    paths = {name: folder / name for name in members}
    absent = {name: member for name, member in members.items() if not paths[name].is_file()}
    if not absent:
        return paths
    place = folder if archive_folder is None else archive_folder
    local = place / (archive or PurePosixPath(urlsplit(url).path).name)
    if local.is_file():
        check_content(local, sha256=sha256)
        extract(local, folder, absent)
        return paths
    folder.mkdir(parents=True, exist_ok=True)
    held = f"{url} (or {', '.join(absent)}, which it holds{'' if place == folder else f', into {folder}'})"
    remedy = by_hand(place, {local.name: held, **(others or {})}, advice)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
        fetched = Path(temporary, local.name)
        _download(url, fetched, what, remedy)
        try:
            check_content(fetched, sha256=sha256)
            extract(fetched, folder, absent)
        except CorruptData as error:
            raise CorruptData(f"{what}, as {url} sent it: {error}\n{remedy}") from error
    return paths


def _download(url: str, path: Path, what: str, remedy: str) -> None:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer, path.open("wb") as file:
            length = answer.headers.get("Content-Length")
            with progress(f"Downloading {what}", None if length is None else int(length), "bytes") as advance:
                while block := answer.read(_BLOCK):
                    file.write(block)
                    advance(len(block))
            if length is not None and file.tell() != int(length):
                raise HTTPException(f"the connection ended after {file.tell():,} of {int(length):,} bytes")
    except (OSError, HTTPException) as error:
        raise MissingData(f"{what} could not be downloaded ({type(error).__name__}: {error}). {remedy}") from error


def extract(archive: Path, folder: Path, members: Mapping[str, str] | Iterable[str]) -> None:
    """Unpack some members of a zip archive; each appears whole or not at all.

    Args:
        archive: the zip file.
        folder: where they go; made where it is missing.
        members: name in `folder` -> path inside the archive, or only the paths, of which the last part is the name.

    Raises:
        CorruptData: the archive is damaged, lacks a member, or has names that lead out of a folder.
    """
    wanted = members if isinstance(members, Mapping) else {PurePosixPath(path).name: path for path in members}
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(archive) as opened:
            _check_names(archive, opened.namelist(), list(wanted.values()))
            for name, member in wanted.items():
                _unpack(opened, member, folder / name)
    except BAD_ARCHIVE as error:
        raise CorruptData(
            f"{archive.name} is no whole zip archive ({type(error).__name__}: {error}). Delete it and fetch it again."
        ) from error


def _check_names(archive: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    outside = [name for name in names if leads_out(name)]
    if outside:
        raise CorruptData(
            f"{archive.name} holds {outside[0]!r}, which leads out of its folder: nothing was unpacked. "
            "Fetch the archive again from its publisher."
        )
    absent = [name for name in wanted if name not in names]
    if absent:
        raise CorruptData(f"{archive.name} holds no {absent[0]}, but {', '.join(names[:5]) or 'nothing'}.")


def _unpack(archive: zipfile.ZipFile, member: str, target: Path) -> None:
    part = target.with_name(f".{target.name}.part")
    try:
        with archive.open(member) as packed, part.open("wb") as file:
            shutil.copyfileobj(packed, file, _BLOCK)  # zipfile compares its checksum at the end
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def leads_out(name: str) -> bool:
    """Whether a path inside an archive is absolute or climbs, as any system reads it."""
    windows = PureWindowsPath(name)
    return bool(windows.drive or windows.root) or ".." in windows.parts or PurePosixPath(name).is_absolute()


def check_content(path: Path, *, sha256: str | None = None, md5: str | None = None) -> None:
    """Compare checksums; nothing is read where none is given.

    Raises:
        CorruptData: the file has another one.
    """
    for algorithm, expected in (("sha256", sha256), ("md5", md5)):
        if expected is None:
            continue
        digest = hashlib.new(algorithm, usedforsecurity=False)
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
        if (found := digest.hexdigest()) != expected:
            raise CorruptData(
                f"{path.name} is not the published file: its {algorithm.upper()} is {found} instead of {expected}. "
                "Delete it and fetch it again."
            )


def by_hand(folder: Path, files: Mapping[str, str], advice: str = "") -> str:
    """What to put where: `files` are names -> addresses, `advice` follows them."""
    lines = [f"Put {'this file' if len(files) == 1 else 'these files'} into {folder}:"]
    lines += [f"  {name} from {url}" for name, url in files.items()]
    return "\n".join(lines + [advice] * bool(advice))
