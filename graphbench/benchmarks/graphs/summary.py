"""What was inferred of a user's graphs, as one table."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from graphbench.benchmarks.graphs.features import FeaturePlan
from graphbench.benchmarks.graphs.missing import MISSING_WORDS
from graphbench.benchmarks.graphs.targets import Target
from graphbench.contracts import SPLITS, BenchmarkSpec

_SHOWN = 8
_WIDTH = 120
Row = tuple[str, str, str]


def summary_rows(
    spec: BenchmarkSpec,
    facts: Mapping[str, Any],
    target: Target,
    plans: Mapping[str, FeaturePlan],
    split_rows: Mapping[str, int],
) -> list[Row]:
    """Rows of (what, value, why or how to change it).

    Args:
        spec: of the benchmark.
        facts: sizes and how the split was found.
        target: what is predicted.
        plans: features of nodes and edges.
        split_rows: graphs, nodes or edges in each split.
    """
    sizes = (
        f"{facts['mean_nodes']:.1f} nodes (at most {facts['max_nodes']:,}), {facts['mean_edges']:.1f} directed edges"
    )
    rows: list[Row] = [("graphs", f"{facts['num_graphs']:,}", f"{sizes} on average")]
    rows += [row for level in ("node", "edge") for row in _features(plans[level])]
    if spec.coordinates:
        rows.append(("positions", f"{spec.coordinates} coordinates", "column pos; --data.positions"))
    what = ", ".join(_few(target.names)) if target.names else f"{facts['num_links']:,} pairs of nodes"
    rows.append(("target", what, "--data.target"))
    if target.level == "link" and facts["num_negatives"]:
        why = "of your own: trained on where a batch has some, else sampled; ogb_MRR and ogb_hits@K rank against them"
        rows.append(("wrong pairs", f"{facts['num_negatives']:,}", why))
    rows.append(("task", spec.task, f"{target.why}; --data.task"))
    if spec.num_classes is not None:
        names = ", ".join(_few(target.classes)) if target.classes else f"0 to {spec.num_classes - 1}"
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


def _features(plan: FeaturePlan) -> list[Row]:
    """What is read of nodes or edges, and what is not."""
    features = plan.features
    parts = []
    if features.vocabularies:
        sizes = [f"{size:,}" for size in features.vocabularies]
        parts.append(f"{len(sizes)} categorical ({', '.join(_few(sizes))} values)")
    if features.dense:
        parts.append(f"{features.dense} continuous")
    rows = [(f"{plan.level} features", " and ".join(parts) or "none", ", ".join(_few(features.names)))]
    if plan.left_out:
        rows.append(("  left out", ", ".join(_few([name for name, _ in plan.left_out])), plan.left_out[0][1]))
    return rows


def _few(items: Sequence[str]) -> list[str]:
    return [*items[:_SHOWN], *(["..."] if len(items) > _SHOWN else [])]


def summary_text(title: str, rows: Sequence[Row]) -> str:
    """The rows as a table of text."""
    table = Table(title=f"Read from {title}", title_justify="left", title_style="", show_header=False)
    for row in rows:
        table.add_row(*row)
    console = Console(file=io.StringIO(), width=_WIDTH, highlight=False, markup=False, emoji=False)
    console.print(table)
    return console.file.getvalue().rstrip()  # type: ignore[attr-defined,no-any-return]
