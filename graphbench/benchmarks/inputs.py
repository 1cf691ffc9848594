"""Read new inputs of any benchmark: graphs from Python, and labels from the columns of a table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from torch_geometric.data import Data
from torch_geometric.utils import from_networkx

from graphbench.contracts import Benchmark, BenchmarkSpec, Column, GraphTable, InputPart
from graphbench.contracts.pyg import check_single, named_features
from graphbench.contracts.table import GRAPH
from graphbench.data.checks import check_graphs
from graphbench.data.columns import to_exact_float
from graphbench.data.files.listing import files_below
from graphbench.data.worker_pool import available_cores, ordered_map
from graphbench.errors import BadInput
from graphbench.tables.cells import Missing, parse_cells, split_signs
from graphbench.tables.formats import SEPARATOR
from graphbench.tables.layout import find_column, has_decimal_commas, is_decimal_point, near, point_for_comma
from graphbench.tables.reader import as_texts

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Made = TypeVar("Made")
_SHOWN = 20  # columns that a message names
_WIDTH = 60  # characters of a cell that a message quotes


def input_files(source: Path, suffixes: Sequence[str], what: str) -> tuple[list[Path], Path]:
    """List the files of an input, and return the folder that their names are relative to.

    Args:
        source: a folder, including its subfolders, or one file.
        suffixes: suffixes of the formats that can be read, in lower case.
        what: what the files contain, for messages.
    """
    formats = ", ".join(suffixes)
    if source.is_file():
        if source.suffix.lower() not in suffixes:
            raise BadInput(f"{source}: {what} are read from a folder, or from one of {formats}, not from this file.")
        return [source], source.parent
    if not source.is_dir():
        raise BadInput(f"{source}: there is no such folder or file; {what} are read from {formats}.")
    files = files_with(source, suffixes)
    if not files:
        raise BadInput(f"{source} holds no {what} ({formats}).")
    return files, source


def files_with(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """List the files below a folder that have one of these suffixes, see `files_below`; log the number of others."""
    files = files_below(folder)
    chosen = [file for file in files if file.suffix.lower() in suffixes]
    if chosen and len(chosen) < len(files):
        others = sorted({file.suffix or "no suffix" for file in files if file.suffix.lower() not in suffixes})
        shown = ", ".join(others[:_SHOWN])
        logger.info("%s: files of other formats are left out: %d (%s)", folder, len(files) - len(chosen), shown)
    return chosen


def parts_of_items(
    read: Callable[[Item], Made | str],
    items: Sequence[Item],
    frame: pd.DataFrame,
    size: int,
    build: Callable[[list[Made]], GraphTable],
    description: str = "",
    workers: int | None = 1,
) -> Iterator[InputPart]:
    """Yield the graphs of items in parts of `size`, one row of the frame each; a text from `read` is a problem.

    They are read in this process or in `workers` processes; None uses all cores if there are many items.
    """
    count = min(available_cores(), len(items) // 8) if workers is None else workers
    with closing(ordered_map(read, items, count, description)) as results:
        for start in range(0, len(items), size):
            outcomes = list(islice(results, size))
            made = {row: outcome for row, outcome in enumerate(outcomes) if not isinstance(outcome, str)}
            problems = {row: outcome for row, outcome in enumerate(outcomes) if isinstance(outcome, str)}
            rows = frame.iloc[start : start + size].reset_index(drop=True)
            yield InputPart(rows, build(list(made.values())), list(made), problems)


def with_labels(
    parts: Iterable[InputPart], data: Benchmark, source: str, folders: Mapping[str, str] | None = None
) -> Iterator[InputPart]:
    """Add the column `y` to the graphs of an input: NaN (or class -1) where a cell is empty.

    Cells are read like those of a training file: targets by their names in any case, classes by the names (or numbers)
    used in training. Numbers that are bounds (`>10`) count as empty, since they cannot be scored; their number is
    logged. A cell with any other content is a problem of its row. Inputs that are files have the class named by their
    nearest folder, as in a training folder, and no class without such a folder below `source`. `folders` maps further
    names of folders to classes.

    Raises:
        BadInput: targets belong to nodes, or the input lacks a target's column.
    """
    if data.spec.level != "graph":
        raise BadInput(f"{data.spec.name} cannot score {source}: a table has no labels of nodes.")
    commas: bool | None = None  # until a cell of the first parts decides it; "1500" is the same number either way
    num_bounds = 0
    for part in parts:
        columns = _classes_by_folder(part.frame, data, folders or {}) or input_cells(
            part.frame, data.target_labels(), source, "which the model was trained to predict"
        )
        signs: np.ndarray | None = None
        if data.spec.kind == "regression":
            columns, signs = split_signs(columns)
            num_bounds += int(np.count_nonzero(signs))
        if commas is None and data.spec.kind == "regression":
            commas = decimal_commas(columns, part.frame.attrs.get(SEPARATOR, ""))
        if commas:
            columns = {name: [point_for_comma(cell) for cell in cells] for name, cells in columns.items()}
        yield _labelled(part, columns, data, signs)
    if num_bounds:
        logger.info("%s: %d targets are bounds (such as >10), which no score counts", source, num_bounds)


def _classes_by_folder(frame: pd.DataFrame, data: Benchmark, further: Mapping[str, str]) -> dict[str, list[str]] | None:
    """Return the class of each file from its folders, "" if there is none; None if the rows are not files."""
    if list(frame.columns) != ["file"] or not data.spec.num_classes:
        return None
    classes, (target,) = {name: name for name in data.class_labels()} | dict(further), data.target_labels()
    folders = (reversed(name.split("/")[:-1]) for name in frame["file"])
    return {target: [next((classes[folder] for folder in path if folder in classes), "") for path in folders]}


def input_cells(frame: pd.DataFrame, names: Sequence[str], source: str, purpose: str) -> dict[str, list[str]]:
    """Return the texts of some columns by name."""
    header = [str(name) for name in frame.columns]
    places = {name: find_column(source, header, name) for name in names}
    absent = [name for name, place in places.items() if place is None]
    if absent:
        present = ", ".join(map(repr, header[:_SHOWN])) or "none"
        raise BadInput(
            f"{source}: no column {' and no '.join(map(repr, absent))}, {purpose}. Its "
            f"columns: {present}.{near(absent, header)}"
        )
    return {name: as_texts(frame.iloc[:, place]) for name, place in places.items() if place is not None}


def decimal_commas(columns: Mapping[str, Sequence[str]], separator: str) -> bool | None:
    """Return whether numbers have decimal commas, as in training; None until a cell decides it."""
    cells = [cell for column in columns.values() for cell in column]
    if has_decimal_commas(cells):
        return separator != ","
    return False if any(map(is_decimal_point, cells)) else None


def _labelled(
    part: InputPart, columns: Mapping[str, Sequence[str]], data: Benchmark, signs: np.ndarray | None
) -> InputPart:
    spec, problems = data.spec, dict(part.problems)
    classes = {name: number for number, name in enumerate(data.class_labels())} if spec.num_classes else {}
    if list(classes) == list(map(str, range(len(classes)))):
        classes = {}  # numbers, which may be written with a point
    missing = Missing.of(getattr(data, "missing", None))
    values, faults = parse_cells(columns, str(spec.kind), missing, spec.num_classes or 0, classes)
    if signs is not None:
        logged = np.flatnonzero(spec.log10_targets)
        names = data.target_labels()
        faults += [
            (row, f"target {names[place]!r} is not above 0, so it has no log10", columns[names[place]][row])
            for place in logged.tolist()
            for row in np.flatnonzero(values[:, place] <= 0).tolist()
        ]
        values[signs != 0] = np.nan
    for row, fault, text in faults:
        problems.setdefault(row, f"{fault}: {text if len(text) <= _WIDTH else f'{text[: _WIDTH - 3]}...'}")
    if not part.rows:
        return replace(part, problems=problems)
    chosen = values[part.rows]
    y = np.nan_to_num(chosen, nan=-1.0).astype(np.int64) if spec.num_classes else to_exact_float(chosen)
    table = part.table.with_columns({"y": torch.from_numpy(y)}, {"y": Column(GRAPH)})
    return replace(part, table=table, problems=problems)


def is_graph(thing: Any) -> bool:
    """Return whether this is PyG's `Data` or a networkx graph, without importing networkx."""
    return isinstance(thing, Data) or (hasattr(thing, "number_of_nodes") and hasattr(thing, "adjacency"))


