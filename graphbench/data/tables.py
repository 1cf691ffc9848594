"""Write and read graph tables as entries of the store; one entry has all splits of a benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from graphbench.contracts import Column, Encoded, GraphTable
from graphbench.contracts.table import BOUNDS, GRAPH, PAIR
from graphbench.data.entry import Entry, EntryWriter, digest
from graphbench.data.mapped import trim_mapped
from graphbench.data.parts.kept import spans_of
from graphbench.errors import BadInput

_NARROW = (torch.uint8, torch.int16, torch.int32)


def narrow(values: Tensor) -> Tensor:
    """Cast integers to the smallest dtype that holds them all; leave other values unchanged."""
    bounds = _bounds(values)
    return values if bounds is None else values.to(_smallest(values.dtype, *bounds))


def _bounds(values: Tensor) -> tuple[int, int] | None:
    """Return the minimum and maximum of integers; None for other dtypes and empty tensors."""
    if values.is_floating_point() or values.dtype == torch.bool or not len(values):
        return None
    low, high = torch.aminmax(values)
    return int(low), int(high)


def _smallest(dtype: torch.dtype, low: int, high: int) -> torch.dtype:
    """Return the smallest dtype that holds all integers between two bounds; `dtype` if none of `_NARROW` does."""
    infos = ((narrow, torch.iinfo(narrow)) for narrow in _NARROW)
    return next((narrow for narrow, info in infos if info.min <= low and high <= info.max), dtype)


class Selection:
    """Selected rows of a table that is larger than memory, copied part by part when iterated over.

    The integers of all parts have the smallest dtype that holds those of the selection, as after `narrow`.

    Examples:
        >>> path = {"num_nodes": 3, "edge_index": torch.tensor([[0, 1], [1, 2]])}
        >>> [len(part) for part in Selection(GraphTable.from_graphs([path] * 3), torch.tensor([2, 0]))]
        [2]
    """

    def __init__(self, table: GraphTable, rows: Tensor) -> None:
        self.table, self.rows = table, rows

    def __iter__(self) -> Iterator[GraphTable]:
        bounds: dict[str, tuple[int, int]] = {}
        for part in self._parts():
            for name, values in part.columns.items():
                if (extremes := _bounds(values)) is not None:
                    low, high = bounds.get(name, extremes)
                    bounds[name] = min(low, extremes[0]), max(high, extremes[1])
        for part in self._parts():
            for name, limits in bounds.items():
                part.columns[name] = part.columns[name].to(_smallest(part.columns[name].dtype, *limits))
            yield part

    def _parts(self) -> Iterator[GraphTable]:
        for start, stop in spans_of(len(self.rows)) or [(0, 0)]:
            trim_mapped(0)  # what the previous part has read is not read again
            part = self.table.select(self.rows[start:stop])
            # A selection is a separate table, numbered from 0.
            part.graph_ids = None
            yield part


def single_precision(table: GraphTable) -> GraphTable:
    """Cast float64 columns to float32, as they are stored; targets and their bounds keep their dtype."""
    exact = {"y", *BOUNDS}
    columns = {n: v.float() if v.dtype == torch.float64 and n not in exact else v for n, v in table.columns.items()}
    return GraphTable(columns, table.layout, table.ptr)


def widen(table: GraphTable) -> GraphTable:
    """Cast columns to int64 and float32 (float64 stays), so that arithmetic on them cannot overflow."""

    def wide(values: Tensor) -> Tensor:
        if values.is_floating_point():
            return values.float() if values.itemsize < 4 else values
        return values if values.dtype == torch.bool else values.to(torch.int64)

    columns = {name: wide(values) for name, values in table.columns.items()}
    return GraphTable(columns, dict(table.layout), dict(table.ptr), table.graph_ids)


class _Pointers:
    """Concatenates the `ptr` of chunks into one array per axis."""

    def __init__(self, writer: EntryWriter, prefix: str) -> None:
        self.writer, self.prefix = writer, prefix
        self.rows: dict[str, int] = {}

    def append(self, ptr: Mapping[str, Tensor]) -> None:
        """Add a chunk's pointers, each starting at 0."""
        for axis, local in ptr.items():
            offset = self.rows.get(axis)
            # Only the first chunk keeps its leading 0; in the others it equals the end of the previous chunk.
            self.writer.append(f"{self.prefix}{axis}", local if offset is None else local[1:] + offset)
            self.rows[axis] = (offset or 0) + int(local[-1])


