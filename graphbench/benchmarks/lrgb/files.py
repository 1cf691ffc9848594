"""Fetch and read LRGB's five data sets as published by PyG: one archive each, with one file per split.

The superpixel data sets contain pickled lists (`train.pickle`), the molecular ones lists saved by torch (`train.pt`);
an item is a tuple of tensors. Files are where PyG's `LRGBDataset` puts them below its root: `NAME/raw/`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor

from graphbench.benchmarks.lrgb.pickles import read_pickled_graphs
from graphbench.benchmarks.tables import check_rows, make_table, tables_in_parts
from graphbench.contracts import SPLITS, GraphTable
from graphbench.contracts.table import EDGE, GRAPH, NODE, Column, pointer
from graphbench.data.download import fetch_members
from graphbench.data.files.foreign import FETCH_AGAIN, foreign, load_tensors
from graphbench.errors import CorruptData

Graph = Sequence[Any]
Convert = Callable[[Sequence[Graph]], GraphTable]
#: Axis and column of the contacts of PCQM-Contact.
CONTACT, CONTACTS = "contact", "contact_index"
_INDEX = torch.int16  # node numbers within a graph
#: COCO's category numbers, background first; their indices are the classes of COCO-SP.
COCO_CATEGORIES = (
    *range(12), *range(13, 26), 27, 28, *range(31, 45), *range(46, 66), 67, 70, *range(72, 83), *range(84, 91),
)  # fmt: skip


def address(name: str) -> str:
    """Return PyG's address of one of LRGB's data sets."""
    from torch_geometric.datasets import LRGBDataset

    return LRGBDataset.urls[name]


def members(name: str) -> dict[str, str]:
    """Return the path inside the archive of each split's file."""
    from torch_geometric.datasets import LRGBDataset

    suffix = "pickle" if name.endswith("-sp") else "pt"
    return {split: f"{LRGBDataset.dwnld_file_name[name]}/{split}.{suffix}" for split in SPLITS}


def fetch(name: str, root: Path, advice: str = "") -> dict[str, Path]:
    """Return the file of each split, `root/NAME/raw/train.pickle` (or `.pt`) and so on, as in PyG's layout.

    Missing files are unpacked from an archive in `root/NAME/raw`, which is downloaded if it is also missing.
    """
    inside = {PurePosixPath(member).name: member for member in members(name).values()}
    paths = fetch_members(address(name), root / name / "raw", inside, what=name, advice=advice)
    return dict(zip(SPLITS, paths.values(), strict=True))


def read_superpixels(path: Path, categories: Sequence[int]) -> Iterator[GraphTable]:
    """Read graphs of one pickled split in parts, with a few thousand in memory; `categories` are its labels.

    Node features stay in half precision, as in the published files.
    """
    class_of = torch.full((max(categories) + 1,), -1, dtype=torch.int16)
    class_of[torch.tensor(list(categories))] = torch.arange(len(categories), dtype=torch.int16)
    return _in_parts(path, read_pickled_graphs(path), lambda graphs: superpixel_table(graphs, class_of))


def superpixel_table(graphs: Sequence[Graph], class_of: Tensor) -> GraphTable:
    """Create a table of graphs `(x [n, 14], edge_attr [e, 2], edge_index [2, e], y [n])`.

    `class_of` has the class of each label, or -1.
    """
    x = torch.cat([graph[0] for graph in graphs])
    of_graphs = [torch.as_tensor(graph[3]).reshape(-1) for graph in graphs]
    check_rows([len(graph[0]) for graph in graphs], [len(labels) for labels in of_graphs], "nodes", "labels")
    labels = _whole(torch.cat(of_graphs), "labels").to(torch.int64)
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(class_of):
        raise ValueError(f"labels reach from {int(labels.min())} to {int(labels.max())}")
    y = class_of[labels]
    if bool((y < 0).any()):
        raise ValueError(f"the label {int(labels[y < 0][0])} is not a class")
    columns = {
        "x_dense": (x if x.dtype == torch.float16 else x.float(), NODE),
        "edge_dense": (torch.cat([graph[1] for graph in graphs]).float(), EDGE),
        "y": (y.to(torch.uint8)[:, None], NODE),
    }
    return _table(graphs, columns)


