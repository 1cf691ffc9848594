"""Does depth help? DeepGraph against Graphormer with 12, 24 and 48 layers: test score and attention capacity by layer.

Every run is an ordinary `graphbench fit` in a folder of its own under OUTPUT/runs, from the experiment file of the
benchmark with the changes below. What is finished is skipped and what was interrupted goes on, so the command may be
stopped at any time and given again. After each run it writes

- OUTPUT/scores.csv: one row a run with its validation and test score and its parameters;
- OUTPUT/capacity.csv: attention capacity by layer, of the nodes and of the substructure tokens, at the end of training;
- OUTPUT/depth.png: both, mean over seeds.

Models: `deepgraph`; `graphormer`, that of graphbench-baselines in the version that the authors of DeepGraph deepened;
with --models also `relative`, DeepGraph without local attention and without deepnorm. Capacity is measured on the
same 32 validation graphs and with one vocabulary for all models of a benchmark: a comparison needs one set of patterns.

    python plugins/deepgraph/experiments/depth.py --output depth
    python plugins/deepgraph/experiments/depth.py --output depth --data zinc --depths 12 --epochs 200 --seeds 0 1
    python plugins/deepgraph/experiments/depth.py --output trial --data cluster --depths 2 --epochs 1 \
        --set data.init_args.sizes=[64,16,16]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from matplotlib.figure import Figure

from graphbench.experiments import assign, read_csv, results, train, write_csv

CONFIGS = Path(__file__).resolve().parents[3] / "configs" / "experiments" / "deepgraph"
#: Vocabularies to measure capacity with; matches are limited, since it costs the square of their number.
PATTERNS: dict[str, dict[str, Any]] = {
    "zinc": {"max_per_pattern": 200},
    "cluster": {"cycles": [], "paths": [], "stars": [], "hops": [], "walks": [10]},
}
MODELS = ("deepgraph", "graphormer", "relative")
COLUMNS = ("data", "model", "layers", "seed")


@dataclass(frozen=True)
class Run:
    """One training.

    Args:
        data: zinc or cluster.
        model: one of `MODELS`.
        layers: depth.
        seed: of the training.
    """

    data: str
    model: str
    layers: int
    seed: int

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What names it, in the order of `COLUMNS`."""
        return self.data, self.model, self.layers, self.seed

    def folder(self, output: Path) -> Path:
        """Where it lies."""
        return output / "runs" / f"{self.data}-{self.model}-{self.layers}-{self.seed}"


