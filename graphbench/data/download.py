"""Fetch and verify published files, whole or not at all, with advice for machines without a network.

There are two functions. For a benchmark called NAME that keeps its files in `folder`:

    path = fetch(url, folder, "file.csv", what=NAME, sha256="...", advice="Or use source=...")
    paths = fetch_members(url, folder, {"train.pt": "NAME/train.pt"}, what=NAME, advice="Or use source=...")

Existing files are used unchanged. Both functions write to a temporary name in `folder` first and rename at the end. One
process downloads at a time; the others wait, then use the files that it fetched. PyG's and OGB's downloaders are not
used: they skip certificate checks, have no timeout, or prompt at the terminal, and they unpack any member of an
archive.

All downloads use https. A file must match its publisher's checksum, if there is one. The checksums of the first
download are recorded in `folder/SHA256SUMS` (`sha256sum --check --ignore-missing SHA256SUMS`), and files that differ
later are refused.
"""

from __future__ import annotations

import contextlib
import tempfile
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import urlsplit

from graphbench.data.archives import BAD_ZIP, MOST_BYTES, damaged_zip, open_zip, unpack_member
from graphbench.data.files.sharing import access_advice, locked, make_folder, share, write_shared
from graphbench.data.files.writing import no_room
from graphbench.data.package_files import compute_digest
from graphbench.data.progress import progress
from graphbench.errors import CorruptData, MissingData

_TIMEOUT = 30.0  # seconds without an answer
_BLOCK = 1 << 20
#: Protocols of downloads.
_SCHEMES = ("https",)
#: File with the checksums of a folder's downloads, in the format of `sha256sum`.
SUMS = "SHA256SUMS"
#: Lock of the process that writes files into a folder.
_LOCK = ".fetch.lock"


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
    """Download `folder/file` unless it exists, and return its path.

    Args:
        url: address of the file; http becomes https.
        folder: folder of the file; created if missing.
        file: its name there.
        what: name of the data set ("ZINC"), for messages and the progress bar.
        sha256: checksum of its content, in hexadecimal; an existing file must have it as well.
        md5: the same, for publishers that give no better checksum.
        others: name -> address of further files that `folder` will need, so that one message lists them all.
        advice: for a machine without a network, in whole sentences.

    Raises:
        MissingData: it could not be fetched; the message says where to get it and where to put it.
        CorruptData: its checksum is not the published one, or differs from that of the first download.

    Examples:
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "graphs.csv").write_text("put there by hand")
        >>> fetch("https://example.org/graphs.csv", folder, "graphs.csv", what="MINE").read_text()
        'put there by hand'
    """
    target, url = folder / file, _secure(url)
    with _alone(folder, what, lambda: target.is_file()) as absent:
        if absent:
            remedy = by_hand(folder, {file: url, **(others or {})}, advice)
            with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
                fetched = Path(temporary, PurePosixPath(file).name)
                _download(url, fetched, what, remedy)
                with _sent_by(url, what, remedy):
                    check_content(fetched, sha256=sha256, md5=md5)
                _publish({file: fetched}, folder, _check_recorded(folder, {file: fetched}, every=True))
            return target
    check_content(target, sha256=sha256, md5=md5)
    _check_recorded(folder, {file: target})
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
    md5: str | None = None,
    others: Mapping[str, str] | None = None,
    advice: str = "",
) -> dict[str, Path]:
    """Extract some files of a published zip archive to `folder/NAME`; return their paths by name.

    Existing files are used unchanged. Missing ones come from an archive that the user put there by hand, or else from a
    downloaded one, which is not kept.

    Args:
        url: address of the archive; http becomes https.
        folder: folder of the files; created if missing.
        members: name in `folder` -> path inside the archive.
        what: name of the data set ("ZINC"), for messages and the progress bar.
        archive: its file name; by default the last part of `url`.
        archive_folder: folder of an archive that was put there by hand, and of `others`; `folder` by default.
        sha256: checksum of the archive, in hexadecimal.
        md5: the same, for publishers that give no better checksum.
        others: name -> address of further files that `folder` will need, so that one message lists them all.
        advice: for a machine without a network, in whole sentences.

    Raises:
        MissingData: it could not be fetched; the message says where to get it and where to put it.
        CorruptData: the archive is damaged, is not the published or first fetched one, violates the limits of
            `graphbench.data.archives`, or an existing file changed since it was fetched.

    Examples:
        >>> import zipfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with zipfile.ZipFile(folder / "mine.zip", "w") as archive:  # put there by hand
        ...     archive.writestr("raw/graphs.csv", "the graphs")
        >>> list(fetch_members("https://example.org/mine.zip", folder, {"g.csv": "raw/graphs.csv"}, what="MINE"))
        ['g.csv']
    """
    url, paths = _secure(url), {name: folder / name for name in members}
    place = folder if archive_folder is None else archive_folder
    local = place / (archive or PurePosixPath(urlsplit(url).path).name)
    with _alone(folder, what, lambda: all(path.is_file() for path in paths.values())):
        absent = {name: member for name, member in members.items() if not paths[name].is_file()}
        _check_recorded(folder, {name: path for name, path in paths.items() if name not in absent})
        if absent:
            held = f"{url} (or {', '.join(absent)}, which it holds{'' if place == folder else f', into {folder}'})"
            remedy = by_hand(place, {local.name: held, **(others or {})}, advice)
            _extract_missing(url, local, folder, absent, what, remedy, {"sha256": sha256, "md5": md5})
    return paths


