"""Fetch published files: whole or not at all, checked, and with one message that says what to do without a network.

Two calls, for a benchmark that is called NAME and keeps its files in `folder`:

    path = fetch(url, folder, "file.csv", what=NAME, sha256="...", advice="Or use source=...")
    paths = fetch_members(url, folder, {"train.pt": "NAME/train.pt"}, what=NAME, advice="Or use source=...")

Files that are there are taken as they are. Both write to a temporary name in `folder` first and rename at the end, one
process at a time: others wait, and take what the first has fetched.
PyG's and OGB's own downloaders are not used: they leave certificates unchecked, wait for ever, or ask at the terminal,
and unpack whatever an archive holds.

Everything goes over https. What is downloaded has the checksum that its publisher states, where there is one; the
checksums of the first download are kept in `folder/SHA256SUMS` (`sha256sum --check --ignore-missing SHA256SUMS`), and
files that differ from them later are refused.
"""

from __future__ import annotations

import contextlib
import tempfile
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import urlsplit

from graphbench.data.archives import BAD_ZIP, MOST_BYTES, damaged_zip, open_zip, unpack_member
from graphbench.data.files.sharing import access_advice, locked, make_folder, share
from graphbench.data.package_files import compute_digest
from graphbench.data.progress import progress
from graphbench.errors import CorruptData, MissingData

_TIMEOUT = 30.0  # seconds without an answer
_BLOCK = 1 << 20
#: How files may be fetched.
_SCHEMES = ("https",)
#: Where the checksums of a folder's downloads are kept, in the format of `sha256sum`.
SUMS = "SHA256SUMS"
#: Held by the process that puts files into a folder.
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
    """The file `folder/file`, downloaded unless it is there.

    Args:
        url: where it is published; an address with http is taken with https.
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
        CorruptData: its content has another checksum than the published one, or than it had when it was first fetched.

    Examples:
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "graphs.csv").write_text("put there by hand")
        >>> fetch("https://example.org/graphs.csv", folder, "graphs.csv", what="MINE").read_text()
        'put there by hand'
    """
    target, url = folder / file, _secure(url)
    with _alone(folder, what, lambda: target.is_file()) as absent:
        if absent:
            with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
                fetched = Path(temporary, PurePosixPath(file).name)
                _download(url, fetched, what, by_hand(folder, {file: url, **(others or {})}, advice))
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
    """Some files of a published zip archive as `folder/NAME`; the archive is not kept.

    They are taken as they are when all of them are there; else out of the archive, where somebody put it by hand; else
    it is downloaded.

    Args:
        url: of the archive; one with http is taken with https.
        folder: where its files belong; made where it is missing.
        members: name in `folder` -> path inside the archive.
        what: what it is ("ZINC"), for messages and the progress bar.
        archive: its file name; by default the last part of `url`.
        archive_folder: where an archive put by hand lies, and `others`; `folder` by default.
        sha256: of the archive, in hexadecimal.
        md5: the same, for publishers that give no better checksum.
        others: name -> address of further files that will be wanted in `folder`, so that one message tells them all.
        advice: what to do without a network, as whole sentences.

    Returns:
        The paths by their names, in the order of `members`.

    Raises:
        MissingData: it could not be fetched; says what, from where, and where to put it.
        CorruptData: the archive is damaged, is another one than published or first fetched, breaks the limits of
            `graphbench.data.archives`, or a file that is there changed since it was fetched.

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
        if not absent:
            return paths
        if local.is_file():
            _local_members(local, folder, absent, sha256, md5)
        else:
            held = f"{url} (or {', '.join(absent)}, which it holds{'' if place == folder else f', into {folder}'})"
            remedy = by_hand(place, {local.name: held, **(others or {})}, advice)
            _download_members(url, folder, local.name, absent, what, remedy, sha256, md5)
    return paths


@contextlib.contextmanager
def _alone(folder: Path, what: str, complete: Callable[[], bool]) -> Iterator[bool]:
    """Let one process at a time put files into a folder; others wait, and use what it has put there.

    Args:
        folder: made where it is missing. One whose files are all there is not written to, and nobody waits.
        what: what is fetched, for the warning of those who wait.
        complete: whether the files are there.

    Yields:
        Whether they are still to be put there.

    Raises:
        MissingData: they are, and this user may not write there.
    """
    if complete():
        yield False
        return
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(
                locked(folder / _LOCK, f"Waiting for another process that fetches {what} into {folder}.")
            )
        except PermissionError as error:
            raise MissingData(f"{what} cannot be put into {folder}: {access_advice(folder, folder)}") from error
        yield not complete()


def _publish(files: Mapping[str, Path], folder: Path, sums: Mapping[str, str]) -> None:
    """Move whole files, which were checked, to their places, and keep their checksums."""
    for name, file in files.items():
        share(file, folder)
        make_folder((folder / name).parent)
        file.replace(folder / name)
    _record(folder, sums)


def _local_members(
    archive: Path, folder: Path, members: Mapping[str, str], sha256: str | None, md5: str | None
) -> None:
    """Put files of an archive that is there into `folder`."""
    check_content(archive, sha256=sha256, md5=md5)
    _check_recorded(folder, {archive.name: archive})
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
        files, sums = _extract_checked(archive, Path(temporary), folder, members)
        _publish(files, folder, sums)


def _download_members(
    url: str,
    folder: Path,
    archive: str,
    members: Mapping[str, str],
    what: str,
    remedy: str,
    sha256: str | None,
    md5: str | None,
) -> None:
    """Put files of an archive that is downloaded for them into `folder`."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
        fetched = Path(temporary, archive)
        _download(url, fetched, what, remedy)
        sums = _check_recorded(folder, {archive: fetched}, every=True)
        try:
            check_content(fetched, sha256=sha256, md5=md5)
            files, inside = _extract_checked(fetched, Path(temporary, "members"), folder, members)
        except CorruptData as error:
            raise CorruptData(f"{what}, as {url} sent it: {error}\n{remedy}") from error
        _publish(files, folder, sums | inside)


