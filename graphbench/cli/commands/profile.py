"""`graphbench profile` and `graphbench params`: the cost of a training step, and the size of a model."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.precision import MixedPrecision
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from graphbench.cli.console import count_parameters, highest_memory_mb, show_line, show_table
from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import Request, own_parser, parse_request
from graphbench.cli.parsers import file_to_write, whole_number
from graphbench.contracts.table import GraphBatch
from graphbench.data.files.writing import write_text
from graphbench.data.loader import GraphLoader
from graphbench.errors import BadInput
from graphbench.inference.predictor import on_device
from graphbench.runs.environment import describe_environment
from graphbench.testing.memory import StepMemory, step_memory
from graphbench.testing.pretend import in_fork
from graphbench.training.distributed import gather_objects
from graphbench.training.module import BenchmarkModule
from graphbench.training.products import time_step

log = logging.getLogger(__name__)
_WARM_UP = 5
_UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
#: The model is built for one processor, whatever the configuration trains on.
_HERE = ("--trainer.accelerator", "cpu", "--trainer.devices", "1", "--trainer.strategy", "auto")


class StepClock(pl.Callback):
    """Time the parts of every training step on the host; on a GPU every mark forces a host-device sync.

    Parts: `data` (waiting for the batch and moving it), `forward` (with the loss), `backward`, `optimizer` (with
    clipping and logging).
    """

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.graphs: list[int] = []
        self._last = time.perf_counter()

    @property
    def rate(self) -> float:
        """Return graphs per second of this process after the warm-up."""
        return sum(self.graphs[_WARM_UP:]) / sum(sum(values[_WARM_UP:]) for values in self.seconds.values())

    def _mark(self, part: str, device: torch.device) -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        now = time.perf_counter()
        self.seconds[part].append(now - self._last)
        self._last = now

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Exclude what happened between two epochs, such as validation."""
        self._last = time.perf_counter()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Mark the end of waiting for the batch."""
        self.graphs.append(batch.num_graphs)
        self._mark("data", pl_module.device)

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: torch.Tensor) -> None:
        """Mark the end of the forward pass."""
        self._mark("forward", pl_module.device)

    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Mark the end of the backward pass."""
        self._mark("backward", pl_module.device)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Mark the end of the optimizer step."""
        self._mark("optimizer", pl_module.device)


def profile(arguments: Sequence[str]) -> int:
    """Train some steps and show time by part, throughput, peak memory and operations by submodule.

    With `--card-memory`, show the memory of a step on a card of that size instead.
    """
    parser = own_parser("profile")
    request = parse_request(parser, arguments)
    output = None if request.options.output is None else file_to_write("--output", request.options.output)
    if request.options.card_memory is not None:
        if request.options.steps or request.options.depth or output is not None:
            raise BadInput("--card-memory trains no steps; omit --steps, --depth and --output.")
        return estimate(request, parse_memory(request.options.card_memory))
    depth = whole_number("--depth", request.options.depth or "3", at_least=1)
    total = str(whole_number("--steps", request.options.steps or "50", at_least=_WARM_UP + 1))
    # Schedules that count epochs need a finite number of them, and every epoch has a step.
    # One batch is validated after each epoch, since early stopping and schedules may watch its score.
    limits = ["--trainer.max_steps", total, "--trainer.max_epochs", total, "--trainer.limit_val_batches", "1"]
    cli = GraphbenchCLI([*request.arguments, *limits])
    memory = {} if output is None else _count_memory(cli)  # before the fit, which may move the model to a card
    clock = StepClock()
    cli.callbacks.append(clock)
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    rate = sum(gather_objects(clock.rate))
    peak = highest_memory_mb(cli.trainer.strategy.root_device)
    if not cli.trainer.is_global_zero:
        return 0
    _show_times(clock, rate)
    _show_operations(cli.model, _training_batch(cli, cli.model.device), depth)
    if peak is not None:
        log.info("Peak memory: %.0f MB", peak)
    if output is not None:
        numbers = _time_products(cli) | memory | {"graphs_per_s": rate}
        write_text(output, json.dumps(numbers, indent=1) + "\n")
        log.info("A step takes %.2f times as long as its %d products; wrote %s", numbers["ratio"],
                 numbers["products"], output)  # fmt: skip
    return 0


def _training_batch(cli: GraphbenchCLI, device: torch.device, batch: GraphBatch | None = None) -> GraphBatch:
    """Return a batch, by default the first of an epoch, as a training step receives it: point clouds are sampled."""
    cli.trainer.training = True
    return on_device(cli.datamodule, next(iter(cli.datamodule.train_dataloader())) if batch is None else batch, device)


def _count_memory(cli: GraphbenchCLI) -> dict[str, Any]:
    """Count the memory of a step on the first training batch from its tensors' shapes, or return why it failed."""
    try:
        _opened(cli)
        memory = count_memory(cli, _training_batch(cli, torch.device("cpu")))
    except (BadInput, RuntimeError) as error:
        return {"memory_mb": None, "activations_mb": None, "no_memory": str(error).strip().rpartition("\n")[2]}
    return {"memory_mb": memory.total / 1e6, "activations_mb": memory.saved / 1e6, "no_memory": ""}


