"""`graphbench profile --card-memory 80GB`: memory of a training step on a card of that size, without a card."""

from __future__ import annotations

import dataclasses
import json
import re

import torch
from pytorch_lightning.plugins.precision import MixedPrecision

from graphbench.cli.console import show_table
from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import Request
from graphbench.contracts import GraphBatch
from graphbench.data.loader import GraphLoader
from graphbench.errors import BadInput
from graphbench.testing.memory import StepMemory, step_memory
from graphbench.testing.pretend import in_fork

_UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
#: The model is built as for one processor, whatever the configuration trains on.
_HERE = ("--trainer.accelerator", "cpu", "--trainer.devices", "1", "--trainer.strategy", "auto")


def parse_memory(text: str) -> int:
    """Return the bytes of a size with its unit.

    Raises:
        BadInput: it is none.

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
    """Show what a step on the largest training batch takes, by part, and the largest batch size that fits.

    Args:
        request: the command line.
        card: bytes of the card.
    """
    cli = GraphbenchCLI([*request.arguments, *_HERE])
    cli.trainer.strategy.connect(cli.model)
    cli.datamodule.trainer = cli.trainer
    cli.datamodule.prepare_data()
    cli.datamodule.setup("fit")
    loader = cli.datamodule.train_dataloader()
    rows = largest_batch(loader)
    batch = next(iter(loader)) if rows is None else _load(loader, rows)
    memory = count_memory(cli, batch)
    title = f"A training step on {batch.num_graphs} graphs, {batch.num_nodes} nodes"
    table = [[part, f"{size / 1e6:,.1f}", f"{size / card:.1%}"] for part, size in memory.parts.items()]
    total = ["total at the peak", f"{memory.total / 1e6:,.1f}", f"{memory.total / card:.1%}"]
    show_table(title, ["part", "MB", "share of the card"], [*table, total])
    print(f"The forward pass leaves {memory.saved / 1e6:,.1f} MB of activations for the backward pass.")
    if rows is None:
        print("Batches are not rows of a table, so no largest batch size is computed.")
        return 0
    twice = count_memory(cli, _load(loader, [*rows, *rows]))
    print(_largest(card, len(rows), memory.total, twice.total))
    return 0


def largest_batch(loader: object) -> list[int] | None:
    """Return the rows of the batch of an epoch that takes most memory when it is padded.

    Returns:
        None where batches are not made of whole graphs.
    """
    if not isinstance(loader, GraphLoader) or loader.cut is not None:
        return None
    sizes = loader.table.num_nodes
    return max(loader.batch_sampler, key=lambda rows: len(rows) * int(sizes[torch.tensor(rows)].max()))


def _load(loader: GraphLoader, rows: list[int]) -> GraphBatch:
    """Make a batch of rows as the loader's workers do, with what they precompute."""
    batch = loader.table.batch(rows)
    return batch if loader.precompute is None else loader.precompute(batch, torch.Generator().manual_seed(0))


def _largest(card: int, graphs: int, once: int, twice: int) -> str:
    """Say how many graphs fit; memory grows linearly when the same graphs are repeated."""
    most = graphs + (card - once) * graphs // max(1, twice - once)
    if most < 1:
        return "Not even one of these graphs fits on the card."
    return f"Largest batch size that fits, of graphs such as these: {most:,}."


def count_memory(cli: GraphbenchCLI, batch: GraphBatch) -> StepMemory:
    """Count a step in a child process; with numbers if shapes depend on them.

    Raises:
        BadInput: the precision is mixed, or a shape depends on numbers that only a real step has.
    """
    precision = cli.trainer.precision_plugin
    if isinstance(precision, MixedPrecision):
        raise BadInput(
            f"Memory of mixed precision is not counted, but got --trainer.precision {precision.precision}: which "
            "tensors autocast makes of half the size is known on a card alone. 32-true takes more, bf16-true less."
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
