"""Train on several processes: gather and sum over ranks, whole parameters under FSDP, unused parameters under DDP."""

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

_Object = TypeVar("_Object")


def _has_group() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def sum_over_ranks(sums: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, int]:
    """Sum the detached terms of a loss `[groups]` over all ranks; also return the number of ranks.

    Examples:
        >>> sum_over_ranks(torch.tensor([3.0]), torch.tensor([4]))
        (tensor([3.]), tensor([4]), 1)
    """
    if not _has_group():
        return sums, counts, 1
    both = torch.stack((sums.double(), counts.double()))  # float64 is exact for counts of any batch
    distributed.all_reduce(both)
    return both[0], both[1], distributed.get_world_size()


def gather_objects(mine: _Object) -> list[_Object]:
    """Gather one object from every rank, in the order of ranks; all ranks must call this.

    Examples:
        >>> gather_objects((2, 0.5))
        [(2, 0.5)]
    """
    if not _has_group():
        return [mine]
    gathered = [mine] * distributed.get_world_size()
    distributed.all_gather_object(gathered, mine)
    return gathered


def agree_on_rows(metrics: Iterable[Metric]) -> None:
    """Give list states of metrics an empty tensor on ranks without rows, whose graphs may all lack a label.

    torchmetrics would gather an empty list as one-dimensional float32, which fits neither classes nor several targets,
    and the ranks would hang. Ranks without rows use dtype and shape of the others.
    """
    if not _has_group() or distributed.get_world_size() == 1:
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
    layouts = gather_objects([(rows[0].dtype, rows[0].shape[1:]) if rows else None for rows in rows_of])
    for (metric, _), rows, by_rank in zip(states, rows_of, zip(*layouts, strict=True), strict=True):
        if not rows and (layout := next(filter(None, by_rank), None)):
            rows.append(torch.empty((0, *layout[1]), dtype=layout[0], device=metric.device))


def broadcast_buffers(module: nn.Module) -> None:
    """Broadcast the buffers of rank 0, which are those of the checkpoint.

    On each rank batch norms collect the statistics of its own graphs. Validation scores are those of the checkpoint
    only if all ranks evaluate with the checkpoint's statistics.
    """
    if not _has_group() or distributed.get_world_size() == 1:
        return
    for buffer in module.buffers():
        # A collective needs contiguous memory, which a transposed buffer does not have.
        whole = buffer.detach().contiguous()
        distributed.broadcast(whole, src=0)
        buffer.detach().copy_(whole)


def reshape_scalars(module: nn.Module) -> None:
    """Reshape scalar parameters to `[1]`, since FSDP cannot shard scalars; PyTorch loads them back into scalars.

    Examples:
        >>> module = nn.Module()
        >>> module.gamma = nn.Parameter(torch.tensor(0.5))
        >>> reshape_scalars(module)
        >>> module.gamma.shape
        torch.Size([1])
    """
    for parameter in module.parameters():
        if parameter.dim() == 0:
            parameter.data = parameter.data.reshape(1)


@contextlib.contextmanager
def whole_parameters(trainer: pl.Trainer) -> Iterator[None]:
    """Gather the parameters that FSDP shards, for code that runs layers outside Lightning's steps.

    All ranks must enter the block.
    """
    model = trainer.strategy.model
    if not isinstance(model, FullyShardedDataParallel):
        yield
        return
    with FullyShardedDataParallel.summon_full_params(model, writeback=False):
        yield


def unshard(root: FullyShardedDataParallel) -> None:
    """Replace FSDP's wrappers and shards in a module by its parts and whole parameters, on the CPU.

    All ranks must call this. Wrappers are gathered one by one, so that no device needs memory for all parameters.
    """
    module = root.module
    for wrapper in FullyShardedDataParallel.fsdp_modules(root):
        with FullyShardedDataParallel.summon_full_params(wrapper, recurse=False, writeback=False):
            whole: dict[int, nn.Parameter] = {}  # a parameter shared by two parts stays shared
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
    """Yield a module and those of its parts that have no separate wrapper."""
    yield module
    for child in module.children():
        if not isinstance(child, FullyShardedDataParallel):
            yield from _unwrapped(child)


