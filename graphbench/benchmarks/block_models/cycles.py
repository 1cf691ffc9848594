"""CYCLES: find the graphs with a cycle of six nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.benchmarks.block_models import specs
from graphbench.benchmarks.tables import make_table
from graphbench.contracts import GraphTable
from graphbench.contracts.spec import with_sizes
from graphbench.contracts.table import EDGE, GRAPH
from graphbench.data.worker_pool import random_state

_LENGTH = 6
_OTHERS = np.array([3, 4, 5, 7, 8, 9])  # mean 6, so that both classes have equally many nodes on cycles
_NODES = (37, 65)  # as in the published set
_ROOTS = (4, 10)  # trees without a cycle, i.e. nodes minus edges: 10, 4 and 8 in the first published graphs


class CYCLES(GraphBenchmark):
    """Does a sparse, disconnected graph contain a cycle of six nodes? 20,000 graphs, generated.

    This is not the published file (Loukas, ICLR 2020; Vignac et al., NeurIPS 2020; "Benchmarking Graph Neural
    Networks", Dwivedi et al., JMLR 2023), whose generator is unknown, but the same task at the same sizes: scores are
    not comparable with published ones. Every graph has 37 to 65 nodes, two components with one cycle
    each, and 4 to 10 trees. Half of the graphs have a cycle of 6 nodes and one of 3, 4, 5, 7, 8 or 9; the
    others have two of the latter. Numbers of nodes, edges and components are sampled alike for both classes, and so is
    the mean number of nodes on cycles. Nodes and edges have no features.

    Args:
        graph_seed: seed of the graphs.
        sizes: graphs in train, validation and test, for a smaller (or larger) set.
        options: see `GraphBenchmark`.
    """

    spec = specs.CYCLES

    def __init__(self, graph_seed: int = 0, sizes: tuple[int, int, int] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.graph_seed = graph_seed
        self.spec = with_sizes(type(self).spec, sizes)

    def source_key(self) -> dict[str, Any]:
        """Return seed and sizes."""
        return {"graph_seed": self.graph_seed, "sizes": list(self.spec.split_sizes or ())}

    def read(self) -> dict[str, GraphTable]:
        """Sample the graphs of each split."""
        return self.sampled(lambda number, size: cycle_graphs(size, self.graph_seed, number))


def cycle_graphs(count: int, *seeds: int) -> GraphTable:
    """Sample graphs with and without a cycle of six nodes, in random order, with edges sorted by (from, to)."""
    rng = random_state(*seeds)
    y = rng.permutation(np.arange(count) % 2)
    lengths = rng.choice(_OTHERS, (count, 2))
    lengths[y == 1, 0] = _LENGTH
    num_nodes = rng.randint(_NODES[0], _NODES[1] + 1, count)
    roots = rng.randint(_ROOTS[0], _ROOTS[1] + 1, count)

    graph, ends = _sample_edges(rng, lengths, num_nodes, roots)
    both = np.stack([ends, ends[:, ::-1]], axis=1).reshape(-1, 2)
    both = both[np.lexsort((both[:, 1], both[:, 0], np.repeat(graph, 2)))]
    return make_table({"edge_index": (both, EDGE), "y": (y[:, None], GRAPH)}, num_nodes, 2 * (num_nodes - roots))


def _sample_edges(
    rng: np.random.RandomState, lengths: np.ndarray, num_nodes: np.ndarray, roots: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the graph of each edge `[edges]`, and its nodes within the graph `[edges, 2]`, with each edge once.

    Every node has at most one outgoing edge: from a node of a cycle to the next one, and from any later node to an
    earlier one; the roots of further trees have none. Nodes are numbered at random.
    """
    graph = np.repeat(np.arange(len(num_nodes)), num_nodes)
    start = np.cumsum(num_nodes) - num_nodes
    local = np.arange(len(graph)) - start[graph]
    first, second = lengths[graph].T
    target = np.where(local < first, (local + 1) % first, first + (local - first + 1) % second)
    on_tree = local >= first + second
    target[on_tree] = (rng.random_sample(len(graph)) * local)[on_tree].astype(np.int64)

    # roots are the first nodes of each graph in a random order of its tree nodes
    order = np.lexsort((rng.random_sample(len(graph)), ~on_tree, graph))
    rank = np.empty_like(order)
    rank[order] = local
    has_edge = ~on_tree | (rank >= roots[graph])

    # A random number below 1 is added to the graph number, so one sort shuffles every graph separately.
    shuffled = np.argsort(graph + rng.random_sample(len(graph)), kind="stable")
    number = np.empty_like(shuffled)
    number[shuffled] = local
    ends = np.stack([number, number[start[graph] + target]], axis=1)
    return graph[has_edge], ends[has_edge]
