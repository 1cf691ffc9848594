"""Fetch and read ECHO's published files: a list of PyG's `Data` per split, saved by torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphbench.benchmarks.graphs.readers.saved import load_saved
from graphbench.benchmarks.tables import check_rows, make_table, tables_in_parts
from graphbench.contracts import SPLITS, GraphTable
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.data.download import fetch
from graphbench.errors import CorruptData

_HOST = "https://huggingface.co/datasets/lucamiglior/echo-benchmark/resolve/main"
#: The target of a graph: `[num_nodes]`, or `[1]` for the whole graph.
Target = Callable[[Tensor], Tensor]


def addresses(part: str) -> dict[str, str]:
    """Map each split to the address of its file in a part: `echo-synth`, `echo-chem/charge` or `echo-chem/energy`."""
    return {split: f"{_HOST}/{part}/{split}_data.pt" for split in SPLITS}


def read_part(part: str, root: Path, target: Target, level: str, advice: str = "") -> dict[str, Iterator[GraphTable]]:
    """Fetch the files of a part to `root/ECHO/PART` unless they exist, and read each split as tables.

    `part` is one of `addresses`, `target` is called with a graph's float64 `y [rows, columns]`, and `level`, node or
    graph, is what that target belongs to.

    Raises:
        MissingData: a file could not be fetched; says where to put it.
        CorruptData: a file is damaged or has other content; also raised while the tables are read.
    """
    urls = addresses(part)
    files = {split: url.rpartition("/")[2] for split, url in urls.items()}
    others = {files[split]: url for split, url in urls.items()}
    folder = Path(root, "ECHO", *part.split("/"))
    return {
        split: _tables(fetch(url, folder, files[split], what=part, others=others, advice=advice), target, level)
        for split, url in urls.items()
    }


def _tables(path: Path, target: Target, level: str) -> Iterator[GraphTable]:
    graphs = load_saved(path)
    if not isinstance(graphs, list) or not all(isinstance(graph, Data) for graph in graphs):
        raise CorruptData(f"{path}: expected a list of PyG's Data, got {type(graphs).__name__}.")
    yield from tables_in_parts(
        graphs, lambda part: _table(part, target, level), f"{path}:", f"ECHO, {path.name}", "ECHO"
    )


def _table(graphs: Sequence[Data], target: Target, level: str) -> GraphTable:
    """Create a table of graphs with `x [n, F]`, `edge_index [2, m]`, `y [rows, C]` and, if present, `edge_attr`."""
    nodes = torch.tensor([len(graph.x) for graph in graphs])
    ends = [torch.as_tensor(graph.edge_index).t() for graph in graphs]
    for number, (end, size) in enumerate(zip(ends, nodes.tolist(), strict=True)):
        if end.numel() and not 0 <= int(end.min()) <= int(end.max()) < size:
            raise ValueError(f"graph {number} has {size} nodes and edges to others")
    y = [target(_rows(graph.y).double()) for graph in graphs]
    for number, values in enumerate(y):
        rows = int(nodes[number]) if level == NODE else 1
        if values.shape != (rows,):
            raise ValueError(f"graph {number} has {len(values)} targets for {rows} {level}s")
    columns: dict[str, tuple[Tensor | np.ndarray, str]] = {
        "x_dense": (torch.cat([_rows(graph.x) for graph in graphs]).float(), NODE),
        "edge_index": (torch.cat(ends).to(torch.int16), EDGE),
        "y": (torch.cat(y)[:, None], NODE if level == NODE else GRAPH),
    }
    edges = [len(end) for end in ends]
    if all(graph.edge_attr is not None for graph in graphs):
        features = [_rows(graph.edge_attr) for graph in graphs]
        check_rows(edges, list(map(len, features)), "edges", "rows of features of edges")
        columns["edge_dense"] = (torch.cat(features).float(), EDGE)
    return make_table(columns, nodes, edges)


def _rows(values: Any) -> Tensor:
    """Return an array, a list of arrays or a tensor as rows of columns."""
    rows = torch.as_tensor(np.asarray(values) if isinstance(values, list) else values)
    return rows if rows.dim() == 2 else rows.reshape(len(rows), -1)
