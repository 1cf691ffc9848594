"""Infer features, positions and facts about the split from the graphs, and print all inferred facts as one table."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from rich.console import Console
from rich.table import Table

from graphbench.benchmarks.graphs.features import FeaturePlan
from graphbench.benchmarks.graphs.raw import LINK, NEGATIVE, RawGraphs
from graphbench.benchmarks.graphs.splits.links import are_of_one_graph
from graphbench.benchmarks.graphs.splits.masks import counted_mask, split_masks
from graphbench.benchmarks.graphs.splits.splitting import SplitRequest, Units, num_given_splits
from graphbench.benchmarks.graphs.target_columns import MISSING_WORDS, class_name
from graphbench.benchmarks.graphs.targets import Target, labelled
from graphbench.contracts import SPLITS, BenchmarkSpec
from graphbench.contracts.table import EDGE, GRAPH, NODE

_SHOWN = 8  # names in a cell of the summary
_WIDTH = 120  # characters of the summary
Row = tuple[str, str, str]


class Facts(TypedDict, total=False):
    """Facts inferred from the source of `Graphs`, stored as JSON values."""

    target: dict[str, Any]  # fields of `Target`
    plans: dict[str, dict[str, Any]]  # level -> fields of `FeaturePlan`
    log10: list[bool]  # whether the logarithm of each target is trained on; missing in older stores
    coordinates: int  # width of positions
    split: str  # description
    split_level: str  # whether graphs, nodes or edges are split
    given: int  # number of splits that the source gives
    links: str | None  # how links of one graph are split, see `RawGraphs.hints`
    of_one_graph: bool  # whether links of one graph are predicted
    symmetric: bool  # whether both directions of edges have one target
    unlabelled: int  # rows without a target
    in_no_split: int  # rows that the source leaves out
    unused_masks: list[tuple[str, str]]  # with the reason
    lacking: list[tuple[str, str]]  # splits that lack classes, and their names
    names: list[str] | None  # of the graphs, unless they are numbers
    num_graphs: int
    mean_nodes: float
    max_nodes: int
    mean_edges: float
    one_way: int  # number of checked edges if none of them has a reverse edge, else 0; missing in older stores
    num_links: int | None
    num_negatives: int  # pairs that are labelled as wrong
    metric: str | None  # of the source


def unused_masks(raw: RawGraphs, request: SplitRequest, target: Target, level: str) -> list[tuple[str, str]]:
    """Return the masks of the source that do not determine the split of a level, with the reasons."""
    unused = []
    for at in (GRAPH, NODE, *((EDGE,) if target.level == EDGE else ())):
        if (counted := counted_mask(raw, at)) is not None and at != target.level:
            unused.append((counted, f"it is of the {at}s, but the target is of the {target.level}s"))
        if at != level:
            why = f"they are of the {at}s, but the {level}s are split"
        elif request.column or request.group or request.kind not in (None, "given"):
            option = "split_column" if request.column else "group_column"
            why = f"split={request.kind} was asked for" if request.kind else f"{option} was given"
        else:
            continue
        unused += [(name, why) for name in split_masks(raw, at).values()]
    return unused


def lacking_classes(units: Units, rows: Mapping[str, np.ndarray], target: Target) -> list[tuple[str, str]]:
    """Return the splits in which a class has no row, with the names of those classes; empty without classes."""
    if units.classes is None or target.num_classes is None:
        return []
    lacking: list[tuple[str, str]] = []
    for split in SPLITS:
        if not len(rows[split]):  # nothing is scored there
            continue
        chosen = units.classes[np.isin(units.rows, rows[split])]
        absent = np.flatnonzero(np.bincount(chosen, minlength=target.num_classes)[: target.num_classes] == 0)
        names = [target.classes[number] if target.classes else class_name(int(number)) for number in absent.tolist()]
        if names:
            lacking.append((split, ", ".join(_shorten(names))))
    return lacking


def split_facts(units: Units, request: SplitRequest, target: Target, rows: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return facts about a split (`rows` among all graphs, nodes or edges) for the summary and the specification."""
    raw = units.raw
    return {
        "given": num_given_splits(units, request),
        "split_level": units.level,
        "unlabelled": 0 if target.level == "link" else int((~labelled(raw, target)).sum()),
        "in_no_split": len(units) - sum(map(len, rows.values())),
        "unused_masks": unused_masks(raw, request, target, units.level),
        "lacking": lacking_classes(units, rows, target),
        "of_one_graph": are_of_one_graph(raw),
    }


def size_facts(raw: RawGraphs, directed: bool) -> dict[str, Any]:
    """Return sizes and names of graphs as plain values; `directed` is the option of the user."""
    return {
        "names": None if raw.names == [str(number) for number in range(len(raw))] else raw.names,
        "num_graphs": len(raw),
        "mean_nodes": float(raw.num_nodes.mean()),
        "max_nodes": int(raw.num_nodes.max()),
        "mean_edges": float(raw.num_edges.mean()),
        "one_way": 0 if directed else count_one_way(raw),
        "num_links": len(raw.pairs[LINK].ends) if LINK in raw.pairs else None,
        "num_negatives": len(raw.pairs[NEGATIVE].ends) if NEGATIVE in raw.pairs else 0,
        "metric": raw.hints.get("metric"),
    }


