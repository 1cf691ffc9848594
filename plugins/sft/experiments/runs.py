"""Train SFT with a reduced recipe: comparison with a dense transformer, figures 6 and 7 of the paper.

Every training is an ordinary `graphbench fit` and `test` in its own folder under OUTPUT/runs, from a file of
`plugins/sft/configs/reduced` with overlays of `plugins/sft/configs/overlays`. Finished runs are skipped and interrupted
ones resume, so you can stop the command at any time and run it again, also for other models or seeds. After each
training it writes, for all finished runs in OUTPUT,

- OUTPUT/runs.csv: one row per training, with parameters, scores and provenance;
- OUTPUT/convergence.csv and .png: figure 6, scores by epoch of maxout with leaky ReLU, softmax of dot products, and a
  dense transformer without relative terms;
- OUTPUT/sampling.csv and .png: figure 7, scores on Solids by epoch and sampling rate;
- OUTPUT/evaluation.csv: test scores of the same weights by evaluation, as trained and with the plain top k.

Scores and epochs in all other tables are those of the default evaluation, as trained.

    python plugins/sft/experiments/runs.py --output runs/sft
    python plugins/sft/experiments/runs.py --output runs/sft --benchmarks solids --models sft dense --seeds 1 2
    python plugins/sft/experiments/runs.py --output runs/trial --trainer.max_epochs 2    # for all trainings
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from graphbench.experiments import Training, finished_seeds, graphbench, read_csv, results, write_csv
from graphbench.runs import RunFolder

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
RECIPES, OVERLAYS = CONFIGS / "reduced", CONFIGS / "overlays"
_OPTION = "--model.architecture.init_args"
#: Points of a reduced cloud, and the share of them that a layer samples.
POINTS = 128
RATES = {"sft-6": 0.0625, "sft-12": 0.125, "sft": 0.25, "sft-50": 0.5, "sft-100": 1.0}


#: Benchmark -> model -> changes of its recipe: names of overlays, then options. `softmax` samples like SFT and attends
#: with a softmax of dot products; `dense` is a transformer of the same width and depth that attends this way to all
#: tokens, without relative terms: positions and coordinates enter its tokens, places of atoms as random walks.
MODELS: dict[str, dict[str, tuple[str, ...]]] = {
    "solids": {
        "sft": (),
        "softmax": ("softmax",),
        "dense": ("vanilla",),
        **{model: (f"{_OPTION}.num_samples={round(rate * POINTS)}",) for model, rate in RATES.items() if rate != 0.25},
        "sft-distances": ("distances-too",),
        "softmax-distances": ("distances-too", "softmax"),
        "sft-invariant": (f"{_OPTION}.relative=distances",),
    },
    "listops": {"sft": (), "softmax": ("softmax",), "dense": ("vanilla",)},
    "pathfinder": {"sft": (), "softmax": ("softmax",), "dense": ("vanilla",)},
    "amppeptides": {
        "sft": (),
        "softmax": ("softmax",),
        "dense": ("random-walks", "vanilla"),
        "sft-walks": ("random-walks",),
    },
}
#: Curves of figure 6 and their names in it; on Solids the first two also with pair terms, as in the paper.
CONVERGENCE = {
    "sft": "maxout, leaky ReLU",
    "softmax": "softmax of dot products",
    "sft-distances": "maxout, leaky ReLU, distances",
    "softmax-distances": "softmax of dot products, distances",
    "dense": "dense transformer",
}


def training(benchmark: str, model: str, seed: int, extra: Sequence[str] = ()) -> Training:
    """Describe a training: the recipe of a benchmark, the changes of a model, and `extra` options of `graphbench fit`.

    Args:
        benchmark: a key of `MODELS`.
        model: one of its models.
        seed: seed of weights, sampling and order of the data; the data are the same.
        extra: further options.
    """
    changes = MODELS[benchmark][model]
    overlays = [OVERLAYS / f"{name}.yaml" for name in changes if not name.startswith("--")]
    return Training(
        f"{benchmark}-{model}",
        seed,
        [RECIPES / f"{benchmark}.yaml", *overlays],
        [*(name for name in changes if name.startswith("--")), *extra],
        facts={"benchmark": benchmark, "model": model},
    )


def finished(output: Path) -> list[Training]:
    """List the trained and tested runs in OUTPUT, in the order of `MODELS`, then by seed."""
    named = [(benchmark, model) for benchmark, models in MODELS.items() for model in models]
    return [
        training(benchmark, model, seed)
        for benchmark, model in named
        for seed in finished_seeds(output, training(benchmark, model, 0))
    ]


def curve_rows(run: Training, output: Path) -> Iterator[dict[str, Any]]:
    """Yield the training and validation score of every epoch, and the best so far, as in the figures of the paper."""
    stored = results(run.folder(output))
    metric, first = stored["metric"], stored.get("epochs_from", 0)  # runs of older versions count from 0
    scores: dict[int, dict[str, float]] = {}
    for row in read_csv(RunFolder(run.folder(output)).metrics):
        for part in ("train", "val"):
            if row.get(f"{part}/{metric}"):  # a resumed epoch has two rows: the later one counts
                scores.setdefault(int(float(row["epoch"])), {})[part] = round(float(row[f"{part}/{metric}"]), 4)
    best = {"train": 0.0, "val": 0.0}
    for epoch in sorted(scores):
        best = {part: max(best[part], scores[epoch][part]) for part in best}
        yield {
            **run.facts,
            "seed": run.seed,
            "epoch": epoch - first + 1,
            "metric": metric,
            **{part: scores[epoch][part] for part in best},
            **{f"best_{part}": value for part, value in best.items()},
        }


def sampling_rows(run: Training, output: Path) -> Iterator[dict[str, Any]]:
    """Yield `curve_rows` with the sampling rate before and the test score after."""
    test = run.row(output)["test"]
    for row in curve_rows(run, output):
        yield {"rate": RATES[run.facts["model"]], **row, "test": test}


def mean_by(rows: Sequence[Mapping[str, Any]], key: str, value: str) -> tuple[list[float], list[float]]:
    """Average `value` by `key`: keys, ascending, and the mean at each."""
    groups = groupby(sorted(rows, key=lambda row: row[key]), key=lambda row: row[key])
    points = [(at, fmean(row[value] for row in group)) for at, group in groups]
    return [at for at, _ in points], [mean for _, mean in points]


def draw_curves(axes: Any, rows: Sequence[Mapping[str, Any]], part: str, names: Mapping[str, str]) -> None:
    """Plot the mean score of each model by epoch (thin) and of the best so far (thick)."""
    for colour, (model, label) in enumerate(names.items()):
        curve = [row for row in rows if row["model"] == model]
        if curve:
            axes.plot(*mean_by(curve, "epoch", part), color=f"C{colour}", linewidth=0.6, alpha=0.7)
            axes.plot(*mean_by(curve, "epoch", f"best_{part}"), color=f"C{colour}", linewidth=1.8, label=label)
    where = {"train": "training", "val": "validation"}[part]
    axes.set(title=rows[0]["benchmark"], xlabel="epoch", ylabel=f"{where} {rows[0]['metric']}")
    axes.legend(frameon=False, fontsize="small")


def draw_convergence(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw figure 6: a row per benchmark, training and validation; means over seeds."""
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in rows))
    figure = Figure(figsize=(8, 2.6 * len(benchmarks)), layout="constrained")
    for line, benchmark in zip(figure.subplots(len(benchmarks), 2, squeeze=False), benchmarks, strict=True):
        for axes, part in zip(line, ("train", "val"), strict=True):
            draw_curves(axes, [row for row in rows if row["benchmark"] == benchmark], part, CONVERGENCE)
    figure.savefig(path, dpi=72)


