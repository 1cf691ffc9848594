"""Figures 1, 2 and 15 of "Graph Transformers Dream of Electric Flow" (arXiv 2410.16699): train, write one CSV, draw.

    python plugins/linear-transformer/experiments/figures.py --recipe reduced --output runs/electric-flow
    python plugins/linear-transformer/experiments/figures.py --recipe published --figures 1 --seeds 3 --output runs/fig1

`--demands released` centres demands only for the heat kernel, as in the authors' notebooks, and `--stack frozen` is
their other stack (see `LinearTransformer`); each variant has its own figure, named after it.

Every point is a run of graphbench's own parser, data, module and trainer. A point that is already in `points.csv` is
not trained again, so you can stop the command at any time and run it again. `--draw-only` trains nothing.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import logging
import math
import os
import time
from pathlib import Path
from typing import Any

import torch
from drawing import draw_all
from points import FAMILIES, LAYERS, MAPS, RECIPES, Point, points

from graphbench.cli.console import set_up_logging
from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import import_named

log = logging.getLogger("graphbench.diagnostics.figures")
#: Losses of single eigenvectors in the CSV.
MOST_EIGENVECTORS = 10
KEY = [field.name for field in dataclasses.fields(Point)]
COLUMNS = [
    *KEY,
    "form",
    "log_loss",
    *(f"log_loss_{i + 1}" for i in range(MOST_EIGENVECTORS)),
    "parameters",
    "steps",
    "batch_size",
    "test_graphs",
    "seconds",
    "steps_per_second",
    "threads",
    "device",
    "torch",
]


def train(point: Point, extra: list[str]) -> dict[str, Any]:
    """Train one point and score it on the test split.

    Args:
        point: the point.
        extra: further options of the command line, such as `--trainer.accelerator=gpu`.

    Returns:
        A row of the CSV.
    """
    arguments = [*point.arguments(), "--trainer.enable_progress_bar=false", *extra]
    import_named(arguments)
    cli = GraphbenchCLI(arguments)
    started = time.perf_counter()
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    seconds = time.perf_counter() - started
    scores = cli.trainer.test(cli.model, datamodule=cli.datamodule, verbose=False)[0]
    each = {f"log_{name[5:]}": math.log(value) for name, value in scores.items() if _single(name)}
    return (
        dataclasses.asdict(point)
        | each
        | {
            "form": point.form,
            "log_loss": scores["test/log_loss"],
            "parameters": sum(p.numel() for p in cli.model.parameters() if p.requires_grad),
            "steps": cli.trainer.global_step,
            "batch_size": cli.datamodule.batch_size,
            "test_graphs": cli.datamodule.spec.split_sizes[2],
            "seconds": round(seconds, 1),
            "steps_per_second": round(cli.trainer.global_step / seconds, 2),
            "threads": torch.get_num_threads(),
            "device": cli.trainer.strategy.root_device.type,
            "torch": torch.__version__,
        }
    )


def _single(name: str) -> bool:
    """Return whether this is the score of one eigenvector."""
    return name.startswith("test/loss_") and name[10:].isdigit()


def rows(path: Path) -> list[dict[str, str]]:
    """Read the trained points, as text; empty without a file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def append(path: Path, row: dict[str, Any]) -> None:
    """Append a row, flushed to disk before this returns."""
    fresh = not path.is_file()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if fresh:
            writer.writeheader()
        writer.writerow(row)
        file.flush()
        os.fsync(file.fileno())


def sweep(wanted: list[Point], path: Path, extra: list[str]) -> None:
    """Train the points missing from the CSV, one after the other."""
    done = {tuple(row[name] for name in KEY) for row in rows(path)}
    missing = [point for point in wanted if tuple(map(str, dataclasses.astuple(point))) not in done]
    log.info("%d points, %d of them to train", len(wanted), len(missing))
    for number, point in enumerate(missing):
        row = train(point, extra)
        append(path, row)
        log.info(
            "%d/%d  figure %d  %s %s  %d layers  seed %d: log loss %.3f  (%.0f s)",
            number + 1, len(missing), point.figure, point.family, point.target, point.num_layers, point.seed,
            row["log_loss"], row["seconds"],
        )  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Train and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=sorted(RECIPES), default="reduced")
    parser.add_argument("--figures", type=int, nargs="+", choices=(1, 2, 15), default=[1, 2, 15])
    parser.add_argument("--layers", type=int, nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--targets", nargs="+", choices=(*MAPS, "eigenvectors"), default=[*MAPS, "eigenvectors"])
    parser.add_argument("--demands", choices=("centred", "released"), default="centred")
    parser.add_argument("--stack", choices=("paper", "frozen"), default="paper")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--draw-only", action="store_true")
    options, extra = parser.parse_known_args(arguments)
    set_up_logging()
    torch.set_num_threads(options.threads)
    options.output.mkdir(parents=True, exist_ok=True)
    table = options.output / "points.csv"
    if not options.draw_only:
        maps = MAPS if options.demands == "centred" else ("heat",)
        frozen = options.stack == "frozen"
        wanted = points(options.figures, options.layers, options.seeds, options.recipe, maps, frozen)
        chosen = [p for p in wanted if p.family in options.families and p.target in options.targets]
        sweep(chosen, table, extra)
    for path in draw_all(rows(table), options.output, options.recipe):
        log.info("%s", path)


if __name__ == "__main__":
    main()
