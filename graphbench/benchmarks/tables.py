"""Build tables of graphs from arrays of columns, and from the parts of published files."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from functools import cache
from itertools import islice
from pathlib import Path
from typing import IO, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from graphbench.contracts import Column, GraphTable
from graphbench.contracts.table import EDGE, EDGE_INDEX, NODE, pointer
from graphbench.data.files.foreign import foreign
from graphbench.data.progress import track

_CHUNK = 1000  # graphs per table: about 60 MB of superpixel graphs
Published = TypeVar("Published")


def make_table(
    columns: Mapping[str, tuple[Tensor | np.ndarray, str]],
    num_nodes: Tensor | np.ndarray | Sequence[int],
    num_edges: Tensor | np.ndarray | Sequence[int] | None = None,
) -> GraphTable:
    """Build a table of G graphs.

    Args:
        columns: name -> (rows of all graphs, one after the other, and their axis); `edge_index` numbers nodes within
            their graph.
        num_nodes: nodes per graph `[G]`.
        num_edges: edges per graph `[G]`; None for graphs without edges, which get an empty `edge_index`.

    Examples:
        >>> make_table({"x": (np.array([[5], [6], [7]]), "node")}, np.array([1, 2])).batch([1]).x
        tensor([[6],
                [7]])
    """
    nodes = torch.as_tensor(num_nodes)
    if num_edges is None:
        num_edges = torch.zeros_like(nodes)
        columns = {**columns, "edge_index": (torch.zeros(0, 2, dtype=torch.uint8), EDGE)}
    tensors = {name: torch.as_tensor(values) for name, (values, _) in columns.items()}
    layout = {name: EDGE_INDEX if name == "edge_index" else Column(axis) for name, (_, axis) in columns.items()}
    return GraphTable(tensors, layout, {NODE: pointer(nodes), EDGE: pointer(torch.as_tensor(num_edges))})


def check_rows(expected: Sequence[int], found: Sequence[int], what: str, of_each: str) -> None:
    """Check row counts graph by graph: if one graph lacked rows and another had too many, all between would shift."""
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        if one != other:
            raise ValueError(f"graph {number} of these has {one} {what} and {other} {of_each}")


def tables_in_parts(
    graphs: Iterable[Published],
    convert: Callable[[Sequence[Published]], GraphTable],
    place: str,
    name: str,
    owner: str,
    size: int = _CHUNK,
) -> Iterator[GraphTable]:
    """Convert the graphs of a published file to tables, some at a time.

    Errors have `place` before the numbers of graphs; `owner` is the owner of the format, and `name` is shown next to
    the progress bar.

    Raises:
        CorruptData: names the graphs that cannot be converted.
    """
    rest = iter(graphs)
    parts = iter(lambda: list(islice(rest, size)), [])
    total = math.ceil(len(graphs) / size) if isinstance(graphs, Sized) else None
    for number, part in enumerate(track(parts, f"Reading {name}", total, f"chunks of {size} graphs")):
        first = number * size
        with foreign(f"{place} graphs {first} to {first + len(part) - 1}", is_not=f"are not what {owner} holds"):
            table = convert(part)
        yield table  # outside of `foreign`, which would report errors of the consumer as damage of the file


def read_columns(file: Path | IO[bytes], columns: Mapping[str, type]) -> pd.DataFrame:
    """Read columns of a published CSV file with their types; a number may be empty. Call it within `foreign`."""
    numbers = {name: [""] for name, kind in columns.items() if kind is not str}
    return pd.read_csv(
        file,
        usecols=list(columns),
        dtype=dict(columns),
        index_col=False,  # else all cells shift if rows are longer than the header
        keep_default_na=False,
        na_values=numbers,
    )


@cache
def published_sets(module: str) -> pd.DataFrame:
    """Load OGB's own table of data sets, one per column, from a module such as `graphproppred`."""
    package = importlib.import_module(f"ogb.{module}")
    return pd.read_csv(Path(str(package.__file__)).with_name("master.csv"), index_col=0, keep_default_na=False)
