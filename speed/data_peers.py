"""A data set of another project that `speed/data_path.py` compares with ours: Hugging Face's `datasets`.

It reads what it wrote to a folder once, as its users do, and yields PyG's batches in shuffled order. It is set up
according to its documentation, and otherwise in the way that was fastest here: columns of flat lists of numbers in
Arrow, read as NumPy arrays one batch at a time. Its two-dimensional array types took six times as long, and its torch
format a fifth longer.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Batch, Data

#: Creates a loader of batches of 32 with the given number of workers.
MakeLoader = Callable[[int], Iterable[Batch]]
BATCH_SIZE = 32
#: Column -> its shape in a graph.
SHAPES = {"x": (-1, 1), "edge_index": (2, -1), "edge_attr": (-1, 1), "y": (-1,), "pe": (-1, 28)}


def written_by_datasets(graphs: Sequence[dict[str, Any]], folder: Path) -> MakeLoader:
    """Write an Arrow table, and return a function that reads it, memory-mapped."""
    import datasets

    datasets.disable_progress_bars()
    path = str(folder / "arrow")
    columns = {name: [graph[name].flatten().numpy() for graph in graphs] for name in SHAPES}
    datasets.Dataset.from_dict(columns).save_to_disk(path)

    def make(workers: int) -> Iterable[Batch]:
        table = datasets.load_from_disk(path).with_format("numpy")
        options: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
        return torch.utils.data.DataLoader(
            table, batch_size=BATCH_SIZE, shuffle=True, collate_fn=batch_of_rows, **options
        )

    return make


def batch_of_rows(rows: list[dict[str, Any]]) -> Batch:
    """Return PyG's batch of rows of a table; their arrays are read-only views of the table."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        graphs = [{name: torch.from_numpy(row[name]).view(shape) for name, shape in SHAPES.items()} for row in rows]
    return Batch.from_data_list([Data(**graph, num_nodes=len(graph["x"])) for graph in graphs])


#: Peer -> its module, and a function that writes graphs and returns how to read them.
PEERS: dict[str, tuple[str, Callable[[Sequence[dict[str, Any]], Path], MakeLoader]]] = {
    "datasets": ("datasets", written_by_datasets),
}


def written_by_peers(graphs: Sequence[dict[str, Any]], folder: Path) -> dict[str, MakeLoader]:
    """Let every peer write the graphs, and report those that are not installed.

    Args:
        graphs: tensors of each graph: the columns of `SHAPES`, and `num_nodes`.
        folder: an empty folder.

    Returns:
        peer -> creates a loader of what it wrote.
    """
    makers = {}
    for name, (module, write) in PEERS.items():
        if importlib.util.find_spec(module) is None:
            print(f"{name} is not installed, its rows are left out; `make speed` installs it.")
        else:
            makers[name] = write(graphs, folder)
    return makers
