"""SFi-Former, GPS and GatedGCN on PATTERN (generated graphs), several seeds, with the gradient norm of every step.

Every training is an ordinary `graphbench fit` and `graphbench test` in a separate folder under OUTPUT/runs. Finished
runs are skipped and interrupted ones resume, so you can stop the command at any time and run it again, also for other
models or seeds. After each training it writes, for all finished runs in OUTPUT,

- OUTPUT/pattern.csv: one row per model and seed: parameters, epochs, class accuracy on validation and test, provenance,
  median and largest norm of the gradient before clipping over all steps;
- OUTPUT/gradient_norms.csv: per run and epoch the median and largest norm;
- OUTPUT/records: a record of each run, for `graphbench reproduce --page`;

`diagnostics/gradient_norm.csv` in the folder of each run has every step.

- `sfi-former`, `gps`: the published configurations;
- `gatedgcn`: that of SFi-Former without attention and adjacency matrix, as a control.

By default `overlays/pattern-short.yaml` is merged over them: a higher rate, smaller batches, a schedule by steps. With
--published only the number of epochs of the configurations changes.

    python plugins/sfi-former/experiments/pattern.py --output runs/pattern --epochs 6 --seeds 0 1 2
    python plugins/sfi-former/experiments/pattern.py --output runs/pattern --models gps --seeds 3
    python plugins/sfi-former/experiments/pattern.py --output runs/trial --epochs 1 --data.init_args.sizes "[64,16,16]"
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from graphbench.experiments import Training, finished_seeds, read_csv, record_of, write_csv, write_records

PLUGINS = Path(__file__).resolve().parents[2]
CONFIGS = PLUGINS / "sfi-former" / "configs"
SHORT = CONFIGS / "overlays" / "pattern-short.yaml"
NORMS = "graphbench_sfi_former.GradientNorm"

#: Names of models in records.
NAMES = {
    "sfi-former": "SFi-Former",
    "gps": "GPS",
    "gatedgcn": "GatedGCN, SFi-Former without attention and adjacency matrix",
}
#: Configurations of each model and, since they must follow all files, single options.
MODELS: dict[str, tuple[list[Path], list[str]]] = {
    "sfi-former": ([CONFIGS / "pattern.yaml"], []),
    "gps": ([PLUGINS / "baselines" / "configs" / "gps" / "pattern.yaml"], []),
    "gatedgcn": (
        [CONFIGS / "pattern.yaml", CONFIGS / "overlays" / "gps.yaml"],
        ["--model.architecture.init_args.attention=none"],
    ),
}


def training(model: str, seed: int, epochs: int = 6, published: bool = False, extra: Sequence[str] = ()) -> Training:
    """Describe one training.

    Args:
        model: a key of `MODELS`.
        seed: seed of weights, dropout and order of the data; the graphs are the same.
        epochs: epochs of training.
        published: omit the short recipe.
        extra: further options of `graphbench fit`; they come last.
    """
    configs, options = MODELS[model]
    shared = ["--data.init_args.source=generated", f"--trainer.max_epochs={epochs}", "--trainer.callbacks+", NORMS]
    return Training(
        model,
        seed,
        configs=[*configs, *(() if published else (SHORT,))],
        options=[*options, *shared, *extra],
        facts={"model": model},
    )


def finished_runs(output: Path) -> list[Training]:
    """List all trained and tested runs in OUTPUT, from any call, in the order of `MODELS`, then by seed."""
    return [training(model, seed) for model in MODELS for seed in finished_seeds(output, training(model, 0))]


def gradient_norms(run: Training, output: Path) -> dict[int, list[float]]:
    """Read the norm of the gradient at every step, by finished epochs before it."""
    norms: dict[int, list[float]] = defaultdict(list)
    for row in read_csv(run.folder(output) / "diagnostics" / "gradient_norm.csv"):
        norms[int(row["epoch"])].append(float(row["norm"]))
    return norms


def score_row(run: Training, output: Path) -> dict[str, Any]:
    """Return the scores of a finished run, those of its best epoch, and its gradient norms over all steps."""
    norms = [norm for of_epoch in gradient_norms(run, output).values() for norm in of_epoch]
    row = run.row(output) | {"median_gradient_norm": median(norms), "max_gradient_norm": max(norms)}
    return {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in row.items()}


def norm_rows(run: Training, output: Path) -> Iterator[dict[str, Any]]:
    """Yield the median and the largest norm of the gradient in every epoch."""
    for epoch, norms in sorted(gradient_norms(run, output).items()):
        yield {
            **run.facts,
            "seed": run.seed,
            "epoch": epoch + 1,
            "median_gradient_norm": f"{median(norms):.3g}",
            "max_gradient_norm": f"{max(norms):.3g}",
        }


def collect(output: Path) -> None:
    """Write the tables of finished runs."""
    runs = finished_runs(output)
    write_csv(output / "pattern.csv", [score_row(run, output) for run in runs])
    write_csv(output / "gradient_norms.csv", [row for run in runs for row in norm_rows(run, output)])
    description = {"experiment": "PATTERN by a short recipe: SFi-Former, GPS and a control", "full": False}
    records = {
        f"pattern-{run.name}-{run.seed}.json": record_of(
            run, run.folder(output), description | {"name": NAMES[run.name], "options": MODELS[run.name][1]}
        )
        for run in runs
    }
    write_records(records, output / "records")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train missing runs and collect after each."""
    parser = argparse.ArgumentParser(
        description="SFi-Former, GPS and GatedGCN on PATTERN (generated); other options are passed to graphbench fit.",
        allow_abbrev=False,
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--published", action="store_true", help="without overlays/pattern-short.yaml")
    options, extra = parser.parse_known_args(arguments)
    for seed in options.seeds:
        for model in options.models:
            training(model, seed, options.epochs, options.published, extra).run(options.output)
            collect(options.output)
    collect(options.output)


if __name__ == "__main__":
    main()