def _secure(url: str) -> str:
    """The same address with https."""
    return f"https://{url.removeprefix('http://')}" if url.startswith("http://") and "https" in _SCHEMES else url


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirections as long as nobody on the way can read or change what is sent."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """The request to follow with.

        Raises:
            OSError: it is not encrypted.
        """
        _check_scheme(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_scheme(url: str) -> None:
    if (scheme := urlsplit(url).scheme) not in _SCHEMES:
        raise OSError(f"{url} is fetched by {scheme or 'nothing'}, only {' and '.join(_SCHEMES)} is safe")


def open_url(url: str, timeout: float) -> Any:
    """The answer of a server.

    Raises:
        OSError: there is none, or it cannot be trusted.
    """
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
                        raise HTTPException(f"there is no end after {MOST_BYTES >> 30} GB")
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
    with open_zip(archive) as opened:
        try:
            _check_names(archive, opened.namelist(), list(wanted.values()))
            for name, member in wanted.items():
                unpack_member(opened, member, folder / name)
        except BAD_ZIP as error:
            raise damaged_zip(archive, error) from error


def _check_names(archive: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    absent = [name for name in wanted if name not in names]
    if absent:
        raise CorruptData(f"{archive.name} holds no {absent[0]}, but {', '.join(names[:5]) or 'nothing'}.")


def _extract_checked(
    archive: Path, temporary: Path, folder: Path, members: Mapping[str, str]
) -> tuple[dict[str, Path], dict[str, str]]:
    """Unpack into a folder of this process; the files and their checksums by name, unless one differs from before."""
    extract(archive, temporary, members)
    files = {name: temporary / name for name in members}
    return files, _check_recorded(folder, files, every=True)


# -- checksums -------------------------------------------------------------------------------------------------------


def _recorded(folder: Path) -> dict[str, str]:
    """Name -> SHA-256 of what was downloaded into a folder."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptData(f"{folder / SUMS} cannot be read ({error}). Delete it where the files are right.") from error
    return {name: checksum for checksum, _, name in (line.partition("  ") for line in lines) if name}


def _record(folder: Path, sums: Mapping[str, str]) -> None:
    """Keep checksums beside the files."""
    known = _recorded(folder) | dict(sums)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
        part = Path(temporary, SUMS)
        part.write_text("".join(f"{checksum}  {name}\n" for name, checksum in sorted(known.items())), encoding="utf-8")
        share(part, folder)
        part.replace(folder / SUMS)


def _check_recorded(folder: Path, files: Mapping[str, Path], every: bool = False) -> dict[str, str]:
    """Hold files against what they were when they were first downloaded; one that nobody downloaded is not read.

    Args:
        folder: whose record it is.
        files: name there -> where the file is now.
        every: compute the checksums of the others, too.

    Returns:
        Name -> checksum, as far as computed.

    Raises:
        CorruptData: one differs.
    """
    known = _recorded(folder) if files else {}
    sums = {name: compute_digest(path, "sha256") for name, path in files.items() if every or name in known}
    for name, found in sums.items():
        if known.get(name, found) != found:
            raise CorruptData(
                f"{name} is not what was first downloaded into {folder}: its SHA-256 is {found} instead of "
                f"{known[name]}. Delete it to fetch it again; if its publisher replaced it, delete its line in {SUMS}."
            )
    return sums


def check_content(path: Path, *, sha256: str | None = None, md5: str | None = None) -> None:
    """Compare checksums; nothing is read where none is given.

    Raises:
        CorruptData: the file has another one.
    """
    for algorithm, expected in (("sha256", sha256), ("md5", md5)):
        if expected is not None and (found := compute_digest(path, algorithm)) != expected:
            raise CorruptData(
                f"{path.name} is not the published file: its {algorithm.upper()} is {found} instead of {expected}. "
                "Delete it and fetch it again."
            )


def by_hand(folder: Path, files: Mapping[str, str], advice: str = "") -> str:
    """What to put where: `files` are names -> addresses, `advice` follows them."""
    lines = [f"Put {'this file' if len(files) == 1 else 'these files'} into {folder}:"]
    lines += [f"  {name} from {url}" for name, url in files.items()]
    return "\n".join(lines + [advice] * bool(advice))