def draw_sampling(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw figure 7: training and validation by epoch and rate, test by rate; means over seeds."""
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    *curves, last = figure.subplots(1, 3)
    for axes, part in zip(curves, ("train", "val"), strict=True):
        draw_curves(axes, rows, part, {model: f"rate {100 * rate:g} %" for model, rate in RATES.items()})
    last.plot(*mean_by(rows, "rate", "test"), "o-")
    last.set(title=rows[0]["benchmark"], xlabel="sampling rate", ylabel=f"test {rows[0]['metric']}", xscale="log")
    figure.savefig(path, dpi=80)


def score_by_topk(folder: Path) -> None:
    """Also test the weights of a finished run with top k, in a copy of its folder, `NAME.topk`."""
    copy = folder.with_name(f"{folder.name}.topk")
    if "test" in results(copy):
        return
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("results.json"))
    RunFolder(copy).write_results({"metric": results(folder)["metric"]})
    graphbench("test", "--run", str(copy), f"{_OPTION}.evaluation", "topk")


def evaluation_rows(run: Training, output: Path) -> Iterator[dict[str, Any]]:
    """Yield the test score of each evaluation of the same weights."""
    folder = run.folder(output)
    for evaluation, path in (("as_trained", folder), ("topk", folder.with_name(f"{folder.name}.topk"))):
        stored = results(path)
        if "test" in stored:
            named = {**run.facts, "seed": run.seed, "evaluation": evaluation}
            yield named | {"metric": stored["metric"], "test": round(stored["test"][f"test/{stored['metric']}"], 4)}


def collect(output: Path) -> None:
    """Write the tables and the figures of the finished runs."""
    runs = finished(output)
    convergence = [row for run in runs if run.facts["model"] in CONVERGENCE for row in curve_rows(run, output)]
    rates = [run for run in runs if run.facts["benchmark"] == "solids" and run.facts["model"] in RATES]
    sampling = [row for run in rates for row in sampling_rows(run, output)]
    write_csv(output / "runs.csv", [run.row(output) for run in runs])
    write_csv(output / "convergence.csv", convergence)
    write_csv(output / "sampling.csv", sampling)
    sampled = [run for run in runs if run.facts["model"] != "dense"]
    write_csv(output / "evaluation.csv", [row for run in sampled for row in evaluation_rows(run, output)])
    if convergence:
        draw_convergence(convergence, output / "convergence.png")
    if sampling:
        draw_sampling(sampling, output / "sampling.png")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the missing runs and collect after each."""
    names = list(dict.fromkeys(model for models in MODELS.values() for model in models))
    parser = argparse.ArgumentParser(
        description="SFT with a reduced recipe; other options are passed to every graphbench fit.", allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--benchmarks", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--models", nargs="+", choices=names, default=names, help="models, if the benchmark has them")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    options, extra = parser.parse_known_args(arguments)
    for seed in options.seeds:
        for benchmark in options.benchmarks:
            for model in [model for model in MODELS[benchmark] if model in options.models]:
                run = training(benchmark, model, seed, extra)
                run.run(options.output)
                if model != "dense":
                    score_by_topk(run.folder(options.output))
                collect(options.output)
    collect(options.output)


if __name__ == "__main__":
    main()
