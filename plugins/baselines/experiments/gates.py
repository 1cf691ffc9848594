r"""Measure the effect of gates after attention: the claims of SigGate-GT, compared with the same network without gates.

Guo et al. (arXiv 2604.17324) gate the heads of attention and claim that gates raise the stable rank of a head's output,
prevent the entropy of attention from decreasing, and slow the over-smoothing of nodes with depth. The trainings are a
sweep over gates and depth, on molecules of ZINC with the budget of `equal-budget/zinc`. Only these two options differ,
so the gated model has `dim^2 + dim` more parameters per layer:

    graphbench sweep --config equal-budget/zinc --output runs/gates --seeds 0-2 \
        --model.architecture SigGateGT --model.architecture.init_args.hidden_dim 32 \
        --model.architecture.init_args.num_heads 4 --vary model.architecture.init_args.gated=true,false \
        --vary model.architecture.init_args.num_layers=4,8,16
    python plugins/baselines/experiments/gates.py --runs runs/gates/runs
    python plugins/baselines/experiments/gates.py

The second command measures every finished run on the first validation molecules, with its initial weights and with the
tested ones, and writes `plugins/baselines/results/gates.json`; the second and third print the table. Per layer:

    open      stable rank of a head's sum of values, mean over heads and graphs
    gated     the same after the gates; equal without them
    entropy   of the rows of attention, in units of log n
    spread    1 - mean cosine of all pairs of nodes after the layer, the paper's MAD
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, cast

import torch
from torch import Tensor

from graphbench.contracts import GraphBatch
from graphbench.diagnostics import attention_entropy, record, stable_rank_per_graph, token_similarity_per_graph
from graphbench.experiments import provenance
from graphbench.inference.loading import build_of, load
from graphbench.nn import DenseLayout, attend_within_graphs
from graphbench.runs import RunFolder
from graphbench.runs.trust import Policy
from graphbench.training.module import BenchmarkModule
from graphbench_baselines.siggate import SigGateAttention, SigGateGT

RECORDS = Path(__file__).parents[1] / "results" / "gates.json"
MEASURES = ("open", "gated", "entropy", "spread")
GRAPHS, _DIGITS = 128, 5
Run = Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure runs, if given, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="folder of the runs")
    parser.add_argument("--records", type=Path, default=RECORDS)
    options = parser.parse_args(arguments)
    if options.runs is not None:
        folders = [folder for folder in options.runs.iterdir() if "test" in RunFolder(folder).read_results()]
        measured = [measure(folder) for folder in folders]
        runs = sorted(measured, key=lambda run: (run["layers"], run["gated"], run["seed"]))
        options.records.write_text("[\n" + ",\n".join(map(json.dumps, runs)) + "\n]\n", encoding="utf-8")
    sys.stdout.write(table(json.loads(options.records.read_text(encoding="utf-8"))) + "\n")


def measure(path: Path) -> dict[str, Any]:
    """Return the record of a run."""
    folder = RunFolder(path)
    results = folder.read_results()
    torch.manual_seed(results["seed"])
    config, module, data = build_of(folder, Policy.of(folder.config))
    data.require(module.required_encodings())
    data.prepare_data()
    data.setup("validate")
    table = data.tables["val"]
    batch = module.read_batch(table.batch(range(min(GRAPHS, len(table)))))
    options = config["model"]["architecture"]["init_args"]
    before = by_layer(module, batch)
    return {
        "gated": options["gated"],
        "layers": options["num_layers"],
        "seed": results["seed"],
        "parameters": results["parameters"],
        "test": round(results["test"][f"test/{results['metric']}"], _DIGITS),
        "before": before,
        "after": by_layer(load(path, "cpu").module, batch),
        **{name: provenance(path)[name] for name in ("seconds", "hardware", "versions", "commit")},
    }


@torch.no_grad()
def by_layer(module: BenchmarkModule, batch: GraphBatch) -> dict[str, list[float]]:
    """Return every measure of every layer, means over heads and graphs of more than one node."""
    heads: list[tuple[Tensor, Tensor]] = []
    nodes: list[Tensor] = []

    def keep_heads(attention: SigGateAttention, given: tuple[Tensor, DenseLayout], _: Tensor) -> None:
        x, layout = given
        opened = attend_within_graphs(attention.in_proj(x), layout, attention.num_heads)
        heads.append((opened, attention.gate(opened, x)))

    hooks = []
    for layer in cast(SigGateGT, module.architecture).layers:
        hooks.append(layer.get_submodule("attention").register_forward_hook(keep_heads))
        hooks.append(layer.register_forward_hook(lambda _, given, out: nodes.append(out[0])))
    try:
        with record(module.eval()) as traces:
            module.represent(batch)
    finally:
        for hook in hooks:
            hook.remove()
    sizes = batch.ptr.diff()
    many = sizes > 1
    logs = sizes[many].double().log()
    measures: dict[str, list[float]] = {name: [] for name in MEASURES}
    for (opened, gated), trace, x in zip(heads, traces, nodes, strict=True):
        attention = cast(list[Tensor], trace.attention)
        for name, value in (("open", opened), ("gated", gated)):
            columns = value.chunk(len(attention[0]), -1)
            ranks = [stable_rank_per_graph(head, batch.batch, len(sizes)) for head in columns]
            measures[name].append(_mean(torch.stack(ranks)[:, many]))
        measures["entropy"].append(_mean(attention_entropy(attention)[many].mean(1) / logs))
        measures["spread"].append(_mean(1 - token_similarity_per_graph(x, batch.batch, len(sizes))[many]))
    return measures


def _mean(values: Tensor) -> float:
    return round(values.double().mean().item(), _DIGITS)


def table(runs: Iterable[Run]) -> str:
    """Return a Markdown table: a row for every depth with and without gates, means over seeds (and layers)."""
    groups: dict[tuple[int, bool], list[Run]] = {}
    for run in runs:
        groups.setdefault((run["layers"], run["gated"]), []).append(run)
    lines = [
        "| layers | gates | parameters | seeds | test MAE | open | gated | entropy | spread, last layer |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (layers, gated), group in sorted(groups.items()):
        cells = [_pair([run["test"] for run in group])]
        for name in MEASURES:
            chosen = [run["after"][name][-1:] if name == "spread" else run["after"][name] for run in group]
            cells.append(_pair([mean(values) for values in chosen]))
        first = [str(layers), "yes" if gated else "no", f"{group[0]['parameters']:,}", str(len(group))]
        lines.append("| " + " | ".join([*first, *cells]) + " |")
    return "\n".join(lines)


def _pair(values: Sequence[float]) -> str:
    return f"{mean(values):.3f} ± {stdev(values):.3f}" if len(values) > 1 else f"{mean(values):.3f}"


if __name__ == "__main__":
    main()
