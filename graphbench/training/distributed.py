"""Training on several processes: one loss for all of them, and parameters that get no gradient."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy, FSDPStrategy
from pytorch_lightning.trainer.states import TrainerStatus
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torchmetrics import Metric

from graphbench.contracts.table import GraphBatch, GraphTable
from graphbench.training.lightning_internals import ddp_options
from graphbench.training.parts import evaluating

log = logging.getLogger(__name__)

_Own = TypeVar("_Own")


def over_processes(sums: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, int]:
    """Sum terms of a loss `[groups]`, detached, over all processes, and count these; unchanged where there is one.

    Examples:
        >>> over_processes(torch.tensor([3.0]), torch.tensor([4]))
        (tensor([3.]), tensor([4]), 1)
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return sums, counts, 1
    both = torch.stack((sums.double(), counts.double()))  # float64 counts exactly, as far as a batch can go
    distributed.all_reduce(both)
    return both[0], both[1], distributed.get_world_size()


def of_processes(own: _Own) -> list[_Own]:
    """Return what each process has, in the order of ranks; all of them take part.

    Examples:
        >>> of_processes((2, 0.5))
        [(2, 0.5)]
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return [own]
    everywhere = [own] * distributed.get_world_size()
    distributed.all_gather_object(everywhere, own)
    return everywhere


def agree_on_rows(metrics: Iterable[Metric]) -> None:
    """Let metrics that keep rows be computed where a process has none, as all of its graphs may lack a label.

    torchmetrics gathers nothing as float32 of one dimension, which fits neither classes nor several targets: the
    processes would wait for other sizes and end. Those without rows take type and shape from the others.
    """
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return
    states = [
        (metric, name)
        for metric in metrics
        if metric.distributed_available_fn is not None and metric.distributed_available_fn()
        for name, state in metric.metric_state.items()
        if isinstance(state, list)
    ]
    if not states:
        return
    rows_of = [getattr(metric, name) for metric, name in states]
    layouts = of_processes([(rows[0].dtype, rows[0].shape[1:]) if rows else None for rows in rows_of])
    for (metric, _), rows, everywhere in zip(states, rows_of, zip(*layouts, strict=True), strict=True):
        if not rows and (layout := next(filter(None, everywhere), None)):
            rows.append(torch.empty((0, *layout[1]), dtype=layout[0], device=metric.device))


def share_buffers(module: nn.Module) -> None:
    """Give every process the buffers of the first one, which are those that a checkpoint has.

    Each process gathers the statistics of its own graphs in batch norms. A validation by all processes is about the
    weights that are written only where they evaluate with the same statistics.
    """
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return
    for buffer in module.buffers():
        # A collective needs contiguous memory, and an expanded buffer has none of its own.
        whole = buffer.detach().contiguous()
        distributed.broadcast(whole, src=0)
        buffer.detach().copy_(whole)


def shape_for_shards(module: nn.Module) -> None:
    """Give parameters that are single numbers the shape `[1]`, since FSDP shards no others.

    PyTorch loads such a number of a checkpoint into a model that has it without a dimension.

    Examples:
        >>> module = nn.Module()
        >>> module.gamma = nn.Parameter(torch.tensor(0.5))
        >>> shape_for_shards(module)
        >>> module.gamma.shape
        torch.Size([1])
    """
    for parameter in module.parameters():
        if parameter.dim() == 0:
            parameter.data = parameter.data.reshape(1)


@contextlib.contextmanager
def whole_parameters(trainer: pl.Trainer) -> Iterator[None]:
    """Give every process all parameters, of which FSDP leaves it a share; entered by all processes or by none.

    Whoever runs layers past Lightning's steps needs it, since the model that FSDP wraps gathers them for these alone.
    """
    model = trainer.strategy.model
    if not isinstance(model, FullyShardedDataParallel):
        yield
        return
    with FullyShardedDataParallel.summon_full_params(model, writeback=False):
        yield


def unshard(root: FullyShardedDataParallel) -> None:
    """Give the module in a wrapper of FSDP its whole parameters, in memory, and its parts without wrappers.

    Every process takes part. One wrapper after the other is gathered, so that a device never holds all of them.
    """
    module = root.module
    for wrapper in FullyShardedDataParallel.fsdp_modules(root):
        with FullyShardedDataParallel.summon_full_params(wrapper, recurse=False, writeback=False):
            whole: dict[int, nn.Parameter] = {}  # one that two parts share stays one
            places = []
            for part in _unwrapped(wrapper.module):
                for name, value in part.named_parameters(recurse=False):
                    copied = nn.Parameter(value.detach().cpu().clone(), value.requires_grad)
                    places.append((part, name, whole.setdefault(id(value), copied)))
        for part, name, parameter in places:
            part.register_parameter(name, parameter)
    for part in list(module.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, FullyShardedDataParallel):
                part.register_module(name, child.module)


def _unwrapped(module: nn.Module) -> Iterator[nn.Module]:
    """Yield a module and the parts of it that have no wrapper of their own."""
    yield module
    for child in module.children():
        if not isinstance(child, FullyShardedDataParallel):
            yield from _unwrapped(child)


def unshard_at_the_end(trainer: pl.Trainer) -> None:
    """Make a model that FSDP shards whole when the trainer is done with it.

    Lightning leaves it in shards, which the next loop would take for whole parameters: the validation behind a fit
    ended in "'weight' must be 2-D", or left parameters of the outermost wrapper as they were.
    """
    strategy = trainer.strategy
    teardown = type(strategy).teardown

    def whole() -> None:
        root = strategy.model
        # Where this process was interrupted the others may not take part.
        if isinstance(root, FullyShardedDataParallel) and trainer.state.status != TrainerStatus.INTERRUPTED:
            unshard(root)
            strategy.model = strategy.lightning_module
        teardown(strategy)

    strategy.teardown = whole  # type: ignore[method-assign]


def idle_parameters(module: nn.Module, loss: Callable[[GraphBatch], Tensor], batch: GraphBatch) -> list[str]:
    """Names of trainable parameters to which no gradient of `loss(batch)` leads.

    Gradients, buffers and random generators stay as they are.

    Examples:
        >>> class Layers(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.used, self.idle = nn.Linear(2, 1), nn.Linear(2, 1)
        >>> layers, batch = Layers(), GraphBatch(x_dense=torch.ones(3, 2))
        >>> idle_parameters(layers, lambda graphs: layers.used(graphs.x_dense).sum(), batch)
        ['idle.weight', 'idle.bias']
    """
    named = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    # In evaluation mode: statistics of batch norms must not change, nor be asked of a single graph.
    with torch.random.fork_rng(), torch.enable_grad(), evaluating(module):
        value = loss(batch)
        if not value.requires_grad:
            return list(named)
        # Not `backward`: it would add to gradients, and run the hooks of whoever watches them.
        gradients = torch.autograd.grad(value, list(named.values()), allow_unused=True)
    return [name for name, gradient in zip(named, gradients, strict=True) if gradient is None]


def poorest(table: GraphTable) -> GraphBatch:
    """Return the graph with the fewest nodes, then edges, as a batch: it asks for the least of a model."""
    nodes, edges = table.num_nodes, table.num_edges
    return table.batch([int((nodes * (int(edges.max()) + 1) + edges).argmin())])


def expect_idle(module: pl.LightningModule, loss: Callable[[GraphBatch], Tensor], trainer: pl.Trainer) -> None:
    """Let DDP look for parameters without a gradient where the model has some; it logs that there are some.

    The last layers of models that update edges have such parameters wherever the head reads nodes. They belong to the
    published counts, so they stay, and plain DDP would wait for their gradients and fail at the second step. To look
    for them costs a walk over the graph of every backward pass, so models without any are spared. A strategy that
    stands in a configuration has every option of DDP, so `find_unused_parameters: false` there is nobody's decision.
    Without a benchmark that is set up DDP looks.
    """
    strategy = trainer.strategy
    assert isinstance(strategy, DDPStrategy)
    options = ddp_options(strategy)
    if options.get("find_unused_parameters") or options.get("static_graph"):
        return
    data: Any = getattr(trainer, "datamodule", None)
    if not (tables := getattr(data, "tables", None)):
        options.setdefault("find_unused_parameters", True)
        return
    batch = data.on_before_batch_transfer(poorest(tables["train"]), 0)
    idle = idle_parameters(module, loss, data.on_after_batch_transfer(batch, 0))
    options["find_unused_parameters"] = bool(idle)
    if idle and trainer.is_global_zero:
        log.info("%d parameters get no gradient, such as %s: DDP is told not to wait for them.", len(idle), idle[0])


def suit_strategy(
    module: pl.LightningModule, loss: Callable[[GraphBatch], Tensor], trainer: pl.Trainer, stage: str
) -> None:
    """Set up what DDP and FSDP need of a model before they wrap it."""
    if stage == "fit" and isinstance(trainer.strategy, DDPStrategy):
        expect_idle(module, loss, trainer)
    if isinstance(trainer.strategy, FSDPStrategy):
        shape_for_shards(module)
        unshard_at_the_end(trainer)
