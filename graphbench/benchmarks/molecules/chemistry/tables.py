"""Convert arrays of molecules to a `GraphTable`, and store text with the graphs as ragged bytes.

Molecules of a large file are read in parts that are kept in the store (`read_kept`); their graphs stay on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial, reduce
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphbench.benchmarks.molecules.chemistry.reading import (
    MoleculeArrays,
    Recipe,
    Track,
    concatenate,
    read_molecules,
)
from graphbench.benchmarks.tables import make_table
from graphbench.contracts import Column, GraphTable
from graphbench.contracts.table import EDGE, GRAPH, GRAPH_DENSE, NODE, WEIGHT, pointer
from graphbench.data.columns import split_bounds, to_exact_float
from graphbench.data.entry import Entry, EntryWriter
from graphbench.data.mapped import trim_mapped
from graphbench.data.parts.kept import KeptParts, Span, spans_of
from graphbench.data.parts.shares import Share
from graphbench.data.tables import read_table, write_table
from graphbench.tables.texts import Texts

#: Text columns of the molecule benchmarks.
TEXTS = ("smiles", "id")
#: Returns the table of graphs for some readable molecules, given by number.
GraphsOf = Callable[[np.ndarray], GraphTable]
_GRAPH_FIELDS = ("x", "edge_index", "edge_attr")


def to_table(arrays: MoleculeArrays) -> GraphTable:
    """Create a table of `x`, `edge_index` and `edge_attr` of all readable molecules, in the narrow dtypes to store.

    Descriptors become `graph_dense`.
    """
    columns = {"x": (arrays.x, NODE), "edge_index": (arrays.edge_index, EDGE), "edge_attr": (arrays.edge_attr, EDGE)}
    if arrays.descriptors.shape[1]:
        columns[GRAPH_DENSE] = (arrays.descriptors, GRAPH)
    return make_table(columns, arrays.num_nodes, arrays.num_edges)


def with_targets(table: GraphTable, y: np.ndarray, exact: bool = False) -> GraphTable:
    """Add `y`: real targets `[G, T]` or `[G]` as float32 (with `exact`, as float64 if necessary), classes as int64."""
    if np.issubdtype(y.dtype, np.integer):
        y = y.astype(np.int64)
    else:
        y = to_exact_float(y) if exact else y.astype(np.float32)
    return table.with_columns({"y": torch.from_numpy(y).reshape(len(table), -1)}, {"y": Column(GRAPH)})


def with_bounds(table: GraphTable, y: np.ndarray, signs: np.ndarray) -> GraphTable:
    """Add targets, some of which are bounds: for these `y` is NaN, and `y_lower` or `y_upper` has the number.

    `y` and `signs` are those of `split_bounds`.
    """
    columns = {name: torch.from_numpy(part) for name, part in split_bounds(y, signs).items()}
    return table.with_columns(columns, {name: Column(GRAPH) for name in columns})


def with_weights(table: GraphTable, weights: np.ndarray) -> GraphTable:
    """Add `weight` to a table, float32 `[G]`."""
    return table.with_columns({WEIGHT: torch.from_numpy(weights).float()}, {WEIGHT: Column(GRAPH)})


def with_text(table: GraphTable, texts: Mapping[str, Sequence[str]]) -> GraphTable:
    """Add one string per graph under each name: UTF-8 bytes `[bytes]` on an axis of the same name."""
    packed = {name: strings if isinstance(strings, Texts) else Texts(strings) for name, strings in texts.items()}
    columns = {name: torch.from_numpy(strings.data.copy()) for name, strings in packed.items()}
    ptr = {name: torch.from_numpy(strings.ptr.copy()) for name, strings in packed.items()}
    return table.with_columns(columns, {name: Column(name) for name in texts}, ptr)


def read_text(table: GraphTable, name: str) -> list[str]:
    """Return the strings that `with_text` stored under `name`."""
    return list(stored_text(table, name))


def stored_text(table: GraphTable, name: str) -> Texts:
    """Return the strings that `with_text` stored under `name`, without a copy."""
    return Texts.of_arrays(table.columns[name].numpy(), table.ptr[name].numpy())


def subset(table: GraphTable, rows: np.ndarray | Tensor) -> GraphTable:
    """Copy the chosen graphs into a table, numbered from 0."""
    chosen = table.select(torch.as_tensor(rows))
    chosen.graph_ids = None
    return chosen


def join_tables(tables: Sequence[GraphTable], kept: KeptParts | None = None) -> GraphTable:
    """Join tables with the same columns in order.

    Columns may be memory-mapped. If there is more than one part, the graphs go into the store of `kept`; without it the
    joined table is in memory.
    """
    first = tables[0]
    if kept is not None and len(spans_of(sum(map(len, tables)))) > 1:
        types = {
            name: reduce(torch.promote_types, [table.columns[name].dtype for table in tables]) for name in first.columns
        }
        entry = kept.joined(
            {"kind": "joined"}, lambda writer: write_table(writer, "all", _parts(tables, types)), "the files"
        )
        return read_table(entry, "all")
    columns = {name: torch.cat([table.columns[name] for table in tables]) for name in first.columns}
    counts = {axis: torch.cat([table.ptr[axis].diff() for table in tables]) for axis in first.ptr}
    return GraphTable(columns, dict(first.layout), {axis: pointer(count) for axis, count in counts.items()})


def _parts(tables: Sequence[GraphTable], types: Mapping[str, torch.dtype]) -> Iterator[GraphTable]:
    """Yield the parts of all tables, with columns of these dtypes."""
    for table in tables:
        for start, stop in spans_of(len(table)):
            trim_mapped(0)
            part = table.slice(start, stop)
            columns = {name: values.to(types[name]) for name, values in part.columns.items()}
            yield GraphTable(columns, part.layout, part.ptr)


def without(table: GraphTable, names: Iterable[str]) -> GraphTable:
    """Drop text columns, so that batches do not carry them."""
    dropped = set(names)
    return GraphTable(
        {name: tensor for name, tensor in table.columns.items() if name not in dropped},
        {name: column for name, column in table.layout.items() if name not in dropped},
        {axis: ptr for axis, ptr in table.ptr.items() if axis not in dropped},
        table.graph_ids,
    )


# -- parts -------------------------------------------------------------------------------------------------------------


def read_kept(
    smiles: Sequence[str], recipe: Recipe, track: Track | None = None, kept: KeptParts | None = None
) -> tuple[MoleculeArrays, GraphsOf]:
    """Read molecules like `read_molecules`; if there is more than one part, graphs stay on disk in the store of `kept`.

    Parts that are already in the store are not read again. If `kept` is None, everything is read into memory.

    Returns:
        The values of all readable molecules, without graphs if there are several parts; and a function that returns
        the graphs.
    """
    spans = spans_of(len(smiles))
    if kept is None or (len(spans) < 2 and not kept.exist()):
        arrays = read_molecules(smiles, recipe, track=track)
        return arrays, lambda rows: subset(to_table(arrays), rows)
    build = partial(_read_part, smiles, recipe, track)
    entries = [kept.open_or_build(span, partial(build, span), "the molecules") for span in spans]
    values = concatenate([_without_graphs(_stored_arrays(entry)) for entry in entries])
    return values, partial(_join_graphs, kept, entries)


def read_share(smiles: Sequence[str], recipe: Recipe, kept: KeptParts, share: Share, track: Track | None) -> int:
    """Read a share of the parts; return the number of missing parts of all shares."""
    return kept.fill(spans_of(len(smiles)), share, partial(_read_part, smiles, recipe, track), "the molecules")


def _read_part(smiles: Sequence[str], recipe: Recipe, track: Track | None, span: Span, writer: EntryWriter) -> None:
    """Read the molecules of some rows, and write their values."""
    start, stop = span
    description = f"Reading molecules {start + 1:,} to {stop:,} of {len(smiles):,}"
    arrays = read_molecules(smiles[start:stop], recipe, track=track, description=description, first=start)
    for item in fields(MoleculeArrays):
        values = getattr(arrays, item.name)
        if isinstance(values, np.ndarray):
            writer.append(item.name, values)
        elif item.name in ("problems", "remarks"):
            writer.meta[item.name] = values
        else:
            texts = Texts(values)
            writer.append(f"{item.name}.data", texts.data)
            writer.append(f"{item.name}.ptr", texts.ptr)


def _stored_arrays(entry: Entry) -> MoleculeArrays:
    """Return the arrays that `_read_part` has written."""
    values: dict[str, Any] = {name: array for name, array in entry.arrays.items() if "." not in name}
    for name in ("scaffolds", "canonical"):
        values[name] = Texts.of_arrays(entry.arrays[f"{name}.data"], entry.arrays[f"{name}.ptr"])
    for name in ("problems", "remarks"):
        values[name] = [tuple(item) for item in entry.meta[name]]
    return MoleculeArrays(**values)


def _without_graphs(arrays: MoleculeArrays) -> MoleculeArrays:
    return replace(arrays, **{name: getattr(arrays, name)[:0] for name in _GRAPH_FIELDS})


def _join_graphs(kept: KeptParts, entries: Sequence[Entry], rows: np.ndarray) -> GraphTable:
    """Write the graphs of chosen molecules (ascending) of all parts into one memory-mapped table."""

    def parts() -> Iterator[GraphTable]:
        first = 0
        for entry in entries:
            trim_mapped(0)
            arrays = _stored_arrays(entry)
            chosen = rows[(rows >= first) & (rows < first + len(arrays))] - first
            first += len(arrays)
            yield subset(to_table(arrays), chosen)

    key = {"kind": "usable", "rows": sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()}
    return read_table(kept.joined(key, lambda writer: write_table(writer, "all", parts()), "the molecules"), "all")