def read_graphs(graphs: Sequence[Any], spec: BenchmarkSpec, size: int) -> Iterator[InputPart]:
    """Read graphs in parts of `size`; one that does not match the specification is a problem of its row.

    Fields of `Data` and networkx graphs have the same names as in a batch: `x`, `x_dense`, `pos`, `edge_attr`,
    `edge_dense`; `x` and `edge_attr` of real numbers are read as `x_dense` and `edge_dense`. An edge of an undirected
    networkx graph counts in both directions.
    """
    for number, thing in enumerate(graphs):
        if not is_graph(thing):
            raise BadInput(
                f"{spec.name}: input {number} is of type {type(thing).__name__}; expected torch_geometric.data.Data or "
                "a networkx graph."
            )
    frame = pd.DataFrame(index=pd.RangeIndex(len(graphs)))
    yield from parts_of_items(partial(_fields, spec), graphs, frame, size, GraphTable.from_graphs)


def _fields(spec: BenchmarkSpec, graph: Any) -> dict[str, Any] | str:
    """Return the fields of the specification for `GraphTable.from_graphs`, or why the graph does not match it."""
    try:
        data = graph if isinstance(graph, Data) else from_networkx(graph)
        check_single(data, "the input")
        count = data.num_nodes
        if not count:
            return "the graph has no nodes"
        edges = data.edge_index if data.edge_index is not None else torch.empty(2, 0, dtype=torch.int64)
        fields = {"num_nodes": count, "edge_index": edges} | named_features(data, spec, count, edges.shape[1])
        check_graphs(GraphTable.from_graphs([fields]), spec, "input")
    except (BadInput, ValueError, TypeError, RuntimeError, IndexError, KeyError) as error:
        return str(error).removeprefix("input: ").replace("graph 0 ", "the graph ")
    return fields
