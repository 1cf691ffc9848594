"""Graphs of stochastic block models, many at once, as "Benchmarking Graph Neural Networks" samples them.

Legend: G graphs of a chunk with N nodes and E directed edges in all; a graph has n nodes.

All pairs i > j of a graph are numbered row by row, so that pair number k is the same (i, j) in every graph. One random
number per pair is compared with the probability of the pair's communities; nodes are shuffled afterwards. A chunk has
one stream of random numbers; pairs are drawn and edges found graph by graph, so that arrays stay in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Sizes of a community and of a pattern are uniform on these numbers, both included.
SMALLEST, LARGEST = 5, 34
#: Patterns of PATTERN; every split has as many graphs of each.
NUM_PATTERNS = 100
#: Values of a node feature in PATTERN.
NUM_COLOURS = 3
_PATTERN_COMMUNITIES, _CLUSTER_COMMUNITIES = 5, 6
_MOST_NODES = (_PATTERN_COMMUNITIES + 1) * LARGEST
_WIDTH = 256  # of the buffer: above the 204 nodes of the largest graph, so that a place is two bytes, row and column
_PAIR_ROW, _PAIR_COLUMN = np.tril_indices(_MOST_NODES, -1)


@dataclass
class BlockGraphs:
    """Graphs as arrays, one after the other.

    Args:
        num_nodes, num_edges: per graph `[G]`; both directions of an edge count.
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
        num_edges: per pattern `[P]`.
    """

    sizes: np.ndarray
    colours: np.ndarray
    edges: np.ndarray
    num_edges: np.ndarray


@dataclass(frozen=True)
class Chunk:
    """What to sample; the same chunk gives the same graphs wherever it is sampled.

    Args:
        seeds: of the random numbers.
        count: graphs.
        patterns: pattern of each graph `[count]`; None for CLUSTER.
    """

    seeds: tuple[int, ...]
    count: int
    patterns: np.ndarray | None = None


def random_state(*seeds: int) -> np.random.RandomState:
    """NumPy promises the stream of `RandomState` for every version, which its newer generators do not."""
    return np.random.RandomState([seed % (1 << 32) for seed in seeds])


def sample_patterns(seed: int, count: int = NUM_PATTERNS) -> Patterns:
    """Random graphs of 5 to 34 nodes with edge probability 0.5, and a feature for each of their nodes."""
    rng = random_state(seed)
    sizes = rng.randint(SMALLEST, LARGEST + 1, count)
    colours = rng.randint(0, NUM_COLOURS, sizes.sum()).astype(np.uint8)
    pattern, pair = _ragged(_num_pairs(sizes))
    kept = rng.random_sample(len(pair)) < 0.5
    edges = np.stack([_PAIR_ROW[pair[kept]], _PAIR_COLUMN[pair[kept]]], axis=1)
    return Patterns(sizes, colours, edges, np.bincount(pattern[kept], minlength=count))


def sample_pattern_graphs(chunk: Chunk, patterns: Patterns) -> BlockGraphs:
    """Graphs of PATTERN: a pattern hidden in five communities; a node's class says whether it is of the pattern.

    Edge probability 0.5 inside a community, 0.35 across, and 0.5 between a community and the pattern. Features of
    community nodes are uniform on three values.
    """
    assert chunk.patterns is not None
    rng, which = random_state(*chunk.seeds), chunk.patterns
    sizes = rng.randint(SMALLEST, LARGEST + 1, (chunk.count, _PATTERN_COMMUNITIES))
    sizes = np.concatenate([sizes, patterns.sizes[which][:, None]], axis=1)
    block = _blocks(sizes)
    colours = rng.randint(0, NUM_COLOURS, len(block)).astype(np.uint8)
    hidden = block == _PATTERN_COMMUNITIES
    colours[hidden] = patterns.colours[_rows(patterns.sizes, which)]
    inside = np.full(_PATTERN_COMMUNITIES + 1, 0.5)
    inside[-1] = 0  # these edges are the pattern's own
    across = np.full(_PATTERN_COMMUNITIES + 1, 0.35)
    across[-1] = 0.5
    pairs = _draw_pairs(rng, sizes, inside, across)

    # the pattern's nodes are the last of the graph
    num_nodes, num_edges = sizes.sum(1), patterns.num_edges[which]
    ends = patterns.edges[_rows(patterns.num_edges, which)] + np.repeat(num_nodes - sizes[:, -1], num_edges)[:, None]
    pairs[np.repeat(_starts(_num_pairs(num_nodes)), num_edges) + _num_pairs(ends[:, 0]) + ends[:, 1]] = True
    return _shuffled(rng, num_nodes, pairs, colours, hidden)


def sample_cluster_graphs(chunk: Chunk) -> BlockGraphs:
    """Graphs of CLUSTER: six communities, one node of each tells its community; a node's class is its community.

    Edge probability 0.55 inside a community and 0.25 across. The feature of the node that tells is the number of its
    community plus one, that of all others 0.
    """
    rng = random_state(*chunk.seeds)
    sizes = rng.randint(SMALLEST, LARGEST + 1, (chunk.count, _CLUSTER_COMMUNITIES))
    block = _blocks(sizes)
    hints = np.zeros(len(block), dtype=np.uint8)
    flat = sizes.reshape(-1)
    told = _starts(flat) + (rng.random_sample(len(flat)) * flat).astype(np.int64)
    hints[told] = np.tile(np.arange(1, _CLUSTER_COMMUNITIES + 1), chunk.count)
    inside, across = np.full(_CLUSTER_COMMUNITIES, 0.55), np.full(_CLUSTER_COMMUNITIES, 0.25)
    return _shuffled(rng, sizes.sum(1), _draw_pairs(rng, sizes, inside, across), hints, block)


def _starts(lengths: np.ndarray) -> np.ndarray:
    """First row of each range when ranges of `lengths` follow each other."""
    return np.cumsum(lengths) - lengths


def _num_pairs(nodes: np.ndarray) -> np.ndarray:
    """Pairs of so many nodes, which is also the number of the first pair (i, j) with i = `nodes`."""
    pairs: np.ndarray = nodes * (nodes - 1) // 2
    return pairs


def _ragged(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Range and place within it of every row, `[sum(lengths)]` each."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return owner, np.arange(len(owner)) - _starts(lengths)[owner]


def _rows(lengths: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Rows of the `chosen` ranges, one range after the other."""
    owner, place = _ragged(lengths[chosen])
    return _starts(lengths)[chosen][owner] + place