def _time_products(cli: GraphbenchCLI) -> dict[str, Any]:
    """Time a step on the first training batch and its bare products alternately, on the device of the trainer."""
    device = cli.trainer.strategy.root_device
    model = cli.model.to(device).train()
    batch = _training_batch(cli, device)
    optimizer = model.build_optimizer()

    def step() -> None:
        optimizer.zero_grad()
        with cli.trainer.precision_plugin.forward_context():
            loss = model.task.loss(model(batch), batch)
        loss.backward()
        optimizer.step()

    time = time_step(step, torch.cuda.synchronize if device.type == "cuda" else lambda: None)
    here = describe_environment()
    return {
        "architecture": type(model.architecture).__name__,
        "benchmark": model.spec.name,
        "parameters": count_parameters(model),
        "graphs": int(batch.num_graphs),
        "nodes": int(batch.num_nodes),
        "step_ms": 1e3 * time.step,
        "products_ms": 1e3 * time.products,
        "ratio": time.ratio,
        "products": time.count,
        "gflop": time.flops / 1e9,
        "load": os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else None,  # Windows has none
        "hardware": " + ".join(here["gpus"]) or f"{here['processor']}, {here['torch_threads']} threads",
        "date": here["started"][:10],
        "commit": here["commit"],
    }


def _show_times(clock: StepClock, rate: float) -> None:
    """Show the median time and share of each part, after the warm-up, and the graphs per second of all processes."""
    parts = {part: values[_WARM_UP:] for part, values in clock.seconds.items()}
    whole = sum(sum(values) for values in parts.values())
    rows = [
        [part, f"{1e3 * statistics.median(values):.2f}", f"{100 * sum(values) / whole:.1f} %"]
        for part, values in parts.items()
    ]
    show_table(f"A training step, {rate:,.0f} graphs/s", ["part", "median ms", "share of time"], rows)


def count_operations(model: nn.Module, batch: GraphBatch) -> dict[str, int]:
    """Count floating-point operations of a forward pass in evaluation mode, by module; a multiply-add counts as two.

    Matrix products, convolutions and PyTorch's fused attention count; elementwise operations do not (norms,
    activations, distances and the maxima of maxout scores among them). Modules of a list are summed up under `*`.

    Returns:
        Dotted name -> operations, `""` for the whole model; modules without operations are omitted.
    """
    counter, training = FlopCounterMode(display=False), model.training
    model.eval()
    try:
        with counter:  # not under no_grad: the counter's hooks fail on views of parameters there
            model(batch)
    finally:
        model.train(training)
    counts: dict[str, int] = defaultdict(int)
    for name, operations in counter.get_flop_counts().items():
        if name != "Global" and any(operations.values()):
            inner = name.partition(".")[2].split(".")
            counts[".".join("*" if part.isdigit() else part for part in inner)] += sum(operations.values())
    return dict(counts)


def _show_operations(model: BenchmarkModule, batch: GraphBatch, depth: int) -> None:
    """Show the operations of a forward pass, `depth` levels of modules deep."""
    counts = count_operations(model, batch)
    total = counts.pop("", 0)
    rows = [
        [name, f"{count / 1e9:.4f}", f"{100 * count / max(1, total):.1f} %"]
        for name, count in sorted(counts.items())
        if len(name.split(".")) <= depth
    ]
    title = f"Operations of a forward pass in evaluation mode ({batch.num_graphs} graphs, {batch.num_nodes} nodes)"
    show_table(title, ["module", "GFLOP", "share"], [*rows, ["total", f"{total / 1e9:.4f}", "100.0 %"]])


def params(arguments: Sequence[str]) -> int:
    """Print the trainable parameters by part and in total; read only data that determine their own sizes."""
    request = parse_request(own_parser("params"), arguments)
    model = GraphbenchCLI(request.arguments).model
    parts = {f"architecture.{name}": count_parameters(child) for name, child in model.architecture.named_children()}
    parts["architecture (own)"] = count_parameters(model.architecture) - sum(parts.values())
    if model.positional_encoding is not None:
        parts = {"positional_encoding": count_parameters(model.positional_encoding), **parts}
    parts["head"] = count_parameters(model.task)
    parts = {name: number for name, number in parts.items() if number}
    total, name = count_parameters(model), type(model.architecture).__name__
    if request.options.json:
        record = {"architecture": name, "benchmark": model.spec.name, "parameters": total, "parts": parts}
        print(json.dumps(record))
    else:
        rows = [[part, f"{number:,}"] for part, number in parts.items()]
        show_table(f"{name} on {model.spec.name}", ["part", "parameters"], [*rows, ["total", f"{total:,}"]])
    return 0


