"""Compare launches of a GPS layer in a training step, for several settings, with PyG's `GPSConv`; needs no GPU.

A step is forward, loss, backward, clipping and fused AdamW on the pretended card (`graphbench.testing.pretend`). The
launches of a layer are the difference between steps with three and two layers. Fused attention counts as the kernels
that it launches on a GPU, and so do operations with Triton kernels in `graphbench-kernels`, if requested: messages with
`trainer.deterministic: true`, attention without padding with `attention: packed`. An audit before this file existed
counted 108 operations in each of ten layers, with attention computed by its formula.

    python speed/launches.py
    python speed/launches.py --local GatedGCN
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from gps_throughput import KINDS, BaselineGPS, Kind, OurGPS, molecule_like
from torch import nn

from graphbench import GraphBatch
from graphbench.testing.counted_kernels import counted_as_kernels
from graphbench.testing.pretend import Work, counted_work, on_pretended_device
from graphbench_kernels.nn import card_attention, card_messages

#: The audit's count in ten layers of GPS with GINE: 1,083 operations.
AUDIT = 108
KIND = KINDS["zinc"]
#: Setting -> options of GPS, and operations computed by Triton kernels.
WAYS: Mapping[str, tuple[Mapping[str, str], Mapping[str, tuple[int, int]]]] = {
    "plain torch": ({}, {}),
    "trainer.deterministic: true": ({}, card_messages.LAUNCHES),
    "attention: packed": ({"attention": "packed"}, card_attention.LAUNCHES),
    "both": ({"attention": "packed"}, card_messages.LAUNCHES | card_attention.LAUNCHES),
}


def with_layers(number: int) -> Kind:
    """Return sizes of a model on ZINC with this number of layers."""
    return replace(KIND, num_layers=number)


def step_work(model: nn.Module, batch: GraphBatch, launches: Mapping[str, tuple[int, int]]) -> Work:
    """Count the second of two steps."""
    with on_pretended_device() as device, counted_as_kernels(launches):
        model, batch = model.train().to(device), batch.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        for _ in range(2):
            with counted_work() as work:
                optimizer.zero_grad()
                F.l1_loss(model(batch), batch.y).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
                optimizer.step()
    return work


def layer_work(make: Callable[[int], nn.Module], batch: GraphBatch, launches: Mapping[str, tuple[int, int]]) -> Work:
    """Count the work that a third layer adds to a step with two."""
    two, three = (step_work(make(layers), batch, launches) for layers in (2, 3))
    return Work(three.waits - two.waits, three.launches - two.launches)


def main() -> None:
    """Print one line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local", choices=("GINE", "GatedGCN", "none"), default="GINE", help="local layer of GPS")
    parser.add_argument("--operations", action="store_true", help="show what is launched")
    args = parser.parse_args()
    batch = molecule_like(8, KIND, torch.Generator().manual_seed(0)).batch(range(8))
    print(f"{'a layer of':<38}{'launches':>10}{'waits':>8}")
    print(f"{'GPS, operations in the audit':<38}{AUDIT:>10}{0:>8}")
    ours = {
        f"GPS, {way}": (partial(OurGPS, local_layer=args.local, **options), launches)
        for way, (options, launches) in WAYS.items()
    }
    for name, (make, launches) in {"GPSConv of PyG, with GINE": (BaselineGPS, {}), **ours}.items():
        work = layer_work(lambda layers, make=make: make(with_layers(layers)), batch, launches)
        print(f"{name:<38}{work.launches.total():>10}{work.waits.total():>8}", flush=True)
        if args.operations:
            print("".join(f"    {count:>3} {operation}\n" for operation, count in work.launches.most_common()), end="")


if __name__ == "__main__":
    main()