def count_one_way(raw: RawGraphs, most: int = 1_000) -> int:
    """Count the first `most` edges without loops; 0 if one of them has a reverse edge in its graph.

    Sorting all edges of a large graph takes long, and the first thousand show whether edges are listed once.
    """
    stops = np.cumsum(raw.num_edges)
    first = raw.edges[:most]
    rows = np.flatnonzero(first[:, 0] != first[:, 1])
    if not rows.size:
        return 0
    edges = raw.edges[: stops[np.searchsorted(stops, len(first))]]  # all edges of their graphs
    candidates = np.flatnonzero(np.isin(edges[:, 0], first[rows, 1]))

    def keys(numbers: np.ndarray, order: list[int]) -> set[tuple[int, ...]]:
        graphs = np.searchsorted(stops, numbers, side="right")
        return set(zip(graphs.tolist(), *edges[numbers][:, order].T.tolist(), strict=True))

    return len(rows) if keys(rows, [1, 0]).isdisjoint(keys(candidates, [0, 1])) else 0


def summary_rows(
    spec: BenchmarkSpec,
    facts: Facts,
    target: Target,
    plans: Mapping[str, FeaturePlan],
    split_rows: Mapping[str, int],
) -> list[Row]:
    """Return rows of (what, value, reason or option) from `split_facts`, `size_facts`, and sizes of the splits."""
    sizes = f"{facts['max_nodes']:,} nodes, {facts['mean_edges']:,.0f} directed edges"
    if facts["num_graphs"] > 1:
        sizes = (
            f"{facts['mean_nodes']:,.1f} nodes (at most {facts['max_nodes']:,}), "
            f"{facts['mean_edges']:,.1f} directed edges on average"
        )
    rows: list[Row] = [("graphs", f"{facts['num_graphs']:,}", sizes)]
    if count := facts.get("one_way"):  # missing in stores of earlier versions
        why = f"none of the first {count:,} has a reverse one, so messages go one way; --data.to_undirected true"
        rows.append(("  edges", "listed once", why))
    rows += [row for level in (NODE, EDGE) for row in _feature_rows(plans[level])]
    rows += _feature_rows(plans[GRAPH]) if plans[GRAPH].columns or plans[GRAPH].left_out else []
    if spec.coordinates:
        rows.append(("positions", f"{spec.coordinates} coordinates", "column pos; --data.positions"))
    what = ", ".join(_shorten(target.names)) if target.names else f"{facts['num_links']:,} pairs of nodes"
    rows.append(("target", what, "--data.target"))
    if target.level == "link" and facts["num_negatives"]:
        why = "your own: trained on if a batch has some, else sampled; ogb_MRR and ogb_hits@K rank against them"
        rows.append(("wrong pairs", f"{facts['num_negatives']:,}", why))
    rows.append(("task", spec.task, f"{target.why}; --data.task"))
    if spec.num_classes is not None:
        names = ", ".join(_shorten(target.classes)) if target.classes else f"0 to {spec.num_classes - 1}"
        rows.append(("classes", f"{spec.num_classes}", names))
    elif spec.num_targets > 1:
        rows.append(("targets", f"{spec.num_targets}", ""))
    rows.append(("metric, loss", f"{spec.metric}, {spec.loss}", "--data.metric, --data.loss"))
    if target.level == "edge":
        both = spec.extra.get("edges") == "undirected"
        why = "as they are; --model.head.symmetric" if both else "no reverse edge, or another target there"
        rows.append(("directions", "predicted alike" if both else "predicted apart", why))
    if facts["unlabelled"]:
        rows.append(("no target", f"{facts['unlabelled']:,} {target.level}s", f"in no split: {MISSING_WORDS}"))
    counts = " / ".join(f"{split_rows[split]:,}" for split in SPLITS)
    units = f"{spec.extra['split']}, " if "split" in spec.extra else ""
    rows.append(("split", f"{counts} ({units}{', '.join(SPLITS)})", f"{facts['split']}; --data.split"))
    if facts["in_no_split"]:
        rows.append(
            ("  in none", f"{facts['in_no_split']:,}", "the source leaves them out: neither trained on nor scored")
        )
    rows += [("  not used", name, why) for name, why in facts["unused_masks"]]
    rows += [
        ("  lacking", f"{split}: class {names}", "no row of it, so that scores of it are undefined there")
        for split, names in facts["lacking"]
    ]
    return rows


def _feature_rows(plan: FeaturePlan) -> list[Row]:
    """Describe the features of nodes or edges, and columns that are not features."""
    features = plan.features
    parts = []
    if features.vocabularies:
        sizes = [f"{size:,}" for size in features.vocabularies]
        parts.append(f"{len(sizes)} categorical ({', '.join(_shorten(sizes))} values)")
    if features.dense:
        parts.append(f"{features.dense} continuous")
    rows = [(f"{plan.level} features", " and ".join(parts) or "none", ", ".join(_shorten(features.names)))]
    names: dict[str, list[str]] = {}
    for name, why in plan.left_out:
        names.setdefault(why, []).append(name)
    return rows + [("  left out", ", ".join(_shorten(named)), why) for why, named in names.items()]


def _shorten(items: Sequence[str]) -> list[str]:
    return [*items[:_SHOWN], *(["..."] if len(items) > _SHOWN else [])]


def summary_text(title: str, rows: Sequence[Row]) -> str:
    """Format the rows as a text table."""
    table = Table(title=f"Read from {title}", title_justify="left", title_style="", show_header=False)
    for row in rows:
        table.add_row(*row)
    console = Console(file=io.StringIO(), width=_WIDTH, highlight=False, markup=False, emoji=False)
    console.print(table)
    return console.file.getvalue().rstrip()  # type: ignore[attr-defined,no-any-return]
