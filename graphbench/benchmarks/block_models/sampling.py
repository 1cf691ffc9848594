"""Sample many graphs of stochastic block models at once, as in "Benchmarking Graph Neural Networks".

Legend: G graphs of a chunk with N nodes and E directed edges in total; one graph has n nodes.

All pairs i > j of a graph are numbered row by row, so pair number k is the same (i, j) in every graph. One random
number per pair is compared with the probability for the pair's communities; nodes are shuffled afterwards. A chunk has
one stream of random numbers. Pairs are sampled graph by graph, so that arrays stay in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphbench.data.worker_pool import random_state

SMALLEST, LARGEST = 5, 34  # sizes of communities and patterns, inclusive
NUM_PATTERNS = 100  # of PATTERN; every split has equally many graphs of each
NUM_COLOURS = 3  # values of the node feature in PATTERN
_PATTERN_COMMUNITIES, _CLUSTER_COMMUNITIES = 5, 6
_MAX_NODES = (_PATTERN_COMMUNITIES + 1) * LARGEST
_WIDTH = 256  # of an adjacency buffer, above the 204 nodes of the largest graph: an index is two bytes, row and column
_PAIR_ROW, _PAIR_COLUMN = np.tril_indices(_MAX_NODES, -1)


@dataclass
class BlockGraphs:
    """Graphs as arrays, one after the other.

    Args:
        num_nodes, num_edges: sizes per graph `[G]`; both directions of an edge count.
        x: node feature, uint8 `[N, 1]`.
        y: class of each node, uint8 `[N, 1]`.
        edge_index: node numbers within the graph, uint8 `[E, 2]`, sorted.
    """

    num_nodes: np.ndarray
    num_edges: np.ndarray
    x: np.ndarray
    y: np.ndarray
    edge_index: np.ndarray


@dataclass(frozen=True)
class Patterns:
    """The patterns of PATTERN, one after the other.

    Args:
        sizes: nodes of each `[P]`.
        colours: node features, uint8 `[sum(sizes)]`.
        edges: node numbers within the pattern, each edge once, `[edges, 2]`.
        num_edges: edges per pattern `[P]`.
    """

    sizes: np.ndarray
    colours: np.ndarray
    edges: np.ndarray
    num_edges: np.ndarray


@dataclass(frozen=True)
class Chunk:
    """Graphs that are sampled together; a chunk gives the same graphs in every process.

    `patterns` has the pattern of each graph `[count]`; None for CLUSTER.
    """

    seeds: tuple[int, ...]
    count: int
    patterns: np.ndarray | None = None


def sample_patterns(seed: int, count: int = NUM_PATTERNS) -> Patterns:
    """Sample graphs of 5 to 34 nodes with edge probability 0.5, and a feature for each of their nodes."""
    rng = random_state(seed)
    sizes = rng.randint(SMALLEST, LARGEST + 1, count)
    colours = rng.randint(0, NUM_COLOURS, sizes.sum()).astype(np.uint8)
    pattern, pair = _ragged(_num_pairs(sizes))
    is_edge = rng.random_sample(len(pair)) < 0.5
    edges = np.stack([_PAIR_ROW[pair[is_edge]], _PAIR_COLUMN[pair[is_edge]]], axis=1)
    return Patterns(sizes, colours, edges, np.bincount(pattern[is_edge], minlength=count))


def sample_pattern_graphs(chunk: Chunk, patterns: Patterns) -> BlockGraphs:
    """Sample graphs of PATTERN: a pattern hidden in five communities, whose nodes have class 1.

    The edge probability is 0.5 inside a community, 0.35 across, and 0.5 between a community and the pattern. Features
    of community nodes are uniform over three values.
    """
    assert chunk.patterns is not None
    rng, pattern = random_state(*chunk.seeds), chunk.patterns
    sizes = rng.randint(SMALLEST, LARGEST + 1, (chunk.count, _PATTERN_COMMUNITIES))
    sizes = np.concatenate([sizes, patterns.sizes[pattern][:, None]], axis=1)
    block = _blocks(sizes)
    colours = rng.randint(0, NUM_COLOURS, len(block)).astype(np.uint8)
    hidden = block == _PATTERN_COMMUNITIES
    colours[hidden] = patterns.colours[_rows(patterns.sizes, pattern)]
    inside = np.full(_PATTERN_COMMUNITIES + 1, 0.5)
    inside[-1] = 0  # the pattern has its own edges
    across = np.full(_PATTERN_COMMUNITIES + 1, 0.35)
    across[-1] = 0.5
    pairs = _draw_pairs(rng, sizes, inside, across)

    # the pattern's nodes are the last of the graph
    num_nodes, num_edges = sizes.sum(1), patterns.num_edges[pattern]
    ends = patterns.edges[_rows(patterns.num_edges, pattern)] + np.repeat(num_nodes - sizes[:, -1], num_edges)[:, None]
    pairs[np.repeat(_starts(_num_pairs(num_nodes)), num_edges) + _num_pairs(ends[:, 0]) + ends[:, 1]] = True
    return _shuffled(rng, num_nodes, pairs, colours, hidden)


def sample_cluster_graphs(chunk: Chunk) -> BlockGraphs:
    """Sample graphs of CLUSTER: six communities, which are the classes, with one labelled node in each.

    The edge probability is 0.55 inside a community and 0.25 across. The feature of a labelled node is the number of its
    community plus one, that of all others 0.
    """
    rng = random_state(*chunk.seeds)
    sizes = rng.randint(SMALLEST, LARGEST + 1, (chunk.count, _CLUSTER_COMMUNITIES))
    block = _blocks(sizes)
    labels = np.zeros(len(block), dtype=np.uint8)
    flat = sizes.reshape(-1)
    labelled = _starts(flat) + (rng.random_sample(len(flat)) * flat).astype(np.int64)
    labels[labelled] = np.tile(np.arange(1, _CLUSTER_COMMUNITIES + 1), chunk.count)
    inside, across = np.full(_CLUSTER_COMMUNITIES, 0.55), np.full(_CLUSTER_COMMUNITIES, 0.25)
    return _shuffled(rng, sizes.sum(1), _draw_pairs(rng, sizes, inside, across), labels, block)


def _starts(lengths: np.ndarray) -> np.ndarray:
    """Return the first row of each of consecutive ranges."""
    return np.cumsum(lengths) - lengths


def _num_pairs(nodes: np.ndarray) -> np.ndarray:
    """Return the number of pairs of `nodes` nodes, which is also that of the first pair (i, j) with i = `nodes`."""
    pairs: np.ndarray = nodes * (nodes - 1) // 2
    return pairs


def _ragged(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the range of every row and its position within the range, `[sum(lengths)]` each."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return owner, np.arange(len(owner)) - _starts(lengths)[owner]


def _rows(lengths: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the rows of the `chosen` ranges, one range after the other."""
    owner, place = _ragged(lengths[chosen])
    return _starts(lengths)[chosen][owner] + place


