"""Links of one graph, shared out among the splits: what validates and tests is hidden from the graph that is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphbench.benchmarks.graphs.raw import WRONG, RawGraphs
from graphbench.benchmarks.graphs.splits.shares import random_parts
from graphbench.benchmarks.graphs.splits.splitting import SplitRequest
from graphbench.contracts import SPLITS
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.errors import BadInput


def are_of_one_graph(raw: RawGraphs) -> bool:
    """Whether each split is one and the same graph with pairs of its own, as `RandomLinkSplit` returns it."""
    rows = raw.splits
    return (
        rows is not None
        and raw.links is not None
        and all(len(rows.get(split, ())) == 1 for split in SPLITS)
        and len(set(raw.num_nodes.tolist())) == 1
    )


def split_links(raw: RawGraphs, request: SplitRequest) -> RawGraphs:
    """One graph as three, of which each has its share of the pairs.

    The pairs are those that the source names, else all edges. Training and validation see the graph without the pairs
    that validate and test, testing sees it without those that test, as PyG's `RandomLinkSplit` has it. A pair and its
    reverse are one.

    Args:
        raw: one graph.
        request: shares and seed.

    Raises:
        BadInput: there are fewer than three pairs, or another split is asked for.
    """
    if request.kind not in (None, "random") or request.column or request.group:
        asked = request.kind or "given"
        raise BadInput(f"split={asked}: links of one graph are shared out at random, by fractions; leave split out.")
    if min(request.fractions) <= 0:
        raise BadInput(f"fractions {list(request.fractions)}: links of one graph need a share above 0 in each split.")
    edges = np.sort(raw.edges, axis=1)
    pairs = np.unique(np.sort(raw.links if raw.links is not None else edges, axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    if len(pairs) < len(SPLITS):
        raise BadInput(f"{raw.origin}: {len(pairs)} links cannot be shared out among train, val and test.")
    parts = random_parts(len(pairs), request.fractions, request.seed, SPLITS)
    size = int(raw.num_nodes[0])
    keys = edges[:, 0] * size + edges[:, 1]
    hidden = {name: np.isin(keys, pairs[rows, 0] * size + pairs[rows, 1]) for name, rows in parts.items()}
    seen = [np.flatnonzero(~(hidden["val"] | hidden["test"]))] * 2 + [np.flatnonzero(~hidden["test"])]
    wrong = _shared(raw.negatives, request)
    return replace(
        raw,
        num_nodes=np.repeat(raw.num_nodes, len(SPLITS)),
        num_edges=np.array([len(rows) for rows in seen]),
        edges=np.concatenate([raw.edges[rows] for rows in seen]),
        columns={
            GRAPH: {name: np.concatenate([values] * 3) for name, values in raw.columns[GRAPH].items()},
            NODE: {name: np.concatenate([values] * 3) for name, values in raw.columns[NODE].items()},
            EDGE: {name: values[np.concatenate(seen)] for name, values in raw.columns[EDGE].items()},
        },
        names=[f"{raw.names[0]}, {split}" for split in SPLITS],
        place=lambda level, row: _place(raw, seen, level, row),
        links=np.concatenate([pairs[parts[split]] for split in SPLITS]),
        num_links=np.array([len(parts[split]) for split in SPLITS]),
        negatives=None if wrong is None else np.concatenate(wrong),
        num_negatives=None if wrong is None else np.array([len(rows) for rows in wrong]),
        splits={split: np.array([number]) for number, split in enumerate(SPLITS)},
        hints={**raw.hints, "split": "links of one graph, cut by fractions; those of val and test are hidden from it"},
        node_names=None if raw.node_names is None else np.concatenate([raw.node_names] * 3),
    )


def _shared(negatives: np.ndarray | None, request: SplitRequest) -> list[np.ndarray] | None:
    """Wrong pairs of each split, in the same shares as the true ones."""
    if negatives is None or not len(negatives):
        return None
    parts = random_parts(len(negatives), request.fractions, request.seed, SPLITS)
    return [negatives[np.sort(parts[split])] for split in SPLITS]


def _place(raw: RawGraphs, seen: Sequence[np.ndarray], level: str, row: int) -> str:
    """Where a row of one of the three graphs stands in the source."""
    if level == GRAPH:
        return raw.place(GRAPH, 0)
    if level == EDGE:
        return raw.place(EDGE, int(np.concatenate(seen)[row]))
    if level == NODE:
        return raw.place(NODE, row % int(raw.num_nodes[0]))
    return f"{raw.place(GRAPH, 0)}, {'wrong pair' if level == WRONG else 'pair'}"
