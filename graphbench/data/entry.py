"""Read and write one entry of the store: a folder of arrays with a manifest of checksums.

Layout of an entry:

    manifest.json    format, key, meta, and name, dtype, shape, bytes and SHA-256 of every array; its own SHA-256
    NAME.npy         one array; the header is always `HEADER` bytes long so that rows can be streamed before their
                     number is known
    verified.json    sizes, times and inodes at which the checksums of a large entry were last verified, and, as long as
                     its files may not have reached the disk, the boot of the machine for which that is valid

Nothing here is pickled: reading an entry runs no code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from graphbench.data.files.sharing import write_shared
from graphbench.data.files.writing import sync_path
from graphbench.data.mapped import map_array
from graphbench.data.progress import progress
from graphbench.errors import BadInput, CorruptData

FORMAT = 1
HEADER = 256
MANIFEST, VERIFIED = "manifest.json", "verified.json"
_BLOCK = 1 << 24
#: Valid names of arrays, which are also file names, and valid kinds of their numbers.
_NAME, _KINDS = r"[A-Za-z0-9_][A-Za-z0-9_.-]*", "biuf"


def canonical(value: Any) -> str:
    """Serialise to JSON with sorted keys and no spaces: equal values give equal text."""
    try:
        # Read back first: numbers as keys become texts, which are sorted otherwise, 10 before 2.
        plain = json.loads(json.dumps(value, allow_nan=False))
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise BadInput(f"A store key must hold JSON values only (numbers, text, lists, mappings): {error}.") from error


def digest(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def _header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """Format an .npy header (format 1.0) of exactly `HEADER` bytes."""
    text = repr({"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    body = text.encode("latin1").ljust(HEADER - 11) + b"\n"
    return np.lib.format.magic(1, 0) + len(body).to_bytes(2, "little") + body


@dataclass
class _Stream:
    """An array under construction."""

    file: BinaryIO
    dtype: np.dtype
    tail: tuple[int, ...]
    rows: int = 0
    hash: Any = field(default_factory=hashlib.sha256)


class EntryWriter:
    """Writer that fills the empty folder of a new entry; arrays may be larger than memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: JSON values stored with the arrays.
        self.meta: dict[str, Any] = {}
        self._streams: dict[str, _Stream] = {}

    def append(self, name: str, rows: np.ndarray | Tensor) -> None:
        """Add rows to the array `name`; the first call fixes its dtype and the shape of a row.

        Raises:
            BadInput: the name is not a file name, the values are not numbers, or the rows differ from earlier ones.
        """
        values = rows.detach().cpu().numpy() if isinstance(rows, Tensor) else np.asarray(rows)
        if values.ndim == 0 or values.dtype.kind not in _KINDS:
            raise BadInput(f"Array {name!r} must hold rows of numbers, but has dtype {values.dtype}, {values.ndim}-d.")
        if not re.fullmatch(_NAME, name):
            raise BadInput(f"Array name {name!r} must consist of letters, digits, '_', '-' and '.'.")
        if name not in self._streams:
            file = (self.folder / f"{name}.npy").open("xb")
            # Reserve space for the header, which has the number of rows and is written last.
            file.write(bytes(HEADER))
            self._streams[name] = _Stream(file, values.dtype, values.shape[1:])
        stream = self._streams[name]
        if (values.dtype, values.shape[1:]) != (stream.dtype, stream.tail):
            raise BadInput(
                f"Array {name!r} was begun with rows {stream.dtype}{list(stream.tail)} and now gets "
                f"{values.dtype}{list(values.shape[1:])}: every chunk must have the same dtype and width."
            )
        # A view of the bytes; `tobytes` would double the memory of a chunk.
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
        stream.file.write(data)
        stream.hash.update(data)
        stream.rows += len(values)

    def close(self, key: Mapping[str, Any]) -> None:
        """Write headers and the manifest. Syncing to disk takes longer than writing and is left to `sync_entry`.

        Until it has run, a power cut may leave wrong bytes in files of the right size. Small entries are checked each
        time they are opened; the record that a large one was verified is valid until this machine reboots.
        """
        arrays = {}
        for name, stream in self._streams.items():
            shape = (stream.rows, *stream.tail)
            stream.file.seek(0)
            stream.file.write(_header(stream.dtype, shape))
            stream.file.close()
            size = (self.folder / f"{name}.npy").stat().st_size
            arrays[name] = {"dtype": stream.dtype.str, "shape": shape, "bytes": size, "sha256": stream.hash.hexdigest()}
        body = {"format": FORMAT, "key": dict(key), "meta": self.meta, "arrays": arrays, "made": _provenance()}
        body["sha256"] = digest(body)
        (self.folder / MANIFEST).write_text(json.dumps(body, indent=1), encoding="utf-8")
        note_verified(self.folder, arrays, until_restart=True)
        self._streams = {}

    def abandon(self) -> None:
        """Close the files of a build that failed."""
        for stream in self._streams.values():
            with contextlib.suppress(OSError):  # flushing the rest fails like the previous write
                stream.file.close()


def _provenance() -> dict[str, str]:
    """Return versions and time of the build."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version("graphbench-lightning")
    except PackageNotFoundError:
        installed = "not installed"
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"graphbench": installed, "torch": torch.__version__, "numpy": np.__version__, "time": now}


def sync_entry(folder: Path) -> None:
    """Sync an entry to the disk, unless it has been removed."""
    with contextlib.suppress(OSError):
        # Folders come last: names must not reach the disk before the content of the files. Windows cannot sync folders.
        for path in (*folder.iterdir(), folder, folder.parent):
            sync_path(path)


def boot_id() -> str:
    """Return the identifier of this boot of the machine; empty on systems other than Linux."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


