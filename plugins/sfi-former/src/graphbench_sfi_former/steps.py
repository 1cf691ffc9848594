"""The flow after single steps of the paper's iteration, of the attention of a trained model (figure 4).

A model is run once on one graph; what its layers have projected there, Q, K, Q~ and K~, is then solved again, from the
start of the iteration on, by as many steps as are asked for. So all numbers of steps see the same resistances and
frictions, whichever solver the model was trained with.

Legend: S numbers of steps, H heads, n nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from graphbench import GraphBatch
from graphbench.errors import BadInput, check_range
from graphbench_sfi_former.adjacency import adjacency_dtype, adjacency_of
from graphbench_sfi_former.attention import sparse_flow_weights
from graphbench_sfi_former.enhanced import AdjacencyEnhancedAttention, PaddedGraphs
from graphbench_sfi_former.iteration import ProximalOptions
from graphbench_sfi_former.layers import SparseFlowAttention


@dataclass(frozen=True)
class FlowSteps:
    """Attention of one layer in one graph.

    Args:
        layer: number of the layer, counted from 0.
        steps: numbers of steps, ascending; 0 is the start. None of them for a layer without friction.
        flows: Z after these `[S, H, n, n]`, entries of which may be negative before the iteration has converged.
        weights: `[H, n, n]`, the exact flow, where the iteration leads; softmax attention in a layer without friction.
        enhanced: `(A~ + gamma Z) / (1 + gamma)` of these weights, as equation (13) has it `[H, n, n]`.

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
        away, whole = (torch.linalg.matrix_norm(x) for x in (self.flows - self.weights, self.weights))
        return away / whole.clamp_min(torch.finfo(whole.dtype).tiny)


@torch.no_grad()
def flow_steps(
    model: nn.Module, batch: GraphBatch, steps: Sequence[int], options: ProximalOptions | None = None
) -> list[FlowSteps]:
    """Attention of every layer of a model, and that after single steps of the iteration.

    Args:
        model: with layers of this package, in evaluation mode; it may lie on any device.
        batch: one graph, with the encodings that the model needs.
        steps: numbers of steps of the iteration, 0 or more.
        options: start, length of a step and seed; `num_steps` is not read.

    Raises:
        BadInput: several graphs, no numbers or one below 0, a model without such layers or in training mode, or a layer
            without alpha, whose flow the iteration does not find.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> from graphbench_sfi_former import SFiFormer
        >>> model = SFiFormer(tiny_spec(), hidden_dim=8, num_layers=2, num_heads=2).eval()
        >>> found = flow_steps(model, tiny_batch(model, num_graphs=1), steps=[0, 1, 10])
        >>> [(layer.layer, layer.steps, layer.flows.shape[:2]) for layer in found]
        [(0, (0, 1, 10), torch.Size([3, 2])), (1, (0, 1, 10), torch.Size([3, 2]))]
    """
    if batch.num_graphs != 1:
        raise BadInput(f"flow_steps takes one graph, but the batch has {batch.num_graphs}.")
    if not steps:
        raise BadInput("steps of flow_steps must be numbers of steps from 0 on, but there are none.")
    for number in steps:
        check_range("steps of flow_steps", number, at_least=0, whole=True)
    if model.training:
        raise BadInput("flow_steps looks at a model in evaluation mode: call model.eval() first.")
    with _listening(model) as heard:
        model(batch)
    if not heard:
        raise BadInput(f"{type(model).__name__} has no attention of SFi-Former or DFi-Former to look at.")
    ascending, chosen = tuple(sorted(set(steps))), options or ProximalOptions()
    return [_steps_of(number, layer, graphs, batch, ascending, chosen) for number, (layer, graphs) in enumerate(heard)]


@contextlib.contextmanager
def _listening(model: nn.Module) -> Iterator[list[tuple[AdjacencyEnhancedAttention, PaddedGraphs]]]:
    """Layers with a flow and what their matrices are made of, in the order in which the model runs them."""
    heard: list[tuple[AdjacencyEnhancedAttention, PaddedGraphs]] = []
    layers = [module for module in model.modules() if isinstance(module, AdjacencyEnhancedAttention)]

    def wrapped(layer: AdjacencyEnhancedAttention) -> None:
        mix = layer.mix

        def heard_mix(graphs: PaddedGraphs) -> Tensor:
            heard.append((layer, graphs))
            return mix(graphs)

        layer.mix = heard_mix  # type: ignore[method-assign]

    for layer in layers:
        wrapped(layer)
    try:
        yield heard
    finally:
        for layer in layers:
            del layer.mix  # the method of the class is there again


def _steps_of(
    number: int,
    layer: AdjacencyEnhancedAttention,
    graphs: PaddedGraphs,
    batch: GraphBatch,
    steps: tuple[int, ...],
    options: ProximalOptions,
) -> FlowSteps:
    """One layer; dropout plays no part."""
    if isinstance(layer, SparseFlowAttention):
        weights, flows = _flows(layer, graphs, steps, options)
    else:
        weights, steps = layer.weights(graphs)[0], ()
        flows = weights.new_zeros(0, *weights.shape)
    return FlowSteps(number, steps, flows, weights, _enhanced(layer, weights, batch))


def _flows(
    layer: SparseFlowAttention, graphs: PaddedGraphs, steps: tuple[int, ...], options: ProximalOptions
) -> tuple[Tensor, Tensor]:
    """The exact flow `[H, n, n]`, and that after each number of steps `[S, H, n, n]`."""
    if layer.alpha is None:
        raise BadInput("The iteration needs alpha: a model whose rows sum to one exactly (alpha: null) has no steps.")
    if layer.friction_proj is None:
        raise BadInput("flow_steps takes layers that learn their friction, but this one is given it.")
    query, key, _, friction_query, friction_key = graphs.maps
    maps = query, key, friction_query, friction_key
    penalty = layer.weight_of_friction(graphs)

    def after(number: int) -> Tensor:
        solver = options.start_of if number == 0 else replace(options, num_steps=number).solve
        return sparse_flow_weights(*maps, penalty, layer.alpha, graphs.mask, solver)[0]

    exact = sparse_flow_weights(*maps, penalty, layer.alpha, graphs.mask)[0]
    return exact, torch.stack([after(number) for number in steps])


def _enhanced(layer: AdjacencyEnhancedAttention, weights: Tensor, batch: GraphBatch) -> Tensor:
    """`(w A~ + gamma Z) / (1 + gamma)`, or Z where the layer has no A~."""
    if not layer.with_adjacency:
        return weights
    near = adjacency_of(batch, adjacency_dtype(weights)).matrix.to_dense().to(weights.dtype)
    if layer.adjacency_weight is not None:
        near = near * layer.adjacency_weight
    gamma = layer.gamma
    assert gamma is not None  # a layer with a flow and A~ balances them
    return (near + gamma * weights) / (1 + gamma)