def unshard_at_teardown(trainer: pl.Trainer) -> None:
    """Unshard the model when the trainer tears its strategy down.

    Lightning leaves it in shards, which the next loop takes for whole parameters: the validation after a fit failed
    with "'weight' must be 2-D", or did not update parameters of the outermost wrapper.
    """
    strategy = trainer.strategy
    teardown = type(strategy).teardown

    def unshard_first() -> None:
        root = strategy.model
        # After an interrupt the other ranks may not participate.
        if isinstance(root, FullyShardedDataParallel) and trainer.state.status != TrainerStatus.INTERRUPTED:
            unshard(root)
            strategy.model = strategy.lightning_module
        teardown(strategy)

    strategy.teardown = unshard_first  # type: ignore[method-assign]


def unused_parameters(module: nn.Module, loss: Callable[[GraphBatch], Tensor], batch: GraphBatch) -> list[str]:
    """Return the names of trainable parameters that get no gradient from `loss(batch)`.

    Gradients, buffers and random generators are not changed.

    Examples:
        >>> class Layers(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.used, self.idle = nn.Linear(2, 1), nn.Linear(2, 1)
        >>> layers, batch = Layers(), GraphBatch(x_dense=torch.ones(3, 2))
        >>> unused_parameters(layers, lambda graphs: layers.used(graphs.x_dense).sum(), batch)
        ['idle.weight', 'idle.bias']
    """
    named = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    # In evaluation mode: statistics of batch norms must not change, and a single graph may have none.
    with torch.random.fork_rng(), torch.enable_grad(), evaluating(module):
        value = loss(batch)
        if not value.requires_grad:
            return list(named)
        # Not `backward`: it would accumulate gradients and run their hooks.
        gradients = torch.autograd.grad(value, list(named.values()), allow_unused=True)
    return [name for name, gradient in zip(named, gradients, strict=True) if gradient is None]


def smallest_graph(table: GraphTable) -> GraphBatch:
    """Return the graph with the fewest nodes, then fewest edges, as a batch."""
    nodes, edges = table.num_nodes, table.num_edges
    return table.batch([int((nodes * (int(edges.max()) + 1) + edges).argmin())])


def set_unused_parameters(
    module: pl.LightningModule, loss: Callable[[GraphBatch], Tensor], trainer: pl.Trainer
) -> None:
    """Set DDP's `find_unused_parameters` if the model has such parameters, and log that.

    The last layers of models that update edges have unused parameters if the head reads nodes. They belong to the
    published counts, so they stay, and plain DDP would fail at the second step. To find them DDP traverses the graph
    of every backward pass, so the option is off for models without any. A strategy in a configuration lists every DDP
    option, so `find_unused_parameters: false` there is not a user's choice. Without an open benchmark the option is on.
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
    # The smallest graph needs the least memory.
    batch = data.on_before_batch_transfer(smallest_graph(tables["train"]), 0)
    unused = unused_parameters(module, loss, data.on_after_batch_transfer(batch, 0))
    options["find_unused_parameters"] = bool(unused)
    if unused and trainer.is_global_zero:
        log.info("%d parameters get no gradient, such as %s: DDP will not wait for them.", len(unused), unused[0])


def prepare_strategy(
    module: pl.LightningModule, loss: Callable[[GraphBatch], Tensor], trainer: pl.Trainer, stage: str
) -> None:
    """Prepare model and strategy before DDP or FSDP wraps the model."""
    if stage == "fit" and isinstance(trainer.strategy, DDPStrategy):
        set_unused_parameters(module, loss, trainer)
    if isinstance(trainer.strategy, FSDPStrategy):
        reshape_scalars(module)
        unshard_at_teardown(trainer)