def _blocks(sizes: np.ndarray) -> np.ndarray:
    """Return the community of every node `[N]`, for `sizes [G, communities]`."""
    graphs, communities = sizes.shape
    return np.repeat(np.tile(np.arange(communities, dtype=np.uint8), graphs), sizes.reshape(-1))


def _draw_pairs(rng: np.random.RandomState, sizes: np.ndarray, inside: np.ndarray, across: np.ndarray) -> np.ndarray:
    """Sample graph by graph whether each pair of nodes is an edge; nodes are ordered by community.

    Row i of the triangle of pairs has two ranges of constant probability: columns before the community of i (`across`),
    and columns of that community (`inside`).
    """
    owner, place = _ragged(sizes.reshape(-1))
    before = (np.cumsum(sizes, axis=1) - sizes).reshape(-1)[owner]
    kind = owner % sizes.shape[1]
    stretches = np.stack([before, place], axis=1).reshape(-1)
    chances = np.stack([across[kind], inside[kind]], axis=1).reshape(-1)
    thresholds = np.round(chances * (1 << 32)).astype(np.uint32)  # integers: half the bytes of a random float64
    num_nodes = sizes.sum(1)
    pairs = np.empty(_num_pairs(num_nodes).sum(), dtype=bool)
    node = pair = 0
    for n in num_nodes.tolist():
        rows, count = slice(2 * node, 2 * (node + n)), n * (n - 1) // 2
        sample = rng.randint(0, 1 << 32, count, dtype=np.uint32)
        np.less(sample, np.repeat(thresholds[rows], stretches[rows]), out=pairs[pair : pair + count])
        node, pair = node + n, pair + count
    return pairs


def _shuffled(
    rng: np.random.RandomState, num_nodes: np.ndarray, pairs: np.ndarray, x: np.ndarray, y: np.ndarray
) -> BlockGraphs:
    """Return the graphs with the nodes of each in random order."""
    graph, place = _ragged(num_nodes)
    order = np.argsort(graph + rng.random_sample(len(graph)), kind="stable")
    moved = np.empty(len(order), dtype=np.intp)
    moved[order] = place
    edges, node, pair = [], 0, 0
    for n in num_nodes.tolist():
        edges.append(_sorted_edges(pairs[pair : pair + n * (n - 1) // 2], moved[node : node + n]))
        node, pair = node + n, pair + n * (n - 1) // 2
    return BlockGraphs(
        num_nodes,
        np.array([len(ends) for ends in edges]),
        x[order, None].astype(np.uint8),
        y[order, None].astype(np.uint8),
        np.concatenate(edges),
    )


def _sorted_edges(pairs: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Return both directions of the edges of a graph, uint8 `[edges, 2]`, sorted, with the new numbers of its nodes."""
    # Marks in a buffer of rows of 256 come out sorted, many times faster than sorting the edges.
    edge, start = np.flatnonzero(pairs), moved * _WIDTH
    i, j = _PAIR_ROW[edge], _PAIR_COLUMN[edge]
    buffer = np.zeros(len(moved) * _WIDTH, dtype=bool)
    buffer[start[i] + moved[j]] = True
    buffer[start[j] + moved[i]] = True
    return np.flatnonzero(buffer).astype(">u2").view(np.uint8).reshape(-1, 2)  # the two bytes are row and column
