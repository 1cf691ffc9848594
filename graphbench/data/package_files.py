"""Locate files of installed packages without importing the packages, and compute checksums of files.

A checksum identifies the content of a source, so every command needs it. Reading a file of a gigabyte takes longer than
opening its entry in the store. Checksums of large files are therefore cached, as git and DVC do.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from graphbench.data.files.sharing import make_folder, write_shared
from graphbench.errors import MissingData, MissingExtra

#: Minimum bytes of a file whose checksum is cached; smaller files are read each time.
LARGE = 16 << 20
#: Seconds for which a file must be unchanged: a second change within the clock's resolution would be missed.
SETTLED = 2.0
_FOLDER = ".checksums"


def package_file(package: str, relative: str, *, extra: str = "", purpose: str = "") -> Path:
    """Locate a file inside an installed package without running any of the package's code.

    Args:
        package: top-level import name.
        relative: path within the package, with forward slashes.
        extra: optional dependency group of graphbench that installs the package.
        purpose: purpose of the file, as the beginning of a sentence.

    Raises:
        MissingExtra: the package is not installed.
        MissingData: it is installed but lacks the file.

    Examples:
        >>> package_file("torch", "nn/functional.py").name
        'functional.py'
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(package, extra, purpose)
    path = Path(next(iter(spec.submodule_search_locations)), relative)
    if not path.is_file():
        raise MissingData(f"The installed package {package!r} has no file {relative} (checked {path}). Reinstall it.")
    return path


def load_module(path: Path, name: str) -> ModuleType:
    """Run a Python file as a module without adding it to `sys.modules`.

    This is for files whose package must not be imported: `import ogb` queries a package index for its newest version in
    a background thread, and RDKit's contributed scorers do not belong to any package.
    """
    if not path.is_file():
        raise MissingData(f"{path} is missing, though the package that ships it is installed. Reinstall the package.")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise MissingData(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def file_sha256(path: Path) -> str:
    """Compute the SHA-256 of a file's content, in hexadecimal.

    Raises:
        MissingData: there is no such file.

    Examples:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "abc")
        >>> _ = path.write_bytes(b"abc")
        >>> file_sha256(path)[:16]
        'ba7816bf8f01cfea'
    """
    if not path.is_file():
        raise MissingData(f"{path}: there is no such file.")
    return compute_digest(path, "sha256")


def compute_digest(path: Path, algorithm: str) -> str:
    """Compute a checksum of a file's content, in hexadecimal, a block at a time."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 24):
            digest.update(block)
    return digest.hexdigest()


def remembered_sha256(path: Path, store: Path) -> str:
    """Return the SHA-256 of a file; for a large file it is computed once for each size, inode and time of change.

    A file that changed within the last seconds is always read, and so is one that changes while it is read. The
    checksum is cached in the folder of the store, unless that is read-only.
    """
    before = _stamps(path) if path.is_file() else [0]
    if before[0] < LARGE:
        return file_sha256(path)
    return _remembered(path, lambda: _stamps(path), before, max(before[1:3]), store, lambda: file_sha256(path))


def remembered_folder(folder: Path, files: Sequence[Path], store: Path, compute: Callable[[], str]) -> str:
    """Return the checksum of the files of a folder, from `compute`; remembered as in `remembered_sha256`.

    Their sizes count together: tens of thousands of images take longer to read than their entry in the store to open.
    """
    stamps = list(map(_stamps, files))
    if sum(size for size, *_ in stamps) < LARGE:
        return compute()

    def listing(stamps: Iterable[Sequence[int]]) -> str:
        rows = [(file.relative_to(folder).as_posix(), *row) for file, row in zip(files, stamps, strict=True)]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

    changed = max(max(row[1:3]) for row in stamps)
    return _remembered(folder, lambda: listing(map(_stamps, files)), listing(stamps), changed, store, compute)


def _remembered(
    path: Path, stamp: Callable[[], Any], before: Any, changed: int, store: Path, compute: Callable[[], str]
) -> str:
    """Return the checksum noted for `path` with the stamp `before`; else compute it, and note it if nothing changes.

    `changed` is the time of the last change, in nanoseconds.
    """
    note = store / _FOLDER / f"{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:20]}.json"
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        cached = json.loads(note.read_bytes())
        if cached["stamps"] == before:
            return str(cached["sha256"])
    start = time.time()
    checksum = compute()
    with contextlib.suppress(OSError):
        if changed < (start - SETTLED) * 1e9 and stamp() == before:
            make_folder(note.parent)
            write_shared(note, json.dumps({"file": str(path), "stamps": before, "sha256": checksum}))
    return checksum


def _stamps(path: Path) -> list[int]:
    """Return size, times of the last change of content and of inode (which no program can set), inode and device."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]
