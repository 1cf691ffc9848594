"""Measure how gradients grow through the layers of a model at initialisation: whether such a deep model can learn.

Runs one forward and backward pass per seed on a training batch of an installed configuration (or of several, merged),
and prints the norms of the gradients of the first and the last layer, in float64, and the median ratio between one
layer and the next. Nothing is trained.

    python experiments/gradients.py sat/cluster sat/overlays/cluster-x4 sat/overlays/re-attention --seeds 0 1 2 \
        --data.init_args.source=generated --data.init_args.sizes=[8,4,4] --data.init_args.batch_size=4
    python experiments/gradients.py sat/cluster sat/overlays/cluster-x4 --seeds 0 1 2 \
        --data.init_args.source=generated --data.init_args.sizes=[8,4,4] --data.init_args.batch_size=4

The weights of re-attention have the variance `1 / d` for heads of width d, whereas those of attention sum to one: a row
of N weights can multiply values by `sqrt(N / d)` in every layer.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from graphbench import BenchmarkModule, GraphBatch
from graphbench.cli.command_line import CommandLine
from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import import_named


def made(configurations: Sequence[str], options: Sequence[str], seed: int) -> tuple[BenchmarkModule, GraphBatch]:
    """Return the model of a configuration in training mode, and its first training batch."""
    files = [word for name in configurations for word in ("--config", name)]
    words = [*files, *options, f"--seed_everything={seed}", "--trainer.logger=false"]
    arguments = CommandLine.parse(words).located().words
    import_named(arguments)
    cli = GraphbenchCLI(arguments)
    cli.datamodule.prepare_data()
    cli.datamodule.setup("fit")
    return cli.model.train(), next(iter(cli.datamodule.train_dataloader()))


def gradient_norms(model: BenchmarkModule, batch: GraphBatch) -> list[float]:
    """Return the gradient norm of each of `architecture.layers`, in float64, after one backward pass of the loss."""
    model.zero_grad()
    model.task.loss(model(batch), batch).backward()
    norms = []
    for layer in model.architecture.layers:  # type: ignore[union-attr]
        squares = [p.grad.double().square().sum() for p in layer.parameters() if p.grad is not None]
        norms.append(float(sum(squares)) ** 0.5)
    return norms


def growth(norms: Sequence[float]) -> float:
    """Return the median ratio of a layer's gradients to those of the next layer.

    Examples:
        >>> growth([8.0, 4.0, 1.0])
        3.0
    """
    return median(before / after for before, after in pairwise(norms))


def main() -> None:
    """Print one line per seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configurations", nargs="+", help="installed configurations or files, the base first")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    own, options = parser.parse_known_args()
    sys.argv = sys.argv[:1]  # LightningCLI warns about options that it was not given
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    print(f"{'seed':>4}{'layers':>8}{'first layer':>14}{'last layer':>14}{'times per layer':>17}")
    for seed in own.seeds:
        norms = gradient_norms(*made(own.configurations, options, seed))
        print(f"{seed:>4}{len(norms):>8}{norms[0]:>14.3g}{norms[-1]:>14.3g}{growth(norms):>17.2f}", flush=True)


if __name__ == "__main__":
    main()
