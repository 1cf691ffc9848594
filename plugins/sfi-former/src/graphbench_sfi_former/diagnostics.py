"""Inspect the flows of a model: their sparsity, gradients during training, and steps of the iteration.

Legend: S numbers of steps, H heads, n nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import FSDPStrategy
from torch import Tensor, nn

from graphbench import BenchmarkModule, GraphBatch, LayerTrace
from graphbench.callbacks import DiagnosticTable
from graphbench.diagnostics import Recording, attention_row_sum, attention_zeros, record
from graphbench.errors import BadInput, check_range
from graphbench.nn import gcn_edges
from graphbench_sfi_former.attention import sparse_flow_weights
from graphbench_sfi_former.enhanced import AdjacencyEnhancedAttention, PaddedGraphs
from graphbench_sfi_former.layers import SparseFlowAttention
from graphbench_sfi_former.reference import ProximalOptions
from graphbench_sfi_former.sparse_flow import check_mask


class FlowStatistics(NamedTuple):
    """Sparsity of attention matrices.

    Args:
        zero_share: share of exact zeros among the allowed keys of each matrix `[...]`; NaN without any.
        row_sum: sum of each row `[..., N]`; 1 under the hard constraint, a little less under the penalty.

    Examples:
        >>> flow_statistics(torch.eye(2))
        FlowStatistics(zero_share=tensor(0.5000), row_sum=tensor([1., 1.]))
    """

    zero_share: Tensor
    row_sum: Tensor


@torch.no_grad()
def flow_statistics(flow: Tensor, mask: Tensor | None = None) -> FlowStatistics:
    """Measure zeros and row sums of flows `[..., N, K]`.

    Args:
        flow: attention matrices, as from `sparse_flow`.
        mask: boolean, broadcastable to `flow`; True where a key is allowed. Other keys are ignored.

    Raises:
        BadInput: the mask is not boolean or does not match.

    Examples:
        >>> flow_statistics(torch.tensor([[0.5, 0.5], [1.0, 0.0]])).zero_share
        tensor(0.2500)
    """
    if mask is None:
        zeros = flow == 0
        return FlowStatistics(zeros.to(flow.dtype).mean((-2, -1)), flow.sum(-1))
    check_mask(mask, tuple(flow.shape))
    allowed = mask.expand(flow.shape)
    zeros = (flow == 0) & allowed
    # Cast first: a quotient of integers is float32 even for flows in float64.
    precision = torch.promote_types(flow.dtype, torch.float32)
    share = zeros.sum((-2, -1)).to(precision) / allowed.sum((-2, -1))
    return FlowStatistics(share.to(flow.dtype), torch.where(allowed, flow, 0.0).sum(-1))


#: Columns of the table of `FlowSparsity`; the last one is per layer.
_MEASURES = ("zeros", "row_sum", "gamma")


class FlowSparsity(pl.Callback):
    """Share of exact zeros and row sums of the attention matrices, by layer and head, at every validation.

    The paper (section 5.1) reports about 20% of zeros on PascalVOC-SP and COCO-SP and 5% on the other LRGB sets. The
    first batches of the validation split are traced during validation, so no graph is run twice; means are over their
    graphs. Works with every model that records its attention; softmax attention has no zeros and row sums of 1.

    Logs `flow_sparsity/zeros/layer_L_head_H`, `flow_sparsity/row_sum/layer_L_head_H` and, for layers with a balance
    between adjacency matrix and flow, `flow_sparsity/gamma/layer_L`; during a fit they are also the rows of
    `diagnostics/flow_sparsity.csv`, one for each head.

    Args:
        num_batches: validation batches to trace, on each process.
        every_n_epochs: trace validation once in this many epochs of a fit; a separate validation is always traced.

    Raises:
        BadInput: a number is not positive.

    Examples:
        >>> FlowSparsity(num_batches=2).every_n_epochs
        1
    """

    def __init__(self, num_batches: int = 4, every_n_epochs: int = 1) -> None:
        for name, number in (("num_batches", num_batches), ("every_n_epochs", every_n_epochs)):
            check_range(f"FlowSparsity: {name}", number, at_least=1, whole=True)
        self.num_batches, self.every_n_epochs = num_batches, every_n_epochs
        self._recording: Recording | None = None
        self._listening = ExitStack()
        self._table = DiagnosticTable("flow_sparsity", ["layer", "head", *_MEASURES])
        self._sums: dict[str, Tensor] = {}  # of this validation: the sum over graphs, and their number

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the table, or continue that of a resumed run."""
        self._table.start(trainer)

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Trace this batch, if it is one of the first."""
        turn = trainer.state.fn != "fit" or (trainer.current_epoch + 1) % self.every_n_epochs == 0
        if not turn or trainer.sanity_checking or batch_idx >= self.num_batches:
            return
        if not isinstance(pl_module, BenchmarkModule):
            raise BadInput(f"FlowSparsity needs a BenchmarkModule, but the trainer has a {type(pl_module).__name__}.")
        self._recording = self._listening.enter_context(record(pl_module.architecture))

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: GraphBatch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Add the measures of the graphs of this batch to the sums."""
        if self._recording is None:
            return
        self._listening.close()
        for trace in self._recording:
            for name, values in _of_graphs(trace).items():
                defined = values[values.isfinite()].float()
                sums = torch.stack((defined.sum(), torch.full_like(defined.sum(), len(defined))))
                self._sums[name] = self._sums[name] + sums if name in self._sums else sums
        self._recording = None

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log means over the graphs of all processes, and add a row of the table for each head."""
        sums, self._sums = self._sums, {}
        if not sums:
            return
        # Not by `sync_dist`, which divides weights of processes as integers: shares of unequal size would be wrong.
        total, count = trainer.strategy.reduce(torch.stack([*sums.values()]), reduce_op="sum").unbind(1)
        means = dict(zip(sums, total / count, strict=True))
        pl_module.log_dict(means)
        if trainer.state.fn != "fit":
            return
        rows: dict[tuple[int, int], dict[str, Any]] = {}
        for name in sorted(name for name in means if "_head_" in name):
            measure, place = name.split("/")[1:]
            layer, head = (int(number) for number in place.removeprefix("layer_").split("_head_"))
            gamma = means.get(f"flow_sparsity/gamma/layer_{layer}")
            row = rows.setdefault((layer, head), {"layer": layer, "head": head})
            row |= {measure: float(means[name]), "gamma": "" if gamma is None else float(gamma)}
        self._table.add(trainer, trainer.current_epoch + 1, (rows[place] for place in sorted(rows)))

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Stop tracing."""
        self._listening.close()
        self._recording, self._sums = None, {}


