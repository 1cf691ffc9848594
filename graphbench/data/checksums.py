"""Checksums of large source files, remembered beside the store for as long as nothing touches the files.

A checksum names the content of a source, so it is asked for by every command, and reading a file of a gigabyte takes
longer than opening what the store made of it. git and DVC remember checksums in the same way.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path

from graphbench.data.package_files import file_sha256
from graphbench.data.sharing import make_folder, share

#: Bytes from which on a checksum is remembered; smaller files are read again each time.
LARGE = 16 << 20
#: Seconds for which a file must have been left alone: within the clock's grain a second change would not be seen.
SETTLED = 2.0
_FOLDER = ".checksums"


def remembered_sha256(path: Path, store: Path) -> str:
    """SHA-256 of a file's content; that of a large one is computed once for each size, inode and time of change.

    A file that was changed in the last seconds is always read, and so is one that changes while it is read.

    Args:
        path: of the file.
        store: folder of the store, which remembers. One that takes no files forgets.

    Raises:
        MissingData: there is no such file.
    """
    try:
        before = _stamps(path)
    except OSError:
        return file_sha256(path)  # says what is wrong
    if before[0] < LARGE:
        return file_sha256(path)
    note = store / _FOLDER / f"{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:20]}.json"
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        known = json.loads(note.read_bytes())
        if known["stamps"] == before:
            return str(known["sha256"])
    begun = time.time()
    found = file_sha256(path)
    settled = max(before[1:3]) < (begun - SETTLED) * 1e9
    with contextlib.suppress(OSError):
        if settled and _stamps(path) == before:
            make_folder(note.parent)
            temporary = note.with_suffix(f".{os.getpid()}")
            try:
                temporary.write_text(json.dumps({"file": str(path), "stamps": before, "sha256": found}), "utf-8")
                share(temporary, note.parent)
                temporary.replace(note)
            finally:
                temporary.unlink(missing_ok=True)
    return found


def _stamps(path: Path) -> list[int]:
    """Size, times of the last change of the content and of anything else (no program sets that), inode and device."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]
