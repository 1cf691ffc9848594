"""Read one graph from a folder of memory-mapped NumPy arrays: for graphs that would fill memory as Python objects."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphbench.benchmarks.graphs.raw import RawGraphs
from graphbench.benchmarks.graphs.readers.objects import raw_from_objects
from graphbench.errors import CorruptData

SUFFIX, EDGES = ".npy", "edge_index.npy"


def is_array_folder(path: Path) -> bool:
    """Return whether a folder contains the edges of a graph as an array."""
    return (path / EDGES).is_file()


def array_paths(path: Path) -> list[Path]:
    """Return the arrays of a folder, sorted by name."""
    return sorted(path.glob(f"*{SUFFIX}"))


def read_arrays(path: Path) -> RawGraphs:
    """Read a graph whose attributes are files: `edge_index.npy [2, E]`, and others named as in PyG's `Data`.

    Pages of `x.npy [N, F]`, `y.npy`, `train_mask.npy` and so on are read from the disk on demand.
    """
    arrays = {}
    for file in array_paths(path):
        try:
            # Copy-on-write, since torch does not accept read-only memory; it is never written to.
            arrays[file.stem] = np.load(file, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise CorruptData(f"{file} cannot be read as an array ({type(error).__name__}: {error}).") from error
    return raw_from_objects([arrays], str(path))