# -- `--card-memory` ---------------------------------------------------------------------------------------------------


def parse_memory(text: str) -> int:
    """Return the bytes of a size with its unit.

    Examples:
        >>> parse_memory("80GB"), parse_memory("1.5 GiB")
        (80000000000, 1610612736)
    """
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?([MGT]i?B)", text.strip())
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size <= 0:
        raise BadInput(f"--card-memory must be a size with its unit, such as 80GB or 24GiB, but got {text!r}.")
    return size


def estimate(request: Request, card: int) -> int:
    """Show how much of a card's memory a step on the largest training batch uses, and the largest batch that fits."""
    cli = GraphbenchCLI([*request.arguments, *_HERE])
    loader = _opened(cli)
    rows = largest_batch(loader)
    batch = _training_batch(cli, torch.device("cpu"), None if rows is None else _load(loader, rows))
    memory = count_memory(cli, batch)
    title = f"A training step on {batch.num_graphs} graphs, {batch.num_nodes} nodes"
    table = [[part, f"{size / 1e6:,.1f}", f"{size / card:.1%}"] for part, size in memory.parts.items()]
    total = ["total at the peak", f"{memory.total / 1e6:,.1f}", f"{memory.total / card:.1%}"]
    show_table(title, ["part", "MB", "share of the card"], [*table, total])
    show_line(f"The forward pass leaves {memory.saved / 1e6:,.1f} MB of activations for the backward pass.")
    if rows is None:
        show_line("Batches are not rows of a table, so no largest batch size is computed.")
        return 0
    # A second size, so that memory independent of the batch cancels.
    twice = count_memory(cli, _training_batch(cli, torch.device("cpu"), _load(loader, [*rows, *rows])))
    show_line(_largest(card, len(rows), memory.total, twice.total))
    return 0


def _opened(cli: GraphbenchCLI) -> Any:
    """Return the loader of training batches, with the data opened as `fit` does before requesting them."""
    cli.trainer.strategy.connect(cli.model)
    cli.datamodule.trainer = cli.trainer
    cli.datamodule.prepare_data()
    cli.datamodule.setup("fit")
    return cli.datamodule.train_dataloader()


def largest_batch(loader: object) -> list[int] | None:
    """Return the rows of the batch of an epoch that needs the most memory when padded.

    None if batches do not consist of whole graphs.
    """
    if not isinstance(loader, GraphLoader) or loader.cut is not None:
        return None
    sizes = loader.table.num_nodes
    return max(loader.batch_sampler, key=lambda rows: len(rows) * int(sizes[torch.tensor(rows)].max()))


def _load(loader: GraphLoader, rows: list[int]) -> GraphBatch:
    """Create a batch of rows as the loader's workers do, with what they precompute."""
    batch = loader.table.batch(rows)
    return batch if loader.precompute is None else loader.precompute(batch, torch.Generator().manual_seed(0))


def _largest(card: int, graphs: int, once: int, twice: int) -> str:
    """Describe how many graphs fit; memory grows linearly when the same graphs are repeated."""
    most = graphs + (card - once) * graphs // max(1, twice - once)
    if most < 1:
        return "Not even one of these graphs fits on the card."
    return f"Largest batch size that fits, of graphs such as these: {most:,}."


def count_memory(cli: GraphbenchCLI, batch: GraphBatch) -> StepMemory:
    """Count a step in a child process, with real values if shapes depend on them; refuse mixed precision."""
    precision = cli.trainer.precision_plugin
    if isinstance(precision, MixedPrecision):
        raise BadInput(
            f"Memory of mixed precision is not counted, but got --trainer.precision {precision.precision}: which "
            "tensors autocast halves is known only on a card. 32-true needs more, bf16-true less."
        )
    clip = cli.trainer.gradient_clip_val if cli.trainer.gradient_clip_algorithm != "value" else None

    def count(numbers: bool) -> str:
        precision.convert_module(cli.model)  # in place
        with precision.forward_context():
            try:
                memory = step_memory(cli.model, precision.convert_input(batch), clip, numbers)
            except BadInput as error:
                return json.dumps({"refused": str(error)})
        return json.dumps(dataclasses.asdict(memory))

    answer = in_fork(lambda: count(False))
    if answer.startswith('{"refused"'):
        answer = in_fork(lambda: count(True))
    if not answer.startswith("{"):
        raise RuntimeError(f"the step could not be counted:\n{answer}")
    counted = json.loads(answer)
    if "refused" in counted:
        raise BadInput(counted["refused"])
    return StepMemory(**counted)
