"""Compare the memory of a training step by `graphbench profile --card-memory` with that of PyTorch's allocator.

The estimate computes no numbers and uses no memory. For comparison, the same step is trained on the CPU in the form
that a GPU computes: plain torch, the whole batch padded, attention as its formula on both sides, and the second step,
with gradients of the first. The allocator's events come from PyTorch's profiler. Data are random graphs of each
recipe's specification.

    python speed/step_memory.py
    python speed/step_memory.py --recipes gps/zinc grit/zinc --graphs 16
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from functools import partial
from unittest.mock import patch

os.environ["GRAPHBENCH_KERNELS"] = "torch"

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import import_named
from graphbench.contracts import GraphBatch
from graphbench.experiments.reproduce.recipes import stand_in_options
from graphbench.nn import ops, size_blocks
from graphbench.registry.configurations import find
from graphbench.testing.memory import step_memory
from graphbench.testing.pretend import in_fork
from graphbench.training.module import BenchmarkModule

#: Different families: molecules with and without pair biases, local and sparse attention, points, sequences.
RECIPES = (
    "gps/zinc", "grit/zinc", "graphormer/zinc", "gt/pattern", "exphormer/cifar10", "gnnplus/gine-zinc",
    "graphmamba/mnist", "point-clouds/dgcnn-modelnet40", "sequences/s4d-listops",
    "large-graphs/difformer-coco-sp",
)  # fmt: skip


def allocated(module: BenchmarkModule, batch: GraphBatch, clip: float | None) -> int:
    """Return the peak memory in bytes of the second training step on the CPU, from the profiler's events."""
    module.train()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        inputs = batch.clone()
        for weight in module.parameters():
            weight.data = weight.data.clone()
        for buffer in module.buffers():
            buffer.data = buffer.data.clone()
        optimizer = module.build_optimizer()
        for _ in range(2):
            loss = module.task.loss(module(inputs), inputs)
            optimizer.zero_grad()
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(module.parameters(), clip, foreach=True)
            optimizer.step()
    return _peak(watched)


def _peak(watched: profile) -> int:
    """Return the largest sum of bytes that were allocated and not freed; earlier blocks are excluded."""
    sizes: list[tuple[int, int, int]] = []
    events = list(watched.profiler.kineto_results.experimental_event_tree())
    while events:
        event = events.pop()
        events += event.children
        if event.tag == torch._C._profiler._EventType.Allocation:
            sizes.append((event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size))
    total = most = 0
    ours: set[int] = set()
    for _, place, size in sorted(sizes, key=lambda event: event[0]):
        if size > 0:
            ours.add(place)
        elif place not in ours:
            continue
        total += size
        most = max(most, total)
    return most


def both(recipe: str, graphs: int) -> tuple[int, int]:
    """Return the bytes of the estimate and of the step on the CPU."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["--config", str(find(recipe).path), *stand_in_options([recipe]), f"--data.batch_size={graphs}"]
        words += [f"--data.init_args.sizes=[{graphs},2,2]", f"--data.store={folder}", "--trainer.accelerator=cpu"]
        import_named(words)
        cli = GraphbenchCLI(words)
        cli.datamodule.prepare_data()
        cli.datamodule.setup("fit")
        batch = next(iter(cli.datamodule.train_dataloader()))

    def count(real: bool) -> str:
        whole, formula = patch.object(size_blocks, "BLOCK_COST", math.inf), patch.object(ops, "attend", _attend)
        with sdpa_kernel(SDPBackend.MATH), whole, formula:
            step = allocated(cli.model, batch, cli.trainer.gradient_clip_val) if real else None
            return str(step or step_memory(cli.model, batch, cli.trainer.gradient_clip_val).total)

    estimate, real = (in_fork(partial(count, real)) for real in (False, True))
    return int(estimate), int(real)


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    return F.dropout(ops.attention_weights(q, k, bias), dropout) @ v


def main() -> None:
    """Print both for each recipe."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--graphs", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'recipe':32} {'estimate':>10} {'allocator':>10} {'ratio':>6}   (MB; {arguments.graphs} graphs)")
    for recipe in arguments.recipes:
        estimate, real = both(recipe, arguments.graphs)
        print(f"{recipe:32} {estimate / 1e6:10.2f} {real / 1e6:10.2f} {estimate / real:6.3f}", flush=True)


if __name__ == "__main__":
    main()
