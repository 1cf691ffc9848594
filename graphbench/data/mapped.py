"""Memory-map arrays: read the rows of a batch, and release their pages.

Two defaults of the kernel do not suit random batches of a large data set. First, it reads ahead around every page that
is touched; on a machine with less memory than data, this reads everything many times over. Second, it counts every page
ever read as memory of the process until memory runs short, so a job with a memory limit is killed. Hence very large
arrays are marked as randomly read and their rows are prefetched batch by batch (`Prefetcher`), and pages are released
from time to time (`trim_mapped`). They stay in the page cache, from which reading them again is cheap.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from graphbench.contracts import GraphTable
from graphbench.contracts.table import GRAPH

#: Bytes of file-backed memory (maps and shared libraries) above which pages are released.
RESIDENT_LIMIT = 1 << 30
#: Bytes of an array above which its rows are prefetched batch by batch.
SCATTER_ABOVE = 512 << 20

#: Maps every open map to the address of its first byte, and whether its rows are prefetched.
_MAPS: WeakKeyDictionary[mmap.mmap, tuple[int, bool]] = WeakKeyDictionary()


def map_array(path: Path, allow_pickle: bool = False) -> np.ndarray:
    """Memory-map an .npy file copy-on-write. Treat it as read-only: changes never reach the disk and may be lost."""
    array = np.load(path, mmap_mode="c", allow_pickle=allow_pickle)
    mapping = getattr(array, "_mmap", None)
    if mapping is not None:  # an empty array has no map
        scattered = array.nbytes > SCATTER_ABOVE and hasattr(mmap, "MADV_RANDOM")
        if scattered:
            mapping.madvise(mmap.MADV_RANDOM)
        # A map starts at a multiple of the granularity; NumPy's pointer is the remainder of the offset past it.
        _MAPS[mapping] = (array.ctypes.data - array.offset % mmap.ALLOCATIONGRANULARITY, scattered)
    return array


def map_new(folder: Path, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """Map a tensor to a new unnamed file, which vanishes with the last reference to it."""
    size = max(1, shape.numel() * dtype.itemsize)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(size)
        mapping = mmap.mmap(file.fileno(), size)
    content = np.frombuffer(mapping, dtype=np.uint8)
    _MAPS[mapping] = (content.ctypes.data, False)
    return torch.from_numpy(content)[: shape.numel() * dtype.itemsize].view(dtype).view(shape)


def resident_file_bytes() -> int:
    """Return the file-backed bytes in memory of this process; 0 on systems other than Linux."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[2])
    except OSError:
        return 0
    return pages * mmap.PAGESIZE


def trim_mapped(limit: int = RESIDENT_LIMIT) -> bool:
    """Release the pages of all maps when they and the libraries exceed `limit` bytes; return whether it did."""
    if not _MAPS or resident_file_bytes() <= limit:
        return False
    for mapping in list(_MAPS):
        mapping.madvise(mmap.MADV_DONTNEED)
    return True


class Prefetcher:
    """Prefetch all rows of a batch at once, so that the disk reads them in parallel.

    Only columns in very large maps of this process are prefetched.
    """

    def __init__(self, table: GraphTable) -> None:
        self._columns: list[tuple[mmap.mmap, int, int, Tensor]] = []
        for name, column in table.layout.items():
            values = table.columns[name]
            for mapping, (address, scattered) in _MAPS.items():
                offset = values.data_ptr() - address
                if scattered and column.axis != GRAPH and 0 <= offset < len(mapping):
                    row_bytes = values.stride(0) * values.element_size()
                    self._columns.append((mapping, offset, row_bytes, table.ptr[column.axis]))

    def __len__(self) -> int:
        return len(self._columns)

    def __call__(self, graphs: Sequence[int]) -> None:
        """Start reading the rows of `graphs` without waiting for them."""
        if not self._columns:
            return
        rows = torch.as_tensor(graphs)
        for mapping, offset, row_bytes, ptr in self._columns:
            # madvise needs whole pages; the first one is shared with the previous graph.
            starts = (offset + ptr[rows] * row_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
            ends = offset + ptr[rows + 1] * row_bytes
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                if end > start:
                    mapping.madvise(mmap.MADV_WILLNEED, start, end - start)