def _extract_missing(
    url: str,
    archive: Path,
    folder: Path,
    members: Mapping[str, str],
    what: str,
    remedy: str,
    checksums: Mapping[str, str | None],
) -> None:
    """Extract files of an archive to `folder`; download the archive unless the user put it there."""
    # The temporary folder is below `folder`, so that the last step is a rename on one file system.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
        faults: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if is_download := not archive.is_file():
            archive, faults = Path(temporary, archive.name), _sent_by(url, what, remedy)
            _download(url, archive, what, remedy)
        sums = _check_recorded(folder, {archive.name: archive}, every=is_download)
        files = {name: Path(temporary, "members", name) for name in members}
        with faults:
            check_content(archive, **checksums)
            extract(archive, Path(temporary, "members"), members)
            sums |= _check_recorded(folder, files, every=True)
        _publish(files, folder, sums)


@contextlib.contextmanager
def _sent_by(url: str, what: str, remedy: str) -> Iterator[None]:
    """Name the address in errors about a downloaded file, since the user has no copy to delete."""
    try:
        yield
    except CorruptData as error:
        raise CorruptData(f"{what}, as {url} sent it: {error}\n{remedy}") from error


@contextlib.contextmanager
def _alone(folder: Path, what: str, complete: Callable[[], bool]) -> Iterator[bool]:
    """Let one process at a time write files into a folder; yield whether they are missing.

    Args:
        folder: the folder; created if missing. If its files exist, nothing is written and no process waits.
        what: name of the data set, for the warning of waiting processes.
        complete: returns whether the files exist.

    Raises:
        MissingData: they are missing, and this user may not write there, or the disk is full.
    """
    if complete():
        yield False
        return
    try:
        # An ExitStack distinguishes a PermissionError of the lock from one of the caller's block.
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(
                    locked(folder / _LOCK, f"Waiting for another process that fetches {what} into {folder}.")
                )
            except PermissionError as error:
                raise MissingData(f"{what} cannot be put into {folder}: {access_advice(folder, folder)}") from error
            yield not complete()
    except Exception as error:
        if reason := no_room(error):
            raise MissingData(
                f"{what} cannot be put into {folder}: {reason}. Make room there, or choose another folder with the "
                "benchmark's option `root`."
            ) from error
        raise


def _publish(files: Mapping[str, Path], folder: Path, sums: Mapping[str, str]) -> None:
    """Move verified files to their places, and record their checksums."""
    for name, file in files.items():
        # Before the move, so that a file is never there without access for the group.
        share(file, folder)
        make_folder((folder / name).parent)
        file.replace(folder / name)
    merged = _recorded(folder) | dict(sums)
    write_shared(folder / SUMS, "".join(f"{checksum}  {name}\n" for name, checksum in sorted(merged.items())))


