"""Figure 5 of the paper: seconds of inference on the test split of ModelNet40, in batches of 32 clouds.

Nothing is trained: weights are initial, and clouds are random, with as many points as the data, since neither changes
the computation. Models alternate in each round, on one batch in evaluation without gradients; the seconds of the split
are the median seconds of a batch times the number of batches. Loading and moving data are not included. The seconds are
from this machine: its first GPU, or else CPU seconds of one thread, which other programs disturb less; the paper's are
from an A100.

    python plugins/sft/experiments/figure_5.py --output runs/sft       # writes runs/sft/figure_5.csv
    graphbench reproduce sft/figure-5 --output runs/papers             # the same, drawn
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from statistics import median

import torch

from graphbench import BenchmarkModule, GraphBatch
from graphbench.cli.lightning import build
from graphbench.experiments import write_csv
from graphbench.experiments.reproduce.recipes import fact, stand_in_options

CLOUDS, ROUNDS = 32, 5
#: Row of the table -> its recipe.
RECIPES = {
    "vn-pointnet": "point-clouds/vn-pointnet-modelnet40",
    "vn-dgcnn": "point-clouds/vn-dgcnn-modelnet40",
    "cn-pointnet": "point-clouds/cn-pointnet-modelnet40",
    "cn-dgcnn": "point-clouds/cn-dgcnn-modelnet40",
    "sft": "sft/modelnet40-rotation-invariant",
}


def build_with_batch(recipe: str, clouds: int, device: str) -> tuple[BenchmarkModule, GraphBatch]:
    """Build the model of a recipe in evaluation, and a batch of the test split of random clouds."""
    sizes = [f"--data.init_args.sizes=[1,1,{clouds}]", f"--data.init_args.batch_size={clouds}"]
    cli = build("figure_5", ["--config", recipe, *stand_in_options([recipe]), *sizes, "--trainer.logger=false"])
    cli.datamodule.prepare_data()
    cli.datamodule.setup("test")
    return cli.model.eval().to(device), next(iter(cli.datamodule.test_dataloader())).to(device)


@torch.inference_mode()
def seconds_of(model: BenchmarkModule, batch: GraphBatch) -> float:
    """Time one pass in seconds, until the device is done."""
    clock = time.perf_counter if batch.ptr.is_cuda else time.process_time
    start = clock()
    model(batch)
    if batch.ptr.is_cuda:
        torch.cuda.synchronize()
    return clock() - start


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the seconds."""
    parser = argparse.ArgumentParser(description="Seconds of inference on ModelNet40's test split, as in figure 5.")
    parser.add_argument("--output", type=Path, required=True, help="folder of figure_5.csv")
    parser.add_argument("--clouds", type=int, default=CLOUDS, help=f"clouds per batch (default: {CLOUDS}, the paper's)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"timed rounds (default: {ROUNDS}), after a warm-up")
    options = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)
    models = {row: build_with_batch(recipe, options.clouds, device) for row, recipe in RECIPES.items()}
    turns = [{row: seconds_of(*inputs) for row, inputs in models.items()} for _ in range(options.rounds + 1)]
    batches = ceil(fact("ModelNet40", "split_sizes")[-1] / options.clouds)
    rows = [
        {"row": row, "seconds": f"{batches * median(turn[row] for turn in turns[1:]):.4f}", "batches": batches}
        for row in RECIPES
    ]
    write_csv(options.output / "figure_5.csv", rows)


if __name__ == "__main__":
    main()
