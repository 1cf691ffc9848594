"""SFi-Former, GPS and GatedGCN on PATTERN (generated graphs), several seeds, with the gradient norm of every step.

Every training is an ordinary `graphbench fit` and `graphbench test` in a folder of its own under OUTPUT/runs. What is
finished is skipped and what was interrupted goes on, so the command may be stopped at any time and given again, also
for other models or seeds. After each training it writes, of everything finished in OUTPUT so far,

- OUTPUT/pattern.csv: one row a model and seed: parameters, epochs, class accuracy on validation and test, median and
  largest norm of the gradient before clipping over all steps, seconds of wall time;
- OUTPUT/gradient_norms.csv: per run and epoch the median and largest norm;

and of each run `diagnostics/gradient_norm.csv` in its folder has every step.

- `sfi-former`, `gps`: the published configurations;
- `gatedgcn`: that of SFi-Former without attention and adjacency matrix, as a control.

By default `overlays/pattern-short.yaml` is laid over them: higher rate, smaller batches, a schedule by steps. With
--published the configurations stay as they are, but for the number of epochs.

    python plugins/sfi-former/experiments/pattern.py --output runs/pattern --epochs 6 --seeds 0 1 2
    python plugins/sfi-former/experiments/pattern.py --output runs/pattern --models gps --seeds 3
    python plugins/sfi-former/experiments/pattern.py --output runs/trial --epochs 1 --data.init_args.sizes "[64,16,16]"
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from graphbench.experiments import read_csv, results, train, write_csv

PLUGINS = Path(__file__).resolve().parents[2]
CONFIGS = PLUGINS / "sfi-former" / "configs"
_OPTION = "--model.architecture.init_args"


def _file(path: Path) -> tuple[str, str]:
    return "--config", str(path)


#: What `graphbench fit` gets for each model, before the overlay.
MODELS: dict[str, tuple[str, ...]] = {
    "sfi-former": _file(CONFIGS / "pattern.yaml"),
    "gps": _file(PLUGINS / "baselines" / "configs" / "gps" / "pattern.yaml"),
    "gatedgcn": (
        *_file(CONFIGS / "pattern.yaml"),
        *_file(CONFIGS / "overlays" / "gps.yaml"),
        f"{_OPTION}.attention",
        "none",
    ),
}
NORMS = "graphbench_sfi_former.GradientNorm"


@dataclass(frozen=True)
class Run:
    """One training.

    Args:
        model: a key of `MODELS`.
        seed: of weights, dropout and order of the data; the graphs are the same.
    """

    model: str
    seed: int

    def folder(self, output: Path) -> Path:
        """Where it lies."""
        return output / "runs" / f"{self.model}-{self.seed}"

    def options(self, epochs: int, published: bool, extra: Sequence[str]) -> list[str]:
        """What `graphbench fit` gets; `extra` comes last."""
        overlay = () if published else _file(CONFIGS / "overlays" / "pattern-short.yaml")
        # Single options of an architecture must follow all files, or the files' class would not know them.
        configs, rest = _split((*MODELS[self.model], *overlay))
        own = ["--data.init_args.source", "generated", "--seed_everything", str(self.seed)]
        own += ["--trainer.max_epochs", str(epochs)]
        return [*configs, *rest, *own, "--trainer.callbacks+", NORMS, *extra]


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Pairs of options: the `--config` ones and the others."""
    pairs = list(zip(words[::2], words[1::2], strict=True))
    configs = [word for pair in pairs if pair[0] == "--config" for word in pair]
    return configs, [word for pair in pairs if pair[0] != "--config" for word in pair]


def finished(output: Path) -> list[Run]:
    """Trained and tested runs in OUTPUT, whatever call made them, in the order of `MODELS`, then by seed."""
    found = []
    for model in MODELS:
        start = f"{model}-"
        folders = (path.name.removeprefix(start) for path in (output / "runs").glob(f"{start}*"))
        runs = [Run(model, seed) for seed in sorted(int(rest) for rest in folders if rest.isdigit())]
        found += [run for run in runs if "test" in results(run.folder(output))]
    return found


def gradient_norms(run: Run, output: Path) -> dict[int, list[float]]:
    """Norms of the gradient at every step, by finished epochs before it."""
    norms: dict[int, list[float]] = defaultdict(list)
    for row in read_csv(run.folder(output) / "diagnostics" / "gradient_norm.csv"):
        norms[int(row["epoch"])].append(float(row["norm"]))
    return norms


def score_row(run: Run, output: Path) -> dict[str, Any]:
    """Facts and scores of a finished run; `val` is that of its best epoch, whose weights were tested."""
    stored = results(run.folder(output))
    metric = stored["metric"]
    norms = [norm for of_epoch in gradient_norms(run, output).values() for norm in of_epoch]
    return {
        "model": run.model,
        "seed": run.seed,
        "data": "generated",
        "parameters": stored["parameters"],
        "epochs": stored["epochs"],
        "metric": metric,
        "val": round(stored["val"][f"val/{metric}"], 4),
        "test": round(stored["test"][f"test/{metric}"], 4),
        "steps": len(norms),
        "median_gradient_norm": f"{median(norms):.3g}",
        "max_gradient_norm": f"{max(norms):.3g}",
        "seconds": stored["fit_seconds"],
    }


def norm_rows(run: Run, output: Path) -> Iterator[dict[str, Any]]:
    """Median and largest norm of the gradient in every epoch."""
    for epoch, norms in sorted(gradient_norms(run, output).items()):
        yield {
            "model": run.model,
            "seed": run.seed,
            "epoch": epoch + 1,
            "median_gradient_norm": f"{median(norms):.3g}",
            "max_gradient_norm": f"{max(norms):.3g}",
        }


def collect(output: Path) -> None:
    """Write the tables of what is finished."""
    runs = finished(output)
    write_csv(output / "pattern.csv", [score_row(run, output) for run in runs])
    write_csv(output / "gradient_norms.csv", [row for run in runs for row in norm_rows(run, output)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is missing and collect after each."""
    parser = argparse.ArgumentParser(
        description="SFi-Former, GPS and GatedGCN on PATTERN (generated graphs); other options go to graphbench fit.",
        allow_abbrev=False,
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--published", action="store_true", help="without overlays/pattern-short.yaml")
    options, extra = parser.parse_known_args(arguments)
    for seed in options.seeds:
        for run in (Run(model, seed) for model in options.models):
            made = run.options(options.epochs, options.published, extra)
            train(run.folder(options.output), lambda made=made: made)  # type: ignore[misc]
            collect(options.output)
    collect(options.output)


if __name__ == "__main__":
    main()