def _secure(url: str) -> str:
    """Replace http by https."""
    return f"https://{url.removeprefix('http://')}" if url.startswith("http://") and "https" in _SCHEMES else url


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects that stay encrypted."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Follow a redirect, or raise `OSError` if it is not encrypted."""
        _check_scheme(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_scheme(url: str) -> None:
    if (scheme := urlsplit(url).scheme) not in _SCHEMES:
        raise OSError(f"{url} uses {scheme or 'no protocol'}, but only {' and '.join(_SCHEMES)} is safe")


def open_url(url: str, timeout: float) -> Any:
    """Open an address; raise `OSError` if there is no answer or the answer cannot be trusted."""
    _check_scheme(url)
    return urllib.request.build_opener(_Redirects).open(url, timeout=timeout)


def _download(url: str, path: Path, what: str, remedy: str) -> None:
    try:
        with open_url(url, timeout=_TIMEOUT) as answer, path.open("wb") as file:
            length = answer.headers.get("Content-Length")
            with progress(f"Downloading {what}", None if length is None else int(length), "bytes") as advance:
                while block := answer.read(_BLOCK):
                    file.write(block)
                    advance(len(block))
                    if file.tell() > MOST_BYTES:
                        raise HTTPException(f"no end after {MOST_BYTES >> 30} GB")
            if length is not None and file.tell() != int(length):
                raise HTTPException(f"the connection ended after {file.tell():,} of {int(length):,} bytes")
    except (OSError, HTTPException) as error:
        raise MissingData(f"{what} could not be downloaded ({type(error).__name__}: {error}). {remedy}") from error


def extract(archive: Path, folder: Path, members: Mapping[str, str] | Iterable[str]) -> None:
    """Unpack some members of a zip archive; each appears whole or not at all.

    Args:
        archive: the zip file.
        folder: folder of the files; created if missing.
        members: name in `folder` -> path inside the archive, or only the paths, whose last parts are the names.

    Raises:
        CorruptData: the archive is damaged, lacks a member, or has names that lead out of the folder.
    """
    wanted = members if isinstance(members, Mapping) else {PurePosixPath(path).name: path for path in members}
    folder.mkdir(parents=True, exist_ok=True)
    with open_zip(archive) as opened:
        try:
            names = opened.namelist()
            if absent := [member for member in wanted.values() if member not in names]:
                raise CorruptData(f"{archive.name} holds no {absent[0]}, but {', '.join(names[:5]) or 'nothing'}.")
            for name, member in wanted.items():
                unpack_member(opened, member, folder / name)
        except BAD_ZIP as error:
            raise damaged_zip(archive, error) from error


# -- checksums -------------------------------------------------------------------------------------------------------


def _recorded(folder: Path) -> dict[str, str]:
    """Read the recorded SHA-256 of each download in a folder."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptData(f"{folder / SUMS} cannot be read ({error}). Delete it if the files are right.") from error
    return {name: checksum for checksum, _, name in (line.partition("  ") for line in lines) if name}


def _check_recorded(folder: Path, files: Mapping[str, Path], every: bool = False) -> dict[str, str]:
    """Compare files with the checksums of their first download, and return the checksums.

    Args:
        folder: folder with the record.
        files: name in the record -> current path of the file.
        every: also compute the checksums of files without a record.
    """
    # Without files the record is not read, since it may be unreadable.
    recorded = _recorded(folder) if files else {}
    sums = {name: compute_digest(path, "sha256") for name, path in files.items() if every or name in recorded}
    for name, actual in sums.items():
        if recorded.get(name, actual) != actual:
            raise CorruptData(
                f"{name} is not what was first downloaded into {folder}: its SHA-256 is {actual} instead of "
                f"{recorded[name]}. Delete it to fetch it again; if its publisher replaced it, delete its line in "
                f"{SUMS}."
            )
    return sums


def check_content(path: Path, *, sha256: str | None = None, md5: str | None = None) -> None:
    """Compare a file with the given checksums."""
    for algorithm, expected in (("sha256", sha256), ("md5", md5)):
        if expected is not None and (actual := compute_digest(path, algorithm)) != expected:
            raise CorruptData(
                f"{path.name} is not the published file: its {algorithm.upper()} is {actual} instead of {expected}. "
                "Delete it and fetch it again."
            )


def by_hand(folder: Path, files: Mapping[str, str], advice: str = "") -> str:
    """Say which files (name -> address) to put into a folder by hand, followed by `advice`."""
    lines = [f"Put {'this file' if len(files) == 1 else 'these files'} into {folder}:"]
    lines += [f"  {name} from {url}" for name, url in files.items()]
    return "\n".join(lines + [advice] * bool(advice))
