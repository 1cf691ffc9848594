"""Split the links of one graph, and hide those of validation and test from the graph that is seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphbench.benchmarks.graphs.raw import LINK, NEGATIVE, Pairs, RawGraphs, concatenate
from graphbench.benchmarks.graphs.splits.shares import random_parts
from graphbench.benchmarks.graphs.splits.splitting import SplitRequest
from graphbench.contracts import SPLITS
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.data.splits import SPLIT_WORDS
from graphbench.errors import BadInput

#: Column of the table that lists the pairs.
SPLIT = "split"


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
    test, as PyG's `RandomLinkSplit` has it. A pair and its reverse are one. Shares are random, by fractions, unless a
    column `split` of the table that lists the pairs says to which part each belongs. The three are then no graphs to
    be split.

    Raises:
        BadInput: there are fewer than three pairs, another split is asked for, or the column does not give one.
    """
    level = LINK if LINK in raw.pairs else EDGE
    words = raw.columns.get(level, {}).get(SPLIT) if request.kind in (None, "given") else None
    is_given = words is not None and request.column in (None, SPLIT) and not request.group
    if not is_given and (request.kind not in (None, "random") or request.column or request.group):
        kind = request.kind or "given"
        raise BadInput(
            f"split={kind}: links of one graph are shared out by a column {SPLIT} of the table that lists them, of "
            "train, val and test, or at random, by fractions. Add that column, or leave split out."
        )
    if not is_given and min(request.fractions) <= 0:
        raise BadInput(f"fractions {list(request.fractions)}: links of one graph need a share above 0 in each split.")
    edges = np.sort(raw.edges, axis=1)  # a pair and its reverse are one
    links = np.sort(raw.pairs[LINK].ends, axis=1) if LINK in raw.pairs else edges
    links, link_of = np.unique(links, axis=0, return_inverse=True)
    loops = links[:, 0] == links[:, 1]
    links, link_of = links[~loops], np.where(loops, -1, np.cumsum(~loops) - 1)[link_of.reshape(-1)]
    if len(links) < len(SPLITS):
        raise BadInput(f"{raw.origin}: {len(links)} links cannot be shared out among train, val and test.")
    if words is not None and is_given:
        rows = _given(raw, words, link_of, len(links), level)
    else:
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
    by = f"by the column {SPLIT}" if is_given else "cut by fractions"
    joined.hints["links"] = "column" if is_given else "fractions"
    joined.hints["split"] = f"links of one graph, {by}; those of val and test are hidden from it"
    return joined


def _given(raw: RawGraphs, words: np.ndarray, link_of: np.ndarray, count: int, level: str) -> dict[str, np.ndarray]:
    """Return the links of each split by a word for each row of the source, whose links are `link_of`, -1 for none.

    Raises:
        BadInput: a word names no split, two rows of a link differ, or a split has no link.
    """
    of_link = np.full(count, "", dtype=object)
    for row, (word, link) in enumerate(zip(words.tolist(), link_of.tolist(), strict=True)):
        if link < 0 or word is None or word != word or word == "":
            continue
        split = SPLIT_WORDS.get(str(word).strip().lower())
        if split is None:
            raise BadInput(f"{raw.place(level, row)}: {SPLIT} is {word!r}; expected train, val or test, or nothing.")
        if of_link[link] not in ("", split):
            raise BadInput(
                f"{raw.place(level, row)}: this link is in {split} and, in another row, in {of_link[link]}; a pair and "
                "its reverse are one link. Name one split for it."
            )
        of_link[link] = split
    rows: dict[str, np.ndarray] = {split: np.flatnonzero(of_link == split) for split in SPLITS}
    if empty := [split for split, numbers in rows.items() if not len(numbers)]:
        raise BadInput(f"{raw.origin}: the column {SPLIT} gives no link to {' and '.join(empty)}.")
    return rows


def _with_edges(raw: RawGraphs, rows: np.ndarray) -> RawGraphs:
    """Return the graph with some of its edges."""

    def place(level: str, row: int) -> str:
        if level in (GRAPH, NODE):
            return raw.place(level, row)
        if level == EDGE:
            return raw.place(EDGE, int(rows[row]))
        return f"{raw.place(GRAPH, 0)}, {'wrong pair' if level == NEGATIVE else 'pair'}"

    columns = raw.columns | {EDGE: {name: values[rows] for name, values in raw.columns[EDGE].items() if name != SPLIT}}
    return replace(raw, num_edges=np.array([len(rows)]), edges=raw.edges[rows], columns=columns, place=place)
