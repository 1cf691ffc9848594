"""Figure 4: attention by step of the iteration, of DFi-Former and SFi-Former, on PATTERN (generated graphs).

Both models are trained as ordinary runs in OUTPUT/runs (finished runs are skipped, interrupted ones resume), or
finished runs are given. Then every chosen graph of the validation split is analysed in every layer:

- OUTPUT/steps.csv: per graph, layer, head and number of steps the share of exact zeros, the mean row sum, and the
  distance to the exact flow relative to its norm; the rows `exact` and `softmax` are the flow of SFi-Former and the
  attention of DFi-Former themselves;
- OUTPUT/attention_steps/GRAPH_layer-LAYER.png: matrices of every head: the start, each number of steps, the exact flow
  and its result in equation (13) with the adjacency matrix, then the two of DFi-Former.

As in the paper, colours are logarithms of the weights, and values below 1e-8 are white; before the iteration has
converged weights may be negative, and their absolute values are shown. By default `overlays/pattern-short.yaml` is
merged over the configurations; with --published they are unchanged.

    python plugins/sfi-former/experiments/attention_steps.py --output runs/steps --epochs 6
    python plugins/sfi-former/experiments/attention_steps.py --output runs/steps --sfi runs/pattern/runs/sfi-former-0 \
        --dfi runs/dfi
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from torch import Tensor

import graphbench
from graphbench.experiments import Training, write_csv
from graphbench_sfi_former import FlowSteps, ProximalOptions, flow_steps

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
SHORT = CONFIGS / "overlays" / "pattern-short.yaml"
#: Configurations of each model.
MODELS: dict[str, list[Path]] = {
    "sfi-former": [CONFIGS / "pattern.yaml"],
    "dfi-former": [CONFIGS / "pattern.yaml", CONFIGS / "overlays" / "dense.yaml"],
}
STEPS = (0, 1, 2, 5, 10, 20, 50, 200)
#: Weights below this are white; the scale ends at 1, the largest weight that a row of flows can have.
LEAST = 1e-8


def training(model: str, seed: int, epochs: int = 6, published: bool = False, extra: Sequence[str] = ()) -> Training:
    """Describe one training.

    Args:
        model: a key of `MODELS`.
        seed: seed of weights, dropout and order of the data; the graphs are the same.
        epochs: epochs of training.
        published: omit the short recipe.
        extra: further options of `graphbench fit`; they come last.
    """
    return Training(
        model,
        seed,
        configs=[*MODELS[model], *(() if published else (SHORT,))],
        options=["--data.init_args.source=generated", f"--trainer.max_epochs={epochs}", *extra],
        facts={"model": model},
    )


def steps_of_run(
    run: Path, graphs: Sequence[int], steps: Sequence[int], options: ProximalOptions
) -> list[list[FlowSteps]]:
    """Return every layer of a finished run on chosen graphs of its validation split, on the CPU."""
    predictor = graphbench.load(run, accelerator="cpu")
    predictor.data.prepare_data()
    predictor.data.setup("validate")
    table = predictor.data.tables["val"]
    model = predictor.module.architecture
    return [flow_steps(model, table.batch([row]), steps, options) for row in graphs]


def panels(sfi: FlowSteps, dfi: FlowSteps) -> list[tuple[str, Tensor]]:
    """List titles and matrices `[H, n, n]` of one layer of both models, in the order of the picture."""
    by_step = [
        (f"step {number}" if number else "start", flow) for number, flow in zip(sfi.steps, sfi.flows, strict=True)
    ]
    return [
        *by_step,
        ("SFi-Former, exact", sfi.weights),
        ("SFi-Former, with A", sfi.enhanced),
        ("DFi-Former", dfi.weights),
        ("DFi-Former, with A", dfi.enhanced),
    ]


def draw(shown: Sequence[tuple[str, Tensor]], title: str) -> Figure:
    """Draw one row per head, one column per title."""
    heads = len(shown[0][1])
    colours, scale = mpl.colormaps["viridis"].with_extremes(under="white", bad="white"), LogNorm(LEAST, 1)
    figure = Figure(figsize=(1.5 * len(shown) + 1, 1.6 * heads + 0.7), dpi=110, layout="constrained")
    axes = figure.subplots(heads, len(shown), squeeze=False)
    for row in range(heads):
        for column, (name, matrices) in enumerate(shown):
            panel = axes[row][column]
            image = panel.imshow(matrices[row].abs().numpy(), cmap=colours, norm=scale, interpolation="nearest")
            panel.set_xticks([])
            panel.set_yticks([])
            if row == 0:
                panel.set_title(name, fontsize=7)
        axes[row][0].set_ylabel(f"head {row}", fontsize=7)
    figure.colorbar(image, ax=axes, shrink=0.9, pad=0.01, extend="min").set_label("weight", fontsize=7)
    figure.suptitle(title, fontsize=9, fontweight="bold")
    return figure


def rows(graph: int, sfi: FlowSteps, dfi: FlowSteps) -> Iterator[dict[str, Any]]:
    """Measure one layer in one graph, per head."""

    def measure(step: str, matrices: Tensor, errors: Tensor | None = None) -> Iterator[dict[str, Any]]:
        for head, matrix in enumerate(matrices):
            yield {
                "graph": graph,
                "layer": sfi.layer,
                "head": head,
                "step": step,
                "zeros": f"{float((matrix == 0).float().mean()):.4f}",
                "row_sum": f"{float(matrix.sum(-1).mean()):.5g}",
                "error": "" if errors is None else f"{float(errors[head]):.3g}",
            }

    for number, flow, errors in zip(sfi.steps, sfi.flows, sfi.errors, strict=True):
        yield from measure(str(number), flow, errors)
    yield from measure("exact", sfi.weights)
    yield from measure("softmax", dfi.weights)


def write(output: Path, graphs: Sequence[int], sfi: list[list[FlowSteps]], dfi: list[list[FlowSteps]]) -> None:
    """Write the table and the pictures."""
    table, folder = [], output / "attention_steps"
    folder.mkdir(parents=True, exist_ok=True)
    for graph, of_sfi, of_dfi in zip(graphs, sfi, dfi, strict=True):
        for sparse, dense in zip(of_sfi, of_dfi, strict=True):
            table += list(rows(graph, sparse, dense))
            figure = draw(panels(sparse, dense), f"PATTERN, val graph {graph}, layer {sparse.layer}")
            figure.savefig(folder / f"val-{graph}_layer-{sparse.layer}.png")
    write_csv(output / "steps.csv", table)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train missing runs, analyse and draw."""
    parser = argparse.ArgumentParser(
        description="Attention by step on PATTERN (generated graphs); other options are passed to graphbench fit.",
        allow_abbrev=False,
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sfi", type=Path, help="a finished run of SFi-Former, instead of training")
    parser.add_argument("--dfi", type=Path, help="a finished run of DFi-Former, instead of training")
    parser.add_argument("--graphs", nargs="+", type=int, default=[0, 1], help="rows of the validation split")
    parser.add_argument("--steps", nargs="+", type=int, default=list(STEPS), help="numbers of steps; 0 is the start")
    parser.add_argument("--start", default="uniform", choices=["uniform", "scaled", "dense", "zeros"])
    parser.add_argument("--step", default="barzilai-borwein", choices=["barzilai-borwein", "constant"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--published", action="store_true", help="without overlays/pattern-short.yaml")
    chosen, extra = parser.parse_known_args(arguments)
    layers_of_models = []
    for model, given in (("sfi-former", chosen.sfi), ("dfi-former", chosen.dfi)):
        run = training(model, chosen.seed, chosen.epochs, chosen.published, extra)
        if given is None:
            run.run(chosen.output)
        options = ProximalOptions(start=chosen.start, step=chosen.step, seed=chosen.seed)
        layers_of_models.append(steps_of_run(given or run.folder(chosen.output), chosen.graphs, chosen.steps, options))
    with torch.no_grad():
        write(chosen.output, chosen.graphs, *layers_of_models)


if __name__ == "__main__":
    main()
