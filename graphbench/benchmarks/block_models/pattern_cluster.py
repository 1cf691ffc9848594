"""PATTERN and CLUSTER: classes of nodes in stochastic block models, generated here or downloaded."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.benchmarks.block_models import specs
from graphbench.benchmarks.block_models.sampling import (
    NUM_PATTERNS,
    BlockGraphs,
    Chunk,
    sample_cluster_graphs,
    sample_pattern_graphs,
    sample_patterns,
)
from graphbench.benchmarks.gnn_benchmark_files import Graph, address, fetch, read_splits
from graphbench.benchmarks.tables import make_table
from graphbench.contracts import SPLITS, GraphTable
from graphbench.contracts.spec import with_sizes
from graphbench.contracts.table import EDGE, NODE
from graphbench.data.worker_pool import map_in_processes
from graphbench.errors import BadInput, check_choice

Source = Literal["generated", "pyg"]
_CHUNK = 100  # graphs per job: about 20 ms; another number would change the graphs
_BYTE = 256  # exclusive limit of features and classes, which are stored in one byte


class BlockModelBenchmark(GraphBenchmark):
    """Base of PATTERN and CLUSTER.

    Args:
        source: `generated`: sampled here with the published parameters; equal for the same `graph_seed` with any number
            of processes. The published graphs have the same distribution, but their seed is unknown. `pyg`: the
            published graphs, downloaded from the address in PyG.
        graph_seed: seed of the generated graphs.
        sizes: graphs in train, validation and test for a smaller (or larger) generated set.
        options: see `GraphBenchmark`.
    """

    #: Mean nodes and mean directed edges of the published graphs; the specification has those of the generated ones.
    published_sizes: ClassVar[tuple[float, float]]

    def __init__(
        self,
        source: Source = "generated",
        graph_seed: int = 0,
        sizes: tuple[int, int, int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_choice("source", source, get_args(Source))
        if source == "pyg" and (graph_seed or sizes):
            raise BadInput("source=pyg has its own graphs: graph_seed and sizes belong to source=generated.")
        self.source, self.graph_seed = source, graph_seed
        self.spec = with_sizes(type(self).spec, sizes)
        if source == "pyg":
            self.spec = replace(
                self.spec,
                mean_nodes=self.published_sizes[0],
                mean_edges=self.published_sizes[1],
                offline=False,
                licence="MIT",
                source=f"{self.spec.name}_v2.zip, by the address in PyG",
            )

    def source_key(self) -> dict[str, Any]:
        """Return the address of the published file, or the seed and sizes of the generated graphs."""
        if self.source == "pyg":
            return {"source": "pyg", "address": address(self.spec.name)}
        return {"source": "generated", "graph_seed": self.graph_seed, "sizes": list(self.spec.split_sizes or ())}

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Sample the graphs on all cores, or download and convert them.

        Raises:
            MissingData: the published file could not be fetched; says how to get it.
            CorruptData: the published file is damaged.
        """
        name = self.spec.name
        if self.source == "generated":
            return self.sampled(self._sample)
        otherwise = "Or use graphs of the same distribution without a network: source=generated."
        path = fetch(name, Path(self.root, name), otherwise)
        return read_splits(path, partial(_from_published, vocabulary=self.spec.node.vocabularies[0]))

    def _sample(self, split: int, size: int) -> Iterator[GraphTable]:
        jobs = [
            Chunk((self.graph_seed, split + 1, start // _CHUNK), min(_CHUNK, size - start), self.patterns(start, size))
            for start in range(0, size, _CHUNK)
        ]
        description = f"Sampling {self.spec.name} {SPLITS[split]}"
        for graphs in map_in_processes(self.draw(), jobs, len(jobs), description, unit=f"chunks of {_CHUNK} graphs"):
            columns = {"x": (graphs.x, NODE), "y": (graphs.y, NODE), "edge_index": (graphs.edge_index, EDGE)}
            yield make_table(columns, graphs.num_nodes, graphs.num_edges)

    @abstractmethod
    def draw(self) -> Callable[[Chunk], BlockGraphs]:
        """Return the function that samples a chunk."""

    def patterns(self, start: int, size: int) -> np.ndarray | None:
        """Return the pattern of each graph of the chunk from graph `start` on, in a split of `size` graphs."""
        return None


class PATTERN(BlockModelBenchmark):
    """Find the nodes of a pattern hidden among communities: 14,000 graphs, generated or downloaded.

    Five communities of 5 to 34 nodes (edge probability 0.5 inside, 0.35 across) and one of 100 patterns of 5 to 34
    nodes (0.5), whose nodes are each joined to every other node with probability 0.5; the patterns are the same in all
    splits ("Benchmarking Graph Neural Networks", Dwivedi et al., JMLR 2023). Generated graphs have 117 nodes and 5,870
    directed edges in expectation; a set deviates from that by its 100 patterns.

    Args:
        options: `source`, `graph_seed` and `sizes` as in `BlockModelBenchmark`; see also `GraphBenchmark`.
    """

    spec = specs.PATTERN

    published_sizes = (118.9, 6078.6)

    def draw(self) -> Callable[[Chunk], BlockGraphs]:
        """Return the sampler of graphs around the patterns of `graph_seed`."""
        return partial(sample_pattern_graphs, patterns=sample_patterns(self.graph_seed))

    def patterns(self, start: int, size: int) -> np.ndarray | None:
        """Return equally many graphs of each pattern, one pattern after the other."""
        return np.arange(start, min(start + _CHUNK, size)) * NUM_PATTERNS // size


class CLUSTER(BlockModelBenchmark):
    """Find the community of each node, given one node per community: 12,000 graphs, generated or downloaded.

    Six communities of 5 to 34 nodes (edge probability 0.55 inside, 0.25 across); the feature of one random node of each
    is its community, that of all others is 0 ("Benchmarking Graph Neural Networks", Dwivedi et al., JMLR 2023).
    Generated graphs have 117 nodes and 4,289 directed edges in expectation.

    Args:
        options: `source`, `graph_seed` and `sizes` as in `BlockModelBenchmark`; see also `GraphBenchmark`.
    """

    spec = specs.CLUSTER

    published_sizes = (117.2, 4301.8)

    def draw(self) -> Callable[[Chunk], BlockGraphs]:
        """Return the sampler of communities."""
        return sample_cluster_graphs


def _from_published(graphs: Sequence[Graph], vocabulary: int) -> dict[str, tuple[Tensor, str]]:
    """Convert one-hot rows (or plain numbers) to categories, and classes; both `[nodes, 1]`."""
    x = torch.cat([graph["x"] for graph in graphs])
    if x.dim() == 2 and x.shape[1] == vocabulary:
        if not bool(((x == 0) | (x == 1)).all()) or not bool((x.sum(1) == 1).all()):
            raise ValueError("x is not one-hot")
        x = x.argmax(1)
    elif x.dim() > 2 or x.shape[1:].numel() != 1 or x.is_floating_point():
        raise ValueError(f"x has shape {list(x.shape)} and {x.dtype} instead of one of {vocabulary} values per node")
    y = torch.cat([graph["y"].reshape(-1) for graph in graphs])
    for name, column in (("x", x), ("y", y)):
        if not 0 <= int(column.min()) <= int(column.max()) < _BYTE:
            raise ValueError(f"{name} holds {int(column.min())} to {int(column.max())}")
    return {"x": (x.reshape(-1, 1).to(torch.uint8), NODE), "y": (y.reshape(-1, 1).to(torch.uint8), NODE)}
