"""Read the GNN benchmark as PyG publishes it.

The archive of a dataset has one file, `NAME.pt`, with train, validation and test as lists of dicts of tensors.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphbench.benchmarks.tables import check_rows, make_table, tables_in_parts
from graphbench.contracts import SPLITS, GraphTable
from graphbench.contracts.table import EDGE, NODE
from graphbench.data.download import fetch_members
from graphbench.data.files.foreign import FETCH_AGAIN, foreign, load_tensors
from graphbench.errors import CorruptData

Graph = Mapping[str, Any]
#: Maps graphs of the file to name -> (column, axis), including a column with a row per node.
Convert = Callable[[Sequence[Graph]], dict[str, tuple[Tensor, str]]]

_BYTE_NODES = 256  # node numbers below are stored in one byte


def address(name: str) -> str:
    """Return the address from which PyG fetches a dataset of the GNN benchmark."""
    from torch_geometric.datasets import GNNBenchmarkDataset

    return GNNBenchmarkDataset.urls[name]


def fetch(name: str, folder: Path, otherwise: str) -> Path:
    """Return the file with the graphs, `folder/raw/NAME_v2.pt` as in PyG's own folder.

    It is unpacked from `folder/raw/NAME_v2.zip` if that exists, else downloaded; `otherwise` is advice for users
    without a network. Raises the errors of `fetch_members`.
    """
    url = address(name)
    file = Path(url).with_suffix(".pt").name
    return fetch_members(url, folder / "raw", {file: file}, what=name, advice=otherwise)[file]


def read_splits(path: Path, convert: Convert, most_nodes: int = _BYTE_NODES) -> dict[str, Iterator[GraphTable]]:
    """Read the graphs of each split as tables, without running code from the file.

    Raises:
        CorruptData: the file is damaged or holds something else; also raised while the tables are read.
    """
    with foreign(path, FETCH_AGAIN):
        splits = load_tensors(path, mmap=zipfile.is_zipfile(path))
    if not isinstance(splits, list | tuple) or len(splits) != len(SPLITS):
        raise CorruptData(f"{path}: expected train, validation and test graphs, got {type(splits).__name__}.")
    wrong = [type(graphs).__name__ for graphs in splits if not isinstance(graphs, list | tuple)]
    if wrong:
        raise CorruptData(f"{path}: expected a list of graphs for each split, got {wrong[0]}.")
    build = partial(_table, convert=convert, most_nodes=most_nodes)
    return {
        split: tables_in_parts(graphs, build, f"{path}: {split}", f"{path.name}, {split}", "the GNN benchmark")
        for split, graphs in zip(SPLITS, splits, strict=True)
    }


def _table(graphs: Sequence[Graph], convert: Convert, most_nodes: int) -> GraphTable:
    columns = convert(graphs)
    nodes = torch.tensor([len(graph["x"]) for graph in graphs])
    edges = [graph["edge_index"].t() for graph in graphs]
    rows = {NODE: nodes.tolist(), EDGE: [len(part) for part in edges]}
    for name, axis in (("edge_attr", EDGE), ("y", columns["y"][1])):
        if axis in rows and name in graphs[0]:
            check_rows(rows[axis], [len(graph[name]) for graph in graphs], f"{axis}s", f"rows of {name}")
    if int(nodes.max()) > most_nodes:
        raise ValueError(f"a graph has {int(nodes.max())} nodes")
    ends = torch.cat(edges)
    # Check before the cast to a byte, which could turn a wrong number into a valid one.
    if len(ends) and not 0 <= int(ends.min()) <= int(ends.max()) < most_nodes:
        raise ValueError("edge_index leads to nodes that do not exist")
    columns["edge_index"] = (ends.to(torch.uint8 if most_nodes <= _BYTE_NODES else torch.int16), EDGE)
    return make_table(columns, nodes, rows[EDGE])