@torch.no_grad()
def flow_measures(trace: LayerTrace) -> dict[str, Tensor]:
    """Measure zeros, row sums and gamma of one layer: means over graphs, by the name under which they are logged.

    Args:
        trace: trace of a layer; without attention matrices there are no zeros and no row sums.
    """
    return {name: values.nanmean() for name, values in _of_graphs(trace).items()}


def _of_graphs(trace: LayerTrace) -> dict[str, Tensor]:
    """Return measures of each graph `[G]`, by the name under which they are logged; gamma is one number `[1]`."""
    values: dict[str, Tensor] = {}
    for name, measure in (("zeros", attention_zeros), ("row_sum", attention_row_sum)):
        for head, of_graphs in enumerate(measure(trace.attention).unbind(1) if trace.attention else ()):
            values[f"flow_sparsity/{name}/layer_{trace.layer}_head_{head}"] = of_graphs
    if trace.mixing_weight is not None:
        values[f"flow_sparsity/gamma/layer_{trace.layer}"] = trace.mixing_weight.detach().reshape(1)
    return values


class GradientNorm(pl.Callback):
    """Write the norm of all gradients at every optimizer step, before clipping, to `diagnostics/gradient_norm.csv`.

    A norm that jumps by orders of magnitude from one step to the next is a sign of overflow or cancellation, which
    clipping hides from the loss.

    Examples:
        >>> from graphbench_sfi_former import GradientNorm
        >>> GradientNorm().columns
        ('epoch', 'step', 'norm')
    """

    def __init__(self) -> None:
        self._table = DiagnosticTable("gradient_norm", ["norm"])

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table: epochs finished, number of the step (from 1), norm."""
        return self._table.columns

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the table, or continue that of a resumed run."""
        self._table.start(trainer)

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Add a row; Lightning clips after this."""
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients) if gradients else torch.zeros((), device=pl_module.device)
        if isinstance(trainer.strategy, FSDPStrategy):  # each process has a share of the gradients
            norm = trainer.strategy.reduce(norm.square(), reduce_op="sum").sqrt()
        self._table.add(trainer, trainer.current_epoch, [{"norm": float(norm)}], step=trainer.global_step + 1)


@dataclass(frozen=True)
class FlowSteps:
    """Attention of one layer in one graph.

    Args:
        layer: number of the layer, counted from 0.
        steps: numbers of steps, ascending; 0 is the start. Empty for a layer without friction.
        flows: Z after these steps `[S, H, n, n]`; entries may be negative before the iteration has converged.
        weights: `[H, n, n]`, the exact flow, the limit of the iteration; softmax attention in a layer without friction.
        enhanced: `(A~ + gamma Z) / (1 + gamma)` of these weights, as in equation (13) `[H, n, n]`.

    Examples:
        >>> exact = torch.tensor([[[0.0, 2.0], [2.0, 0.0]]])
        >>> FlowSteps(0, (0, 5), torch.stack([0 * exact, exact / 2]), exact, exact).errors
        tensor([[1.0000],
                [0.5000]])
    """

    layer: int
    steps: tuple[int, ...]
    flows: Tensor
    weights: Tensor
    enhanced: Tensor

    @property
    def errors(self) -> Tensor:
        """`||Z_t - Z|| / ||Z||` in the Frobenius norm, after each number of steps `[S, H]`."""
        distance, norm = (torch.linalg.matrix_norm(x) for x in (self.flows - self.weights, self.weights))
        return distance / norm.clamp_min(torch.finfo(norm.dtype).tiny)


@torch.no_grad()
def flow_steps(
    model: nn.Module, batch: GraphBatch, steps: Sequence[int], options: ProximalOptions | None = None
) -> list[FlowSteps]:
    """Return the attention of every layer of a model, exact and after given numbers of steps of the iteration.

    Args:
        model: model with layers of this package, in evaluation mode, on any device.
        batch: one graph with the encodings that the model needs.
        steps: numbers of steps of the iteration, 0 or more.
        options: start, step length and seed; `num_steps` is not read.

    Raises:
        BadInput: several graphs, no numbers or a number below 0, a model without such layers or in training mode, or a
            layer without alpha, whose flow the iteration cannot compute.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> from graphbench_sfi_former import SFiFormer
        >>> model = SFiFormer(tiny_spec(), hidden_dim=8, num_layers=2, num_heads=2).eval()
        >>> layers = flow_steps(model, tiny_batch(model, num_graphs=1), steps=[0, 1, 10])
        >>> [(layer.layer, layer.steps, layer.flows.shape[:2]) for layer in layers]
        [(0, (0, 1, 10), torch.Size([3, 2])), (1, (0, 1, 10), torch.Size([3, 2]))]
    """
    if batch.num_graphs != 1:
        raise BadInput(f"flow_steps needs one graph, but the batch has {batch.num_graphs}.")
    if not steps:
        raise BadInput("steps of flow_steps must contain at least one number of steps (0 or more), but is empty.")
    for number in steps:
        check_range("steps of flow_steps", number, at_least=0, whole=True)
    if model.training:
        raise BadInput("flow_steps needs a model in evaluation mode: call model.eval() first.")
    with _record_inputs(model) as recorded:
        model(batch)
    if not recorded:
        raise BadInput(f"{type(model).__name__} has no attention of SFi-Former or DFi-Former to inspect.")
    ascending, chosen = tuple(sorted(set(steps))), options or ProximalOptions()
    return [
        _steps_of(number, layer, graphs, batch, ascending, chosen) for number, (layer, graphs) in enumerate(recorded)
    ]


@contextlib.contextmanager
def _record_inputs(model: nn.Module) -> Iterator[list[tuple[AdjacencyEnhancedAttention, PaddedGraphs]]]:
    """Record the layers with a flow and their inputs to `mix`, in the order in which the model runs them."""
    recorded: list[tuple[AdjacencyEnhancedAttention, PaddedGraphs]] = []
    layers = [module for module in model.modules() if isinstance(module, AdjacencyEnhancedAttention)]

    def wrap(layer: AdjacencyEnhancedAttention) -> None:
        mix = layer.mix

        def recording_mix(graphs: PaddedGraphs) -> Tensor:
            recorded.append((layer, graphs))
            return mix(graphs)

        layer.mix = recording_mix  # type: ignore[method-assign]

    for layer in layers:
        wrap(layer)
    try:
        yield recorded
    finally:
        for layer in layers:
            del layer.mix  # restores the method of the class


def _steps_of(
    number: int,
    layer: AdjacencyEnhancedAttention,
    graphs: PaddedGraphs,
    batch: GraphBatch,
    steps: tuple[int, ...],
    options: ProximalOptions,
) -> FlowSteps:
    """Return the steps of one layer, without dropout."""
    if isinstance(layer, SparseFlowAttention):
        weights, flows = _flows(layer, graphs, steps, options)
    else:
        weights, steps = layer.weights(graphs)[0], ()
        flows = weights.new_zeros(0, *weights.shape)
    return FlowSteps(number, steps, flows, weights, _enhanced(layer, weights, batch))


def _flows(
    layer: SparseFlowAttention, graphs: PaddedGraphs, steps: tuple[int, ...], options: ProximalOptions
) -> tuple[Tensor, Tensor]:
    """Compute the exact flow `[H, n, n]`, and that after each number of steps `[S, H, n, n]`."""
    if layer.alpha is None:
        raise BadInput("The iteration needs alpha: a model whose rows sum to one exactly (alpha: null) has no steps.")
    if layer.friction_proj is None:
        raise BadInput("flow_steps needs layers that learn their friction (friction: learned), but this one does not.")
    query, key, _, friction_query, friction_key = graphs.maps
    maps = query, key, friction_query, friction_key
    penalty = layer.weight_of_friction(graphs)

    def after(number: int) -> Tensor:
        # Each number starts over: continuing from the last one would also need its step length.
        solver = options.start_of if number == 0 else replace(options, num_steps=number).solve
        return sparse_flow_weights(*maps, penalty, layer.alpha, graphs.mask, solver)[0]

    exact = sparse_flow_weights(*maps, penalty, layer.alpha, graphs.mask)[0]
    return exact, torch.stack([after(number) for number in steps])


def _enhanced(layer: AdjacencyEnhancedAttention, weights: Tensor, batch: GraphBatch) -> Tensor:
    """Compute `(w A~ + gamma Z) / (1 + gamma)`, or Z if the layer has no A~."""
    if not layer.with_adjacency:
        return weights
    edges, entries = gcn_edges(batch.edge_index, weights.shape[-1], weights.dtype)
    near = weights.new_zeros(weights.shape[-2:]).index_put((edges[1], edges[0]), entries, accumulate=True)
    if layer.adjacency_weight is not None:
        near = near * layer.adjacency_weight
    gamma = layer.gamma
    assert gamma is not None  # a layer with a flow and A~ balances them
    return (near + gamma * weights) / (1 + gamma)