def write_table(
    writer: EntryWriter, split: str, chunks: GraphTable | Iterable[GraphTable], may_be_empty: bool = False
) -> None:
    """Store one split; the entry may already have others.

    `chunks` is the table, or consecutive parts of one that is larger than memory. The integers of a whole table are
    stored in the smallest dtype that holds them; parts keep their dtypes.

    Raises:
        BadInput: there are no graphs, or parts differ in their columns.
    """
    if isinstance(chunks, GraphTable):
        columns = {name: narrow(values) for name, values in chunks.columns.items()}
        chunks = [GraphTable(columns, chunks.layout, chunks.ptr)]
    pointers = _Pointers(writer, f"{split}.ptr.")
    layout: dict[str, Column] | None = None
    num_graphs = 0
    for chunk in chunks:
        layout = layout or dict(chunk.layout)
        if dict(chunk.layout) != layout:
            raise BadInput(f"Parts of split {split!r} differ in their columns: {layout} and {dict(chunk.layout)}.")
        for name in layout:
            writer.append(f"{split}.column.{name}", chunk.columns[name])
        pointers.append(chunk.ptr)
        num_graphs += len(chunk)
    if layout is None or not (num_graphs or may_be_empty):
        raise BadInput(f"Split {split!r} holds no graph.")
    stored = {name: [column.axis, column.index_of] for name, column in layout.items()}
    writer.meta.setdefault("splits", {})[split] = {"layout": stored, "num_graphs": num_graphs}


def read_table(entry: Entry, split: str) -> GraphTable:
    """Read one split of an entry that `write_table` filled; its columns are read-only."""
    layout = {name: Column(*column) for name, column in entry.meta["splits"][split]["layout"].items()}
    columns = {name: torch.from_numpy(entry.arrays[f"{split}.column.{name}"]) for name in layout}
    return GraphTable(columns, layout, _with_prefix(entry, f"{split}.ptr."))


def content_key(entry: Entry, split: str) -> str:
    """Return the SHA-256 of the content of one split: equal arrays have equal keys, whatever their source."""
    parts = {name: checksum for name, checksum in entry.checksums.items() if name.startswith(f"{split}.")}
    shapes = {name: [entry.arrays[name].dtype.str, list(entry.arrays[name].shape)] for name in parts}
    return digest({"arrays": parts, "shapes": shapes, "layout": entry.meta["splits"][split]["layout"]})


def write_encoded(writer: EntryWriter, chunks: Iterable[Encoded]) -> None:
    """Store an encoding chunk by chunk."""
    pointers = _Pointers(writer, "ptr.")
    for chunk in chunks:
        for name, values in chunk.columns.items():
            writer.append(f"column.{name}", values)
        pointers.append(chunk.ptr)


def read_encoded(entry: Entry) -> Encoded:
    """Read an encoding that `write_encoded` stored."""
    return Encoded(_with_prefix(entry, "column."), _with_prefix(entry, "ptr."))


def _with_prefix(entry: Entry, prefix: str) -> dict[str, Tensor]:
    named = ((name.removeprefix(prefix), array) for name, array in entry.arrays.items() if name.startswith(prefix))
    return {name: torch.from_numpy(array) for name, array in named}


def expected_rows(table: GraphTable, column: Column, ptr: Mapping[str, Any]) -> int:
    """Count the rows that a column must have for the graphs of `table`, given the pointers of axes the table lacks."""
    if column.axis in ptr:
        return int(ptr[column.axis][-1])
    if column.axis in (GRAPH, PAIR) or column.axis in table.ptr:
        return int(table.lengths(column.axis).sum())
    raise BadInput(f"Axis {column.axis!r} has no pointers.")