def read_molecules(path: Path, convert: Convert) -> Iterator[GraphTable]:
    """Read graphs of one split saved by torch, memory-mapped if possible and without running code from the file."""
    # Only torch's zip format can be mapped; older files are a single pickle.
    with foreign(path, FETCH_AGAIN):
        graphs = load_tensors(path, mmap=zipfile.is_zipfile(path))
    if not isinstance(graphs, list | tuple):
        raise CorruptData(f"{path}: expected a list of graphs, got {type(graphs).__name__}.")
    return _in_parts(path, graphs, convert)


def peptide_table(graphs: Sequence[Graph]) -> GraphTable:
    """Create a table of graphs `(x [n, 9], edge_attr [e, 3], edge_index [2, e], y [1, T])`."""
    y = torch.cat([graph[3].reshape(1, -1) for graph in graphs]).float()
    if bool(y.isnan().any()):
        raise ValueError(f"graph {int(y.isnan().any(1).nonzero()[0])} of these lacks a target")
    return _table(graphs, _atoms_and_bonds(graphs) | {"y": (y, GRAPH)})


def contact_table(graphs: Sequence[Graph]) -> GraphTable:
    """Create a table of graphs `(x, edge_attr, edge_index, edge_label_index [2, p], edge_label [p])`.

    Pairs with label 1 are contacts; others are dropped, since the task samples wrong pairs itself.
    """
    labels = [graph[4].reshape(-1) for graph in graphs]
    if not all(bool(((label == 0) | (label == 1)).all()) for label in labels):
        raise ValueError("a pair has a label other than 0 and 1")
    contacts = [graph[3].t()[label == 1] for graph, label in zip(graphs, labels, strict=True)]
    table = _table(graphs, _atoms_and_bonds(graphs))
    counts = torch.tensor([len(pairs) for pairs in contacts])
    pairs = torch.cat(contacts).to(torch.int64)
    nodes = table.num_nodes.repeat_interleave(counts)[:, None]
    if bool(((pairs < 0) | (pairs >= nodes)).any()):
        raise ValueError("a contact joins atoms that do not exist")
    return table.with_columns(
        {CONTACTS: pairs.to(_INDEX)}, {CONTACTS: Column(CONTACT, index_of=NODE)}, {CONTACT: pointer(counts)}
    )


def _atoms_and_bonds(graphs: Sequence[Graph]) -> dict[str, tuple[Tensor, str]]:
    return {
        "x": (_small(torch.cat([graph[0] for graph in graphs])), NODE),
        "edge_attr": (_small(torch.cat([graph[1] for graph in graphs])), EDGE),
    }


def _small(values: Tensor) -> Tensor:
    """Narrow codes to one byte each."""
    if values.is_floating_point() or (values.numel() and not 0 <= int(values.min()) <= int(values.max()) < 256):
        raise ValueError("features are not in OGB's vocabularies")
    return values.to(torch.uint8)


def _whole(numbers: Tensor, what: str) -> Tensor:
    """Refuse numbers that would be truncated to integers."""
    if numbers.is_floating_point() and not torch.equal(numbers, numbers.trunc()):
        raise ValueError(f"not all numbers of {what} are whole")
    return numbers


def _table(graphs: Sequence[Graph], columns: dict[str, tuple[Tensor, str]]) -> GraphTable:
    nodes = torch.tensor([len(graph[0]) for graph in graphs])
    edges = torch.tensor([graph[2].shape[1] for graph in graphs])
    if int(nodes.max()) > torch.iinfo(_INDEX).max:
        raise ValueError(f"a graph has {int(nodes.max())} nodes")
    check_rows(edges.tolist(), [len(graph[1]) for graph in graphs], "edges", "rows of features of edges")
    ends = _whole(torch.cat([graph[2].t() for graph in graphs]), "edge_index")
    if len(ends) and not 0 <= int(ends.min()) <= int(ends.max()) < int(nodes.max()):
        raise ValueError("edge_index leads to nodes that do not exist")
    return make_table({**columns, "edge_index": (ends.to(_INDEX), EDGE)}, nodes, edges)


def _in_parts(path: Path, graphs: Iterable[Graph], convert: Convert) -> Iterator[GraphTable]:
    return tables_in_parts(graphs, convert, f"{path}:", f"{path.parent.parent.name} {path.stem}", "this set")
