"""Store parts of an entry that takes long to compute, until the entry has been written from all of them.

    STORE/parts/<entry>/part-<key>/

A part is itself an entry: it appears as a whole, with checksums. A killed process therefore loses only the part that it
was computing, and processes that share the store may compute parts of one entry.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphbench.data.entry import Entry, EntryWriter
from graphbench.data.parts.shares import Share
from graphbench.data.store import Store

#: Folder of the parts within the folder of a store.
ROOM = "parts"
#: Rows of a file, or graphs, in a part.
PART_ROWS = 1 << 14
#: First row of a part, and first row of the next one.
Span = tuple[int, int]


class KeptParts:
    """The parts of the entry with this key in a store."""

    def __init__(self, store: Store, key: Mapping[str, Any]) -> None:
        self.folder = store.root / ROOM / store.folder(key).name
        self._store = Store(self.folder, map_above=0)  # the rows of a part are read once, from its file
        self._key = dict(key)

    def exist(self) -> bool:
        """Return whether there are parts."""
        return self.folder.is_dir()

    def open(self, span: Span) -> Entry | None:
        """Open a part; None if it is missing or damaged."""
        return self._store.open(self._part(span))

    def open_or_build(self, span: Span, build: Callable[[EntryWriter], None], describe: str) -> Entry:
        """Open a part; compute it first if it is missing, see `Store.open_or_build`."""
        return self._store.open_or_build(self._part(span), build, f"rows {span[0]:,} to {span[1]:,} of {describe}")

    def fill(
        self, spans: Sequence[Span], share: Share, build: Callable[[Span, EntryWriter], None], describe: str
    ) -> int:
        """Compute the missing parts of a share; `build` writes one.

        Returns:
            Number of parts, of all shares, that are still missing.
        """
        for number, span in enumerate(spans):
            if share.has(number):
                self.open_or_build(span, lambda writer, span=span: build(span, writer), describe)  # type: ignore[misc]
        return sum(not self._store.folder(self._part(span)).is_dir() for span in spans)

    def joined(self, key: Mapping[str, Any], build: Callable[[EntryWriter], None], describe: str) -> Entry:
        """Open or build a memory-mapped entry next to the parts, which is removed with them."""
        return self._store.open_or_build(key, build, describe)

    def remove(self) -> None:
        """Remove all parts, once the entry exists; another process that is adding to them removes them later."""
        if self.exist() and not self._store.is_written():
            shutil.rmtree(self.folder, ignore_errors=True)  # another process may be removing them

    def _part(self, span: Span) -> dict[str, Any]:
        return {"kind": "part", "of": self._key, "rows": list(span)}


def spans_of(rows: int) -> list[Span]:
    """Cut rows into parts.

    Examples:
        >>> spans_of(40_000)
        [(0, 16384), (16384, 32768), (32768, 40000)]
    """
    return [(start, min(start + PART_ROWS, rows)) for start in range(0, rows, PART_ROWS)]