def _blocks(sizes: np.ndarray) -> np.ndarray:
    """Community of every node, `[N]`, for `sizes [G, communities]`."""
    graphs, communities = sizes.shape
    return np.repeat(np.tile(np.arange(communities, dtype=np.uint8), graphs), sizes.reshape(-1))


def _draw_pairs(rng: np.random.RandomState, sizes: np.ndarray, inside: np.ndarray, across: np.ndarray) -> np.ndarray:
    """Which pairs of nodes have an edge, while the nodes of each graph are still in the order of communities.

    Row i of the triangle of pairs then has two stretches of one probability each: columns before the community of i,
    and columns of that community.

    Args:
        rng: samples one number per pair of nodes of a graph.
        sizes: of the communities, `[G, communities]`.
        inside: probability of an edge inside each community.
        across: probability of an edge between each community and any before it.

    Returns:
        One bool per pair, graph after graph.
    """
    owner, place = _ragged(sizes.reshape(-1))
    before = (np.cumsum(sizes, axis=1) - sizes).reshape(-1)[owner]
    kind = owner % sizes.shape[1]
    stretches = np.stack([before, place], axis=1).reshape(-1)
    chances = np.stack([across[kind], inside[kind]], axis=1).reshape(-1)
    thresholds = np.round(chances * (1 << 32)).astype(np.uint32)
    num_nodes = sizes.sum(1)
    pairs = np.empty(_num_pairs(num_nodes).sum(), dtype=bool)
    node = pair = 0
    for n in num_nodes.tolist():
        own, count = slice(2 * node, 2 * (node + n)), n * (n - 1) // 2
        drawn = rng.randint(0, 1 << 32, count, dtype=np.uint32)
        np.less(drawn, np.repeat(thresholds[own], stretches[own]), out=pairs[pair : pair + count])
        node, pair = node + n, pair + count
    return pairs


def _shuffled(
    rng: np.random.RandomState, num_nodes: np.ndarray, pairs: np.ndarray, x: np.ndarray, y: np.ndarray
) -> BlockGraphs:
    """The graphs with the nodes of each in random order.

    Args:
        rng: samples the orders.
        num_nodes: per graph `[G]`.
        pairs: whether the nodes of each pair have an edge, graph after graph.
        x: feature of each node `[N]`.
        y: class of each node `[N]`.
    """
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
        np.array([len(found) for found in edges]),
        x[order, None].astype(np.uint8),
        y[order, None].astype(np.uint8),
        np.concatenate(edges),
    )


def _sorted_edges(pairs: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Both directions of a graph's edges, uint8 `[edges, 2]`, sorted.

    Args:
        pairs: whether the nodes of each pair have an edge `[n (n - 1) / 2]`.
        moved: number that each node gets `[n]`.
    """
    drawn, start = np.flatnonzero(pairs), moved * _WIDTH
    i, j = _PAIR_ROW[drawn], _PAIR_COLUMN[drawn]
    buffer = np.zeros(len(moved) * _WIDTH, dtype=bool)
    buffer[start[i] + moved[j]] = True
    buffer[start[j] + moved[i]] = True
    return np.flatnonzero(buffer).astype(">u2").view(np.uint8).reshape(-1, 2)