@dataclass
class Entry:
    """An opened entry.

    Args:
        folder: folder of the entry.
        arrays: name -> array, in memory or memory-mapped; read-only.
        meta: JSON values that the builder stored with the arrays.
        checksums: name -> SHA-256 of the array's bytes.
    """

    folder: Path
    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]
    checksums: dict[str, str]


def read_manifest(folder: Path, key: Mapping[str, Any]) -> dict[str, Any]:
    """Read the manifest of an entry; check that it is intact and belongs to `key`.

    Raises:
        CorruptData: it is missing, unreadable or altered, or has another format or key.
    """
    try:
        body = json.loads((folder / MANIFEST).read_bytes())
        expected = body.pop("sha256")
        actual = digest(body)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, BadInput) as error:
        raise CorruptData(f"its manifest cannot be read ({type(error).__name__}: {error})") from error
    if actual != expected:
        raise CorruptData("its manifest was altered (checksum differs)")
    if body.get("format") != FORMAT:
        raise CorruptData(f"it has format {body.get('format')}, this version of graphbench reads format {FORMAT}")
    if canonical(body.get("key")) != canonical(dict(key)):
        raise CorruptData("it was built for another key")
    if not isinstance(body.get("meta"), dict) or not isinstance(body.get("arrays"), dict):
        raise CorruptData("its manifest lacks the mappings meta and arrays")
    for name, record in body["arrays"].items():
        _check_record(name, record)
    return body


def _check_record(name: str, record: Any) -> None:
    """Refuse a record that `EntryWriter` would not write: whoever altered it could recompute its checksum."""
    try:
        dtype, shape, size = np.dtype(record["dtype"]), record["shape"], record["bytes"]
        rows = math.prod(shape)
        is_valid = (
            re.fullmatch(_NAME, name) is not None
            and dtype.kind in _KINDS
            and all(type(length) is int and length >= 0 for length in shape)
            and size == HEADER + rows * dtype.itemsize
            and isinstance(record["sha256"], str)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData(f"its manifest describes no array {name!r} ({type(error).__name__}: {error})") from error
    if not is_valid:
        raise CorruptData(f"its manifest describes no array {name!r}")


def _stamps(folder: Path, arrays: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return size, time of last change and inode of every array's file."""
    stats = {name: (folder / f"{name}.npy").stat() for name in arrays}
    return {name: [stat.st_size, stat.st_mtime_ns, stat.st_ino] for name, stat in stats.items()}


def note_verified(folder: Path, arrays: Mapping[str, Any], until_restart: bool = False) -> None:
    """Record that the files in their current state have the right checksums, unless the store is read-only.

    With `until_restart` the record expires with the next boot, because the files may not be on the disk yet.
    """
    record = {"files": _stamps(folder, arrays)} | ({"start": boot_id()} if until_restart else {})
    with contextlib.suppress(OSError):  # a mount or a folder that is read-only, a full disk, a quota
        write_shared(folder / VERIFIED, json.dumps(record, indent=1))


def _already_verified(folder: Path, arrays: Mapping[str, Any]) -> bool:
    try:
        record = json.loads((folder / VERIFIED).read_bytes())
        # Two empty identifiers do not mean the same boot, but two systems without identifiers.
        is_current = "start" not in record or record["start"] == boot_id() != ""
        return bool(is_current and record["files"] == _stamps(folder, arrays))
    except (OSError, ValueError, TypeError, KeyError):
        return False


def verify(folder: Path, arrays: Mapping[str, Any], full_below: int) -> None:
    """Check sizes, and also headers and checksums unless a large entry has not changed since their last check.

    Entries of fewer bytes than `full_below` are checked completely each time.

    Raises:
        CorruptData: a file is damaged; the message has its name and fault.
    """
    for name, record in arrays.items():
        path = folder / f"{name}.npy"
        size = path.stat().st_size if path.exists() else -1
        if size != record["bytes"]:
            raise CorruptData(f"{path.name} has {max(size, 0)} bytes instead of {record['bytes']}")
    total = sum(record["bytes"] for record in arrays.values())
    if total >= full_below and _already_verified(folder, arrays):
        return
    with progress(f"Checking {folder.name}", total, "bytes") as advance:
        for name, record in arrays.items():
            with (folder / f"{name}.npy").open("rb") as file:
                has_header = file.read(HEADER) == _header(np.dtype(record["dtype"]), tuple(record["shape"]))
                checksum = hashlib.sha256()
                while block := file.read(_BLOCK):
                    checksum.update(block)
                    advance(len(block))
            if not has_header or checksum.hexdigest() != record["sha256"]:
                raise CorruptData(f"{name}.npy was altered (checksum differs)")
    if total >= full_below:
        note_verified(folder, arrays)


def read_entry(folder: Path, key: Mapping[str, Any], map_above: int, full_below: int) -> Entry:
    """Check and open an entry; one of more than `map_above` bytes is memory-mapped."""
    manifest = read_manifest(folder, key)
    records = manifest["arrays"]
    try:
        verify(folder, records, full_below)
        mapped = sum(record["bytes"] for record in records.values()) > map_above
        load = map_array if mapped else np.load
        arrays = {name: load(folder / f"{name}.npy", allow_pickle=False) for name in records}
    except (OSError, ValueError) as error:
        raise CorruptData(f"it cannot be read ({type(error).__name__}: {error})") from error
    return Entry(folder, arrays, manifest["meta"], {name: record["sha256"] for name, record in records.items()})
