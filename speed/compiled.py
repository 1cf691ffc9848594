"""Time a training step of GPS with parts of it compiled (`torch.compile`, dynamic sizes), and with none.

A region is the whole model, as with `--model.compile true`, or one kind of part in every layer. Batches differ in size,
so programs must support all sizes; they are compiled during warm-up. Regions alternate step by step, and ratios are
medians over rounds, so a busy machine slows all equally. Runs on a CPU, or on a GPU with `--device cuda`.

    python speed/compiled.py --steps 20
    python speed/compiled.py --kind peptides --steps 10 --regions whole local
    GRAPHBENCH_KERNELS=torch python speed/compiled.py
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from gps_throughput import KINDS, OurGPS, Way, make_step, molecule_like
from timing import in_turns, medians, note
from torch import nn

from graphbench.nn import BatchNorm, FeedForward, GPSLayer, MultiHeadAttention

#: Region -> the modules that are compiled, each separately.
REGIONS: dict[str, Callable[[nn.Module], Iterator[nn.Module]]] = {
    "none": lambda model: iter(()),
    "whole": lambda model: iter((model,)),
    "layers": lambda model: _parts(model, GPSLayer),
    "local": lambda model: (layer.local for layer in _parts(model, GPSLayer)),
    "attention": lambda model: _parts(model, MultiHeadAttention),
    "feed-forward": lambda model: _parts(model, FeedForward),
    "norms": lambda model: _parts(model, BatchNorm),
}


def _parts(model: nn.Module, kind: type[nn.Module]) -> Iterator[nn.Module]:
    return (part for part in model.modules() if isinstance(part, kind))


def main() -> None:
    """Print one line for each region."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=sorted(KINDS), default="zinc")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("32", "bf16"), default="32")
    parser.add_argument("--regions", nargs="+", choices=[*REGIONS][1:], default=[*REGIONS][1:])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    kind = replace(KINDS[args.kind], num_layers=args.layers)
    table = molecule_like(8 * kind.batch_size, kind, torch.Generator().manual_seed(0))
    parts = torch.randperm(len(table), generator=torch.Generator().manual_seed(1)).split(kind.batch_size)
    batches = [table.batch(part).to(args.device) for part in parts]
    calls, made = {}, {}
    for region in ("none", *args.regions):
        torch.manual_seed(0)
        model = OurGPS(kind).to(args.device)
        for part in REGIONS[region](model):
            part.compile(dynamic=True)
        step, turn = make_step(model, fused=True, way=Way(args.device, args.precision)), itertools.cycle(batches)
        start = time.perf_counter()
        for batch in batches[:3]:  # the sizes of the first batch are constants, those of later ones are not
            step(batch)
        made[region] = time.perf_counter() - start
        calls[region] = lambda step=step, turn=turn: step(next(turn))
    seconds = in_turns(calls, args.steps, warm_up=1)
    middle = medians(seconds)
    kernels = os.environ.get("GRAPHBENCH_KERNELS", "numba")
    machine = f"{args.device}, {args.threads} thread(s), kernels {kernels}, precision {args.precision}"
    print(f"{args.kind}, {args.layers} layers, {args.steps} steps, {machine}, torch {torch.__version__}")
    print(f"{'compiled':<16}{'ms':>10}{'none/region':>14}{'first 3 steps, s':>20}")
    for region in calls:
        ratio = 1.0 if region == "none" else 1 / note(f"{args.kind}, compiled", region, "none", seconds)
        print(f"{region:<16}{1e3 * middle[region]:>10.1f}{ratio:>14.2f}{made[region]:>20.1f}")


if __name__ == "__main__":
    main()
