"""A table in a folder of Parquet parts, which several processes fill and a killed one can resume.

    part-000000.parquet  part-000001.parquet  _manifest.json  _common_metadata

A part contains the predictions for about `part_rows` rows of the input, in whole blocks of the reader: a block belongs
to part number `first row // part_rows`, so its place depends only on the input. A part is written to a temporary file,
synced and renamed; its footer states which rows it has. Readers of folders of Parquet files ignore names that begin
with `_`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import Timeout

from graphbench.data.files.foreign import load_json
from graphbench.data.files.nested import flatten
from graphbench.data.files.sharing import acquire_lock, locked
from graphbench.data.files.writing import write_text, writing
from graphbench.data.parts.shares import PART_ROWS, Share
from graphbench.errors import BadInput, CorruptData, GraphbenchError
from graphbench.inference.output import Counts, to_arrow
from graphbench.runs.environment import timestamp

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from graphbench.contracts import InputPart

log = logging.getLogger(__name__)

MANIFEST, SCHEMA = "_manifest.json", "_common_metadata"
_PART = re.compile(r"\.?part-([0-9]+)\.parquet.*")
_FOOTER = b"graphbench"
_VERSION = 1


@dataclass(frozen=True)
class Part:
    """Rows of a part, according to its footer.

    Args:
        first_row: of the input, from 0.
        input_rows: of the input; the table has more if nodes or edges are predicted.
        counts: of the table's rows, and of rows with a problem or a remark.
    """

    first_row: int
    input_rows: int
    counts: Counts


class PartsFolder:
    """The parts of one prediction; create one with `opened`.

    Args:
        folder: of the parts.
        identity: input, models and options as nested JSON values, which must be equal to resume.
        named: values that are not compared, such as paths, by name.
        share: which parts this process predicts.
        part_rows: rows of the input in a part.
    """

    def __init__(
        self, folder: Path, identity: Mapping[str, Any], named: Mapping[str, Any], share: Share, part_rows: int
    ) -> None:
        self.folder, self.share, self.part_rows = folder, share, part_rows
        # Through JSON, since it is compared with a manifest that was read back: tuples are lists there.
        self._identity: dict[str, Any] = json.loads(json.dumps({**identity, "part_rows": part_rows}))
        self._named = dict(named)
        self._finished: set[int] = set()
        self._schema: pa.Schema | None = None
        #: First row, number of rows and part number of each block in progress, in order.
        self._answering: deque[tuple[int, int, int]] = deque()
        self._rows = self._total = 0  # rows and parts of the whole input
        self._since, self._began = timestamp(), time.monotonic()

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls,
        folder: Path,
        identity: Mapping[str, Any],
        named: Mapping[str, Any],
        share: Share,
        part_rows: int = PART_ROWS,
        resume: bool = False,
    ) -> Iterator[PartsFolder]:
        """Open a folder, created if missing, to write a share of the parts; no other process writes that share.

        With `resume`, continue if parts of this share exist. The other arguments are those of the class.

        Raises:
            BadInput: another process writes this share, parts exist and `resume` is not set, or the folder contains
                something else, or parts of another input, model or options.
            CorruptData: the manifest cannot be read.
        """
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = acquire_lock(folder / f".share-{share.number}-of-{share.count}.lock", timeout=0)
        except Timeout as error:
            raise BadInput(f"--output {folder}: another process is writing share {share} of it.") from error
        try:
            parts = cls(folder, identity, named, share, part_rows)
            parts._check_folder(resume)
            parts._note(done=False)
            yield parts
        finally:
            lock.release()

    # -- what is there ---------------------------------------------------------------------------------------------

    def _check_folder(self, resume: bool) -> None:
        manifest = self._manifest()
        if manifest is None:
            others = [path.name for path in self.folder.iterdir() if not path.name.startswith(".")]
            if others:
                raise BadInput(
                    f"--output {self.folder}: this folder contains {', '.join(sorted(others)[:3])} and no {MANIFEST}: "
                    "it is not a prediction in parts. Name a new folder."
                )
            return
        self._require_same(manifest)
        self._remove_unfinished()
        parts = self.read_parts()
        self._finished = set(parts)
        # If all parts are intact, the input need not be read again; a damaged part is rewritten from it.
        if manifest["complete"] and len(parts) == len(manifest["parts"]):
            self._total, self._rows = len(parts), sum(part.input_rows for part in parts.values())
        ours = sum(map(self.share.has, self._finished))
        if ours and not resume:
            raise BadInput(
                f"--output {self.folder}: {ours} parts of this share exist. Continue with --if-exists resume, or name "
                "another folder."
            )

    def _manifest(self) -> dict[str, Any] | None:
        path = self.folder / MANIFEST
        if not path.is_file():
            return None
        try:
            manifest = load_json(path)
            if manifest["version"] == _VERSION:
                return dict(manifest)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CorruptData(f"{path} is not a manifest of a prediction in parts ({error}).") from error
        raise CorruptData(f"{path} was written by another version of graphbench: name another folder.")

    def _require_same(self, manifest: Mapping[str, Any]) -> None:
        """Refuse a folder that was begun with other settings, and name the differences."""
        before, now = (dict(flatten(one, lists=True)) for one in (manifest["identity"], self._identity))
        differing = [
            f"{name} was {_short(before.get(name, 'absent'))}, now {_short(now.get(name, 'absent'))}"
            for name in dict.fromkeys((*before, *now))
            if before.get(name) != now.get(name)
        ]
        if differing:
            raise BadInput(
                f"--output {self.folder} has parts of another prediction: {'; '.join(differing[:3])}. Continue with "
                "the earlier settings, or name another folder."
            )

    def _remove_unfinished(self) -> None:
        """Remove what a killed process of this share was writing."""
        for path in self.folder.glob(".part-*"):
            match = _PART.fullmatch(path.name)
            # Other shares may be writing their parts right now.
            if match is not None and self.share.has(int(match[1])):
                path.unlink(missing_ok=True)

    def read_parts(self) -> dict[int, Part]:
        """Return the finished parts by number, as their footers describe them; damaged ones do not count."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        parts = {}
        for path in sorted(self.folder.glob("part-*.parquet")):
            match = _PART.fullmatch(path.name)
            if match is None:
                continue
            try:
                footer = json.loads(pq.read_schema(path).metadata[_FOOTER])
                parts[int(match[1])] = Part(footer["first_row"], footer["input_rows"], Counts(**footer["counts"]))
            except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
                log.warning("%s is damaged (%s): rewriting it.", path, error)
        return parts

    # -- reading -----------------------------------------------------------------------------------------------------

    def is_wanted(self, first_row: int) -> bool:
        """Return whether this process predicts the block of the input that begins with a row, see `Wanted`."""
        part = first_row // self.part_rows
        return self.share.has(part) and part not in self._finished

    def wanted(self, blocks: Iterable[Sequence[InputPart]]) -> Iterator[Sequence[InputPart]]:
        """Yield the blocks of the input that this process predicts.

        Nothing is read if all parts of all shares exist.
        """
        if self._rows:
            return
        for views in blocks:
            first, rows = self._rows, len(views[0].frame)
            if rows > self.part_rows:
                raise BadInput(
                    f"--part-rows must be at least {rows}, the rows that are read at once, but got {self.part_rows}."
                )
            part = first // self.part_rows
            self._rows, self._total = first + rows, part + 1
            if self.is_wanted(first):
                self._answering.append((first, rows, part))
                yield views

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(self, frames: Iterable[pd.DataFrame]) -> None:
        """Write the predictions for the blocks that `wanted` yielded, in order, each part as soon as it is complete."""
        waiting: list[pa.Table] = []
        start, ends, counts = 0, 0, Counts()
        try:
            for frame in frames:
                first, rows, part = self._answering.popleft()
                if not waiting:
                    start, counts = first, Counts()
                waiting.append(self._table(frame))
                counts.add(frame)
                ends = first + rows
                # The next block belongs to another part.
                if ends // self.part_rows > part:
                    self._commit(part, waiting, Part(start, ends - start, counts))
                    waiting = []
            if waiting:  # the input is exhausted
                self._commit(part, waiting, Part(start, ends - start, counts))
        except OSError as error:
            raise GraphbenchError(f"--output {self.folder} cannot be written: {error.strerror or error}.") from error

    def _table(self, frame: pd.DataFrame) -> pa.Table:
        """Convert the predictions for a block, with the column types of all parts."""
        if self._schema is None:
            self._schema = self._begin(to_arrow(frame, None).schema)
        return to_arrow(frame, self._schema)

    def _begin(self, schema: pa.Schema) -> pa.Schema:
        """Write manifest and column types if this is the first block of any share; else compare and read them."""
        import pyarrow.parquet as pq

        path = self.folder / SCHEMA
        with self._alone():
            manifest = self._manifest()
            if manifest is None:
                self._write_manifest({})
            else:
                self._require_same(manifest)
            if not path.is_file():
                with writing(path) as file:
                    pq.write_metadata(schema, file)
            # Types are those of the first block of any share: the values in one part must not change them.
            return pq.read_schema(path)

    def _commit(self, number: int, tables: Sequence[pa.Table], part: Part) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.concat_tables(tables).replace_schema_metadata({_FOOTER: json.dumps(asdict(part))})
        with writing(self.folder / _name(number)) as file:
            pq.write_table(table, file, row_group_size=PART_ROWS)
        self._finished.add(number)

    def finish(self) -> tuple[int, int, Counts]:
        """Write the list of parts into the manifest once all shares are done.

        Returns:
            Number of finished parts, number of parts of the input, and total counts of all finished parts.

        Raises:
            CorruptData: parts do not contain the rows of the input consecutively.
        """
        parts = self.read_parts()
        counts = Counts()
        for part in parts.values():
            counts.merge(part.counts)
        self._note(done=True)
        if len(parts) < self._total:
            return len(parts), self._total, counts
        row = 0
        for number in sorted(parts):
            # Names are not enough: a part copied from another prediction would fill the gap.
            if parts[number].first_row != row:
                raise CorruptData(
                    f"{self.folder / _name(number)} begins with row {parts[number].first_row} of the input, "
                    f"not with row {row}. Remove it and continue with --if-exists resume."
                )
            row += parts[number].input_rows
        if row != self._rows:
            raise CorruptData(f"{self.folder} has predictions for {row} rows; the input has {self._rows}.")
        with self._alone():
            self._write_manifest(parts)
        return len(parts), self._total, counts

    def _note(self, done: bool) -> None:
        """Record which process writes this share, or that it is done, for `graphbench status`."""
        notes = {"host": socket.gethostname(), "process": os.getpid(), "since": self._since, "done": done}
        path = self.folder / f".share-{self.share.number}-of-{self.share.count}.json"
        write_text(path, json.dumps(notes | {"seconds": time.monotonic() - self._began}) + "\n")

    def _write_manifest(self, parts: Mapping[int, Part]) -> None:
        listed = [
            {"file": _name(number), "first_row": part.first_row, "input_rows": part.input_rows,
             "rows": part.counts.rows}
            for number, part in sorted(parts.items())
        ]  # fmt: skip
        content = {
            "version": _VERSION,
            "complete": bool(parts),
            "named": self._named,
            "identity": self._identity,
            "parts": listed,
        }
        write_text(self.folder / MANIFEST, json.dumps(content, indent=1))

    def _alone(self) -> contextlib.AbstractContextManager[None]:
        return locked(self.folder / ".manifest.lock", f"Waiting for another process at {self.folder / MANIFEST}.")


def _name(number: int) -> str:
    """Return the file of a part; names sort as numbers do, up to a million of them."""
    return f"part-{number:06}.parquet"


def _short(value: object) -> str:
    """Format a value for a message; shorten checksums."""
    return re.sub(r"^([0-9a-f]{12})[0-9a-f]{52}$", r"\1...", str(value))
