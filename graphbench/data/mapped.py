"""Memory-mapped arrays whose pages can be handed back.

The kernel counts every page that was ever read through a map as memory of the process until it needs the room. A long
run over a large set would therefore *look* as large as the set, and be killed where a job's limit counts such pages.
`trim_mapped` gives the pages back; they stay in the page cache, so that reading them again is cheap.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from weakref import WeakSet

import numpy as np

#: Bytes of file-backed memory (maps and shared libraries) above which pages are handed back.
RESIDENT_LIMIT = 1 << 30

_MAPS: WeakSet[mmap.mmap] = WeakSet()


def map_array(path: Path, allow_pickle: bool = False) -> np.ndarray:
    """Memory-map an .npy file copy-on-write. Treat it as read-only: changes never reach the disk and may be lost."""
    array = np.load(path, mmap_mode="c", allow_pickle=allow_pickle)
    if isinstance(array, np.memmap):
        _MAPS.add(array._mmap)  # type: ignore[attr-defined]
    return array


def resident_file_bytes() -> int:
    """File-backed bytes in memory of this process; 0 where the platform does not tell (only Linux does)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[2])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def trim_mapped(limit: int = RESIDENT_LIMIT) -> bool:
    """Hand the pages of all maps back when they and the libraries exceed `limit` bytes; True if it did."""
    if not _MAPS or resident_file_bytes() <= limit:
        return False
    for mapping in list(_MAPS):
        mapping.madvise(mmap.MADV_DONTNEED)
    return True
