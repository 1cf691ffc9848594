"""Split the links of one graph, and hide those of validation and test from the graph that is seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphbench.benchmarks.graphs.raw import LINK, NEGATIVE, Pairs, RawGraphs, concatenate
from graphbench.benchmarks.graphs.splits.shares import random_parts
from graphbench.benchmarks.graphs.splits.splitting import SplitRequest
from graphbench.contracts import SPLITS
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.errors import BadInput


def are_of_one_graph(raw: RawGraphs) -> bool:
    """Return whether each split is the same graph with pairs of its own, as `RandomLinkSplit` makes them."""
    rows = raw.splits
    return (
        rows is not None
        and LINK in raw.pairs
        and all(len(rows.get(split, ())) == 1 for split in SPLITS)
        and len(set(raw.num_nodes.tolist())) == 1
    )


def split_links(raw: RawGraphs, request: SplitRequest) -> RawGraphs:
    """Return one graph as three, each with its share of the pairs that the source names, else of all edges.

    Training and validation see the graph without the pairs that validate and test, testing sees it without those that
    test, as PyG's `RandomLinkSplit` has it. A pair and its reverse are one.

    Raises:
        BadInput: there are fewer than three pairs, or another split is asked for.
    """
    if request.kind not in (None, "random") or request.column or request.group:
        kind = request.kind or "given"
        raise BadInput(f"split={kind}: links of one graph are shared out at random, by fractions; leave split out.")
    if min(request.fractions) <= 0:
        raise BadInput(f"fractions {list(request.fractions)}: links of one graph need a share above 0 in each split.")
    edges = np.sort(raw.edges, axis=1)  # a pair and its reverse are one
    links = np.sort(raw.pairs[LINK].ends, axis=1) if LINK in raw.pairs else edges
    links = np.unique(links, axis=0)
    links = links[links[:, 0] != links[:, 1]]
    if len(links) < len(SPLITS):
        raise BadInput(f"{raw.origin}: {len(links)} links cannot be shared out among train, val and test.")
    rows = random_parts(len(links), request.fractions, request.seed, SPLITS)
    negatives = raw.pairs[NEGATIVE].ends if NEGATIVE in raw.pairs else np.empty((0, 2), dtype=np.int64)
    negative_rows = random_parts(len(negatives), request.fractions, request.seed, SPLITS) if len(negatives) else {}
    size = int(raw.num_nodes[0])
    keys = edges[:, 0] * size + edges[:, 1]
    hidden = {name: np.isin(keys, links[rows[name], 0] * size + links[rows[name], 1]) for name in ("val", "test")}
    parts = []
    for split in SPLITS:
        seen = np.flatnonzero(~hidden["test"] if split == "test" else ~(hidden["val"] | hidden["test"]))
        pairs = {LINK: links[rows[split]]}
        if negative_rows:
            pairs[NEGATIVE] = negatives[np.sort(negative_rows[split])]
        part = _with_edges(raw, seen)
        part.names = [f"{raw.names[0]}, {split}"]
        part.pairs = {kind: Pairs(ends, np.array([len(ends)])) for kind, ends in pairs.items()}
        parts.append(part)
    joined = concatenate(parts, raw.origin)
    joined.splits = {split: np.array([number]) for number, split in enumerate(SPLITS)}
    joined.hints["split"] = "links of one graph, cut by fractions; those of val and test are hidden from it"
    return joined


def _with_edges(raw: RawGraphs, rows: np.ndarray) -> RawGraphs:
    """Return the graph with some of its edges."""

    def place(level: str, row: int) -> str:
        if level in (GRAPH, NODE):
            return raw.place(level, row)
        if level == EDGE:
            return raw.place(EDGE, int(rows[row]))
        return f"{raw.place(GRAPH, 0)}, {'wrong pair' if level == NEGATIVE else 'pair'}"

    columns = raw.columns | {EDGE: {name: values[rows] for name, values in raw.columns[EDGE].items()}}
    return replace(raw, num_edges=np.array([len(rows)]), edges=raw.edges[rows], columns=columns, place=place)
