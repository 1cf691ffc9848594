"""Store pre-computed arrays on disk, keyed by content and parameters.

An entry appears by a single rename, so a reader sees all of it or nothing. With a lock file per entry, two processes
that start together build it only once. Every entry has checksums; a damaged one is rebuilt with a warning.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from graphbench.data.entry import Entry, EntryWriter, digest, read_entry, sync_entry
from graphbench.data.files.sharing import access_advice, acquire_lock, locked, share
from graphbench.data.files.writing import NO_ROOM
from graphbench.errors import BadInput, CorruptData, GraphbenchError

logger = logging.getLogger(__name__)

#: Environment variable that overrides the folder of the store.
ENVIRONMENT = "GRAPHBENCH_STORE"
_LOCKS = ".locks"


class Store:
    """A folder of entries.

    Args:
        root: the folder; created when the first entry is built.
        map_above: size in bytes above which entries are memory-mapped; smaller ones are read into memory.
        full_below: size in bytes below which the checksums of an entry are verified each time it is opened. Those of
            larger ones are verified once for each (size, time of change, inode) of their files.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> store = Store(tempfile.mkdtemp())
        >>> key = {"kind": "numbers", "seed": 0}
        >>> entry = store.open_or_build(key, lambda writer: writer.append("x", np.arange(3)), "numbers")
        >>> entry.arrays["x"]
        array([0, 1, 2])
    """

    def __init__(self, root: str | Path, map_above: int = 64 << 20, full_below: int = 64 << 20) -> None:
        self.root = Path(root)
        self.map_above = map_above
        self.full_below = full_below

    @classmethod
    def default(cls, data_root: str | Path, chosen: str | Path | None = None) -> Store:
        """Open the store at `chosen`, else at the path in GRAPHBENCH_STORE, else at `data_root`/store."""
        return cls(chosen or os.environ.get(ENVIRONMENT) or Path(data_root) / "store")

    def folder(self, key: Mapping[str, Any]) -> Path:
        """Return the folder of the entry of `key`: `<kind>-<first 20 hex digits of the key's SHA-256>`.

        Raises:
            BadInput: the key has no `kind`, or has values other than JSON.
        """
        if not isinstance(key.get("kind"), str) or not key["kind"].isidentifier():
            raise BadInput(f"A store key needs a 'kind' that is a plain word, got {key.get('kind')!r}.")
        return self.root / f"{key['kind']}-{digest(dict(key))[:20]}"

    def open_or_build(self, key: Mapping[str, Any], build: Callable[[EntryWriter], None], describe: str) -> Entry:
        """Open the entry of `key`; build it first if it is missing or damaged.

        Args:
            key: JSON values that name everything the content depends on.
            build: function that fills the writer; called at most once, by one process at a time.
            describe: name of the entry, for messages.

        Raises:
            BadInput: the disk is full or cannot be written to. Errors of `build` propagate unchanged and leave nothing
                behind.
        """
        folder = self.folder(key)
        if (entry := self._open(folder, key, describe, warn=False)) is not None:
            return entry
        with self._locked(folder, describe):
            # Try again under the lock: another process may have built it while this one waited.
            if (entry := self._open(folder, key, describe, warn=True)) is not None:
                return entry
            self._build(folder, key, build, describe)
        return read_entry(folder, key, self.map_above, self.full_below)

    def open(self, key: Mapping[str, Any]) -> Entry | None:
        """Open the entry of `key`; return None if it is missing or damaged."""
        return self._open(self.folder(key), key, "entry", warn=False)

    def is_written(self) -> bool:
        """Return whether a process builds an entry, or may do so, right now."""
        try:
            for lock in (self.root / _LOCKS).glob("*.lock"):
                acquire_lock(lock, timeout=0).release()
        except OSError:  # held, or of another user
            return True
        return False

    def _open(self, folder: Path, key: Mapping[str, Any], describe: str, warn: bool) -> Entry | None:
        """Open the entry; return None if it is missing or damaged. Only a process that holds the lock warns."""
        if not folder.exists():
            return None
        try:
            return read_entry(folder, key, self.map_above, self.full_below)
        except CorruptData as reason:
            if warn:
                logger.warning("The stored %s (%s) is damaged: %s. It is rebuilt.", describe, folder.name, reason)
            return None

    @contextmanager
    def _locked(self, folder: Path, describe: str) -> Iterator[None]:
        """Hold the entry's lock; warn while another process has it."""
        waiting = f"Waiting for another process that builds {describe} in {self.root}."
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.root / _LOCKS / f"{folder.name}.lock", waiting))
            except OSError as error:
                raise self._no_room(error, describe) from error
            yield

    def _build(self, folder: Path, key: Mapping[str, Any], build: Callable[[EntryWriter], None], describe: str) -> None:
        """Write next to the entry, then rename. The caller holds the lock, so leftovers can be deleted."""
        temporary = self.root / f".{folder.name}.{uuid.uuid4().hex[:8]}"
        writer = EntryWriter(temporary)
        try:
            for leftover in self.root.glob(f".{folder.name}.*"):
                shutil.rmtree(leftover)
            temporary.mkdir()
            share(temporary, self.root)  # others may have to delete it after a kill
            build(writer)
            writer.close(key)
            share(temporary, self.root)
            if folder.exists():  # damaged: moved first, so that a kill here leaves a file that is deleted later
                damaged = self.root / f".{folder.name}.damaged"
                folder.rename(damaged)
                shutil.rmtree(damaged)
            temporary.rename(folder)
            # No caller waits for the disk; Python does not exit before the thread finishes.
            threading.Thread(target=sync_entry, args=(folder,), name=f"sync {folder.name}").start()
        except OSError as error:
            if isinstance(error, GraphbenchError) or not (error.errno in NO_ROOM or self._is_refused(error)):
                raise
            raise self._no_room(error, describe) from error
        finally:
            writer.abandon()
            shutil.rmtree(temporary, ignore_errors=True)

    def _is_refused(self, error: OSError) -> bool:
        """Return whether access was denied to the store, rather than to a file that `build` reads."""
        if not isinstance(error, PermissionError) or error.filename is None:
            return False
        return Path(str(error.filename)).resolve().is_relative_to(self.root.resolve())

    def _no_room(self, error: OSError, describe: str) -> GraphbenchError:
        """Build the error for a store to which an entry cannot be written."""
        reason = NO_ROOM.get(error.errno or 0, "nothing can be written there")
        remedy = "or make room there."
        if isinstance(error, PermissionError):
            reason = "this user may not write there"
            remedy = f"or ask for access: {access_advice(Path(error.filename or self.root), self.root)}"
        return BadInput(
            f"The store {self.root} lacks {describe}, and {reason} ({error.strerror}). Choose another folder with the "
            f"benchmark's option `store` or the variable {ENVIRONMENT}, {remedy}"
        )