def configuration(run: Run, epochs: int) -> dict[str, Any]:
    """The experiment file of the benchmark with this model, depth, seed and number of epochs.

    The schedule becomes linear with a warm-up of a twentieth, because the published ones count steps of far longer
    runs. All models share width, heads, dropout, optimizer and schedule.
    """
    content: dict[str, Any] = yaml.safe_load((CONFIGS / f"{run.data}-12.yaml").read_text(encoding="utf-8"))
    options = content["model"]["architecture"]["init_args"] | {"num_layers": run.layers}
    architecture = {"class_path": "graphbench_deepgraph.DeepGraph", "init_args": options}
    if run.model == "relative":
        options |= {"local_attention": False, "deepnorm": False}
    elif run.model == "graphormer":
        shared = {name: value for name, value in options.items() if name not in ("substructures", "sampling")}
        shared |= {"input_dropout": options["dropout"], "version": "fairseq"}
        architecture = {"class_path": "graphbench_baselines.Graphormer", "init_args": shared}
    content["seed_everything"] = run.seed
    content["model"]["architecture"] = architecture
    content["model"]["schedule"] = {"name": "linear", "interval": "epoch", "warmup": max(1, epochs // 20)}
    patterns = {"class_path": "graphbench.encodings.Substructures", "init_args": PATTERNS[run.data]}
    capacity = {"substructures": patterns, "num_graphs": 32, "every_n_epochs": max(1, epochs // 10)}
    content["trainer"] = {
        "max_epochs": epochs,
        "gradient_clip_val": content["trainer"]["gradient_clip_val"],
        "callbacks": [{"class_path": "AttentionCapacity", "init_args": capacity}],
    }
    return content


def execute(run: Run, output: Path, epochs: int, assignments: Sequence[str]) -> None:
    """Train and test, from wherever an earlier call stopped."""
    folder = run.folder(output)

    def options() -> list[str]:
        content = configuration(run, epochs)
        for assignment in assignments:
            assign(content, assignment)
        path = output / "configs" / f"{folder.name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return ["--config", str(path)]

    train(folder, options)


def score_rows(runs: Sequence[Run], output: Path) -> Iterator[dict[str, Any]]:
    """Scores of the finished runs."""
    for run in runs:
        stored = results(run.folder(output))
        if "test" in stored:
            metric = stored["metric"]
            yield dict(zip(COLUMNS, run.key, strict=True)) | {
                "parameters": stored["parameters"],
                "metric": metric,
                "val": stored["val"][f"val/{metric}"],
                "test": stored["test"][f"test/{metric}"],
            }


def capacity_rows(runs: Sequence[Run], output: Path) -> Iterator[dict[str, Any]]:
    """Capacity by layer after the last epoch of the finished runs."""
    for run in runs:
        path = run.folder(output) / "diagnostics" / "attention_capacity.csv"
        if "test" not in results(run.folder(output)) or not path.is_file():
            continue
        # Only DeepGraph's extra tokens stand for substructures.
        measures = ("capacity", "token_capacity") if run.model == "deepgraph" else ("capacity",)
        rows = [row for row in read_csv(path) if row["measure"] in measures]
        last = max(int(row["epoch"]) for row in rows)
        for row in rows:
            if int(row["epoch"]) == last:
                named = {"epoch": last, "layer": int(row["layer"]), "measure": row["measure"]}
                yield dict(zip(COLUMNS, run.key, strict=True)) | named | {"value": float(row["value"])}


def means(rows: Sequence[Mapping[str, Any]], key: str, value: str, **where: Any) -> dict[int, float]:
    """Mean `value` of the rows that agree with `where`, by their `key`, ascending."""
    found: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if all(row[name] == wanted for name, wanted in where.items()):
            found[row[key]].append(row[value])
    return {number: fmean(found[number]) for number in sorted(found)}


def draw(scores: Sequence[Mapping[str, Any]], capacities: Sequence[Mapping[str, Any]], path: Path) -> None:
    """A row a benchmark: test score by depth, then capacity of nodes and of substructure tokens by layer.

    Deeper models have thicker lines.
    """
    names = sorted({row["data"] for row in scores})
    figure = Figure(figsize=(12, 3.2 * len(names)), layout="constrained")
    for axes, data in zip(figure.subplots(len(names), 3, squeeze=False), names, strict=True):
        depths = sorted({row["layers"] for row in scores if row["data"] == data})
        for colour, model in zip(("C0", "C1", "C2"), MODELS, strict=True):
            tests = means(scores, "layers", "test", data=data, model=model)
            if tests:
                axes[0].plot(list(tests), list(tests.values()), "o-", color=colour, label=model)
            for axis, measure in zip(axes[1:], ("capacity", "token_capacity"), strict=True):
                for depth in tests:
                    curve = means(capacities, "layer", "value", data=data, model=model, layers=depth, measure=measure)
                    if curve:
                        width = 0.7 + 0.6 * depths.index(depth)
                        label = f"{model} {depth}"
                        axis.plot(list(curve), list(curve.values()), color=colour, linewidth=width, label=label)
        metric = next(row["metric"] for row in scores if row["data"] == data)
        axes[0].set(title=data, xlabel="layers", ylabel=f"test {metric}", xticks=depths)
        axes[1].set(
            title=f"{data}: capacity of attention, nodes", xlabel="layer", ylabel="capacity / norm of the values"
        )
        axes[2].set(title=f"{data}: substructure tokens", xlabel="layer")
        for axis in axes:
            if axis.get_legend_handles_labels()[0]:
                axis.legend(fontsize="x-small", frameon=False)
    figure.savefig(path, dpi=90)


def collect(runs: Sequence[Run], output: Path) -> None:
    """Write the tables and the figure of what is finished."""
    scores, capacities = list(score_rows(runs, output)), list(capacity_rows(runs, output))
    write_csv(output / "scores.csv", scores)
    write_csv(output / "capacity.csv", capacities)
    if scores:
        draw(scores, capacities, output / "depth.png")


def main() -> None:
    """Run what is missing, then collect."""
    parser = argparse.ArgumentParser(description="DeepGraph against Graphormer by depth; resumable.")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--data", nargs="+", choices=sorted(PATTERNS), default=sorted(PATTERNS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["deepgraph", "graphormer"])
    parser.add_argument("--depths", nargs="+", type=int, default=[12, 24, 48])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--set", dest="assignments", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    runs = [
        Run(data, model, layers, seed)
        for data in options.data
        for layers in options.depths
        for seed in options.seeds
        for model in options.models
    ]
    options.output.mkdir(parents=True, exist_ok=True)
    for run in runs:
        execute(run, options.output, options.epochs, options.assignments)
        collect(runs, options.output)
    collect(runs, options.output)


if __name__ == "__main__":
    main()
