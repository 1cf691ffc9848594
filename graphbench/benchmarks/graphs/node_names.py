"""Keep the node names of a source in the store, whose arrays contain only numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphbench.benchmarks.graphs.raw import RawGraphs

#: Arrays: characters of all names, how many each name has, and nodes of each graph.
_ARRAYS = ("node_names", "node_name_lengths", "node_counts")


def node_name_arrays(raw: RawGraphs) -> dict[str, np.ndarray]:
    """Return the names of all nodes as arrays of numbers; empty if the source numbers its nodes."""
    if raw.node_names is None:
        return {}
    text = np.frombuffer("".join(raw.node_names).encode(), dtype=np.uint8)
    lengths = np.array([len(name) for name in raw.node_names], dtype=np.int64)
    return dict(zip(_ARRAYS, (text, lengths, raw.num_nodes.astype(np.int64)), strict=True))


def read_node_names(arrays: Mapping[str, np.ndarray]) -> list[Sequence[str]] | None:
    """Undo `node_name_arrays`: return the names of the nodes of each graph, or None without such arrays."""
    if _ARRAYS[0] not in arrays:
        return None
    text, lengths, counts = (np.asarray(arrays[name]) for name in _ARRAYS)
    names = _cut(text.tobytes().decode(), lengths)
    return _cut(names, counts)


def _cut(whole: Any, lengths: np.ndarray) -> list[Any]:
    """Cut a text or a list into parts of these lengths."""
    ends = np.cumsum(lengths).tolist()
    return [whole[start:end] for start, end in zip([0, *ends], ends, strict=False)]
