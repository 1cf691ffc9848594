"""Compare a training step with its limit: its time with that of its products, its memory with the minimum needed.

For every architecture a step (forward pass, loss, backward pass, fused AdamW) is recorded once: every matrix product
with the shapes, strides and dtypes of its operands, and fused attention as the products that it consists of. Then the
step and the products by themselves, on random operands of the same layout, alternate on one thread. A ratio of 1 would
be a step that only multiplies.

Memory is the peak of a step, including parameters and optimizer state, divided by the sum of parameters, optimizer
state (two numbers per parameter) and activations, the tensors that the forward pass saves for autograd. The rest are
gradients and temporary tensors.

Models are those of installed configurations, on batches of the molecules that RDKit ships (NCI, about 20 atoms). Memory
is kept between steps, as in every `graphbench` command (see `allocator.py`).

    python speed/limit.py
    python speed/limit.py --configs gps/zinc model/gt --rounds 15
    python speed/limit.py --device cuda --batch-size 512
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Callable

import torch
from timing import in_turns, medians, note, note_memory, peak_bytes
from torch import Tensor

from graphbench import BenchmarkModule, GraphBatch
from graphbench.cli.command_line import CommandLine
from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import import_named
from graphbench.cli.process import keep_memory
from graphbench.training.products import Recorded, multiply

CONFIGURATIONS = (
    "gps/zinc",
    "model/gt",
    "model/gatedgcn",
    "graphormer/zinc",
    "deepgraph/zinc",
    "sat/zinc",
    "sfi-former/peptides-func",
    "sft/peptides-func",
)


def made(configuration: str, batch_size: int, device: str = "cpu") -> tuple[BenchmarkModule, GraphBatch]:
    """Return the model of a configuration in training mode, and one batch of molecules, on a device."""
    own = ["--data", "NCI", "--data.batch_size", str(batch_size), "--trainer.logger", "false"]
    arguments = CommandLine.parse(["--config", configuration, *own, "--model.head", "{}"]).located().words
    import_named(arguments)
    cli = GraphbenchCLI(arguments)
    cli.datamodule.prepare_data()
    cli.datamodule.setup("fit")
    return cli.model.train().to(device), next(iter(cli.datamodule.train_dataloader())).to(device)


def step_of(model: BenchmarkModule, batch: GraphBatch, fused: bool | None = True) -> Callable[[], None]:
    """Return a training step that waits for the device."""
    step = unwaited_step_of(model, batch, fused=fused)

    def waited() -> None:
        step()
        wait_for(batch)

    return waited


def unwaited_step_of(
    model: BenchmarkModule, batch: GraphBatch, dtype: torch.dtype = torch.float32, fused: bool | None = True
) -> Callable[[], None]:
    """Return a training step that does not wait for the device; with `fused=None` AdamW has torch's default."""
    device = batch.ptr.device.type
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=fused, capturable=device == "cuda")
    mixed = dtype is not torch.float32

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, dtype, cache_enabled=False) if mixed else contextlib.nullcontext():
            loss = model.task.loss(model(batch), batch)
        loss.backward()
        optimizer.step()

    return step


def memory_of(step: Callable[[], None], model: BenchmarkModule, batch: GraphBatch) -> tuple[int, int]:
    """Return the peak bytes of a step, and those that it needs, both with parameters and AdamW's two moments."""
    parameters = sum(parameter.nbytes for parameter in model.parameters())
    standing = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.layout is torch.strided and (place := tensor.untyped_storage().data_ptr()) not in standing:
            kept[place] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        step()
    if batch.ptr.is_cuda:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        highest = torch.cuda.max_memory_allocated() - before
    else:
        highest = peak_bytes(step)
    return 3 * parameters + highest, 3 * parameters + sum(kept.values())


def wait_for(batch: GraphBatch) -> None:
    """Wait until the device of a batch has done everything."""
    if batch.ptr.is_cuda:
        torch.cuda.synchronize()


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return the options of scripts that measure the models of configurations on molecules."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", nargs="+", default=CONFIGURATIONS, help="installed configurations or files")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch-size", type=int, default=32, help="graphs per batch")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    return parser


def prepare() -> None:
    """Use one thread, keep memory, and silence Lightning."""
    keep_memory()
    torch.set_num_threads(1)
    sys.argv = sys.argv[:1]  # LightningCLI warns about options that it was not given
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


def main() -> None:
    """Print one line per model."""
    options = parser_of(__doc__).parse_args()
    prepare()
    heads = f"{'step ms':>10}{'products ms':>13}{'ratio':>8}{'peak MB':>10}{'needed MB':>11}{'ratio':>8}"
    print(f"{'configuration':<28}{'parameters':>12}{'products':>10}{heads}")
    for configuration in options.configs:
        torch.manual_seed(0)
        model, batch = made(configuration, options.batch_size, options.device)
        step = step_of(model, batch)
        step()
        with Recorded() as recorded:
            step()
        operands = [product.make() for product in recorded.products]

        def products(operands: list[tuple[Tensor, ...]] = operands, batch: GraphBatch = batch) -> None:
            multiply(operands)
            wait_for(batch)

        seconds = in_turns({"step": step, "products": products}, options.rounds)
        ratio, middle = note(configuration, "step", "products", seconds), medians(seconds)
        count = sum(parameter.numel() for parameter in model.parameters())
        times = f"{1e3 * middle['step']:10.1f}{1e3 * middle['products']:13.1f}"
        peak, needed = memory_of(step, model, batch)
        memory = note_memory(configuration, "peak of a step", "parameters, activations, optimizer state", peak, needed)
        bytes_told = f"{peak / 1e6:10.1f}{needed / 1e6:11.1f}{memory:8.2f}"
        print(f"{configuration:<28}{count:12,}{len(operands):10,}{times}{ratio:8.2f}{bytes_told}", flush=True)


if __name__ == "__main__":
    main()
