"""Split the links of one graph, and hide those of validation and test from the visible graph."""

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
    """Return whether each split is the same graph with its own pairs, as created by `RandomLinkSplit`."""
    rows = raw.splits
    return (
        rows is not None
        and LINK in raw.pairs
        and all(len(rows.get(split, ())) == 1 for split in SPLITS)
        and len(set(raw.num_nodes.tolist())) == 1
    )


def split_links(raw: RawGraphs, request: SplitRequest) -> RawGraphs:
    """Return one graph as three, each with its share of the pairs named by the source, else of all edges.

    Training and validation see the graph without the pairs of validation and test; testing sees it without those of
    test, as in PyG's `RandomLinkSplit`. A pair and its reverse count as one. Shares are random, by fractions, unless
    the table of pairs has a column `split` that assigns them. The three graphs are then not split again.

    Raises:
        BadInput: there are fewer than three pairs, another split is requested, or the column does not define one.
    """
    level = LINK if LINK in raw.pairs else EDGE
    words = _words_of_splits(raw, request, level)
    links, link_of = _distinct_links(raw.pairs[LINK].ends if LINK in raw.pairs else raw.edges)
    if len(links) < len(SPLITS):
        raise BadInput(f"{raw.origin}: {len(links)} links cannot be shared out among train, val and test.")
    if words is None:
        rows, shared = random_parts(len(links), request.fractions, request.seed, SPLITS), "cut by fractions"
    else:
        rows, shared = _given(raw, words, link_of, len(links), level), f"by the column {SPLIT}"
    pairs = {split: {LINK: links[rows[split]]} for split in SPLITS}
    if NEGATIVE in raw.pairs and len(negatives := raw.pairs[NEGATIVE].ends):
        negative_rows = random_parts(len(negatives), request.fractions, request.seed, SPLITS)
        for split in SPLITS:
            pairs[split][NEGATIVE] = negatives[np.sort(negative_rows[split])]
    parts = []
    visible = _visible_edges(raw, links, rows)
    for split in SPLITS:
        part = _with_edges(raw, visible[split])
        part.names = [f"{raw.names[0]}, {split}"]
        part.pairs = {kind: Pairs(ends, np.array([len(ends)])) for kind, ends in pairs[split].items()}
        parts.append(part)
    joined = concatenate(parts, raw.origin)
    joined.splits = {split: np.array([number]) for number, split in enumerate(SPLITS)}
    joined.hints["links"] = "fractions" if words is None else "column"
    joined.hints["split"] = f"links of one graph, {shared}; those of val and test are hidden from it"
    return joined


def _words_of_splits(raw: RawGraphs, request: SplitRequest, level: str) -> np.ndarray | None:
    """Return the column that assigns each pair to a split; None if shares are random.

    Raises:
        BadInput: another split is requested, or a share is 0.
    """
    words = raw.columns.get(level, {}).get(SPLIT)
    if words is not None and request.kind in (None, "given") and request.column in (None, SPLIT) and not request.group:
        return words
    if request.kind not in (None, "random") or request.column or request.group:
        raise BadInput(
            f"split={request.kind or 'given'}: links of one graph are shared out by a column {SPLIT} of the table that "
            "lists them, of train, val and test, or at random, by fractions. Add that column, or leave split out."
        )
    if min(request.fractions) <= 0:
        raise BadInput(f"fractions {list(request.fractions)}: links of one graph need a share above 0 in each split.")
    return None


def _distinct_links(ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return links without loops, with the smaller end first `[links, 2]`, and the link of each pair, -1 for a loop."""
    ordered, size = np.sort(ends, axis=1), int(ends.max(initial=0)) + 1
    keys, link_of = np.unique(ordered[:, 0] * size + ordered[:, 1], return_inverse=True)
    links = np.stack(np.divmod(keys, size), axis=1)
    loops = links[:, 0] == links[:, 1]
    return links[~loops], np.where(loops, -1, np.cumsum(~loops) - 1)[link_of]


def _visible_edges(raw: RawGraphs, links: np.ndarray, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the edges of the graph that each split sees."""
    size = int(raw.num_nodes[0])
    edges = np.sort(raw.edges, axis=1)
    keys = edges[:, 0] * size + edges[:, 1]
    val, test = (np.isin(keys, links[rows[name], 0] * size + links[rows[name], 1]) for name in ("val", "test"))
    in_training = np.flatnonzero(~(val | test))
    return {"train": in_training, "val": in_training, "test": np.flatnonzero(~test)}


def _given(raw: RawGraphs, words: np.ndarray, link_of: np.ndarray, count: int, level: str) -> dict[str, np.ndarray]:
    """Return the links of each split from a word for each row; `link_of` has the links of the rows, -1 for none.

    Raises:
        BadInput: a word does not name a split, two rows of a link differ, or a split has no links.
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
