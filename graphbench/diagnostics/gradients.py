"""Measure how the gradients of the loss reach each layer, and how far a layer's weights stretch some directions.

Together with capacity, rank and range they show the effects of depth: gradients that vanish or explode from layer to
layer, and layers whose weights are nearly singular.

Legend: X_l the input tokens of layer l, of all graphs one after another `[T, dim]`; L the loss, a sum over rows (nodes,
edges or graphs) to which each graph contributes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphbench.contracts.devices import as_double
from graphbench.diagnostics.ragged import norm_per_graph
from graphbench.diagnostics.recording import Recording
from graphbench.diagnostics.summary import LayerSummary, Summary


def gradient_norms_per_graph(loss: Tensor, tokens: Sequence[Tensor], batches: Sequence[Tensor]) -> list[Tensor | None]:
    """Compute `||dL / dX_l||_F` over the tokens of each graph, for several layers with one backward pass.

    If the model does not mix graphs, a graph's norm is that of its part of the loss, independent of other graphs.

    Args:
        loss: L, a scalar.
        tokens: X_l of each layer, `[T, dim]`, tensors of the forward pass that computed the loss.
        batches: graph of each token of each layer, `[T]`.

    Returns:
        float64 `[G]` for each layer; None if the loss does not depend on its tokens.

    Examples:
        >>> x = torch.tensor([[3.0, 4.0], [1.0, 0.0]], requires_grad=True)
        >>> y = 2 * x
        >>> gradient_norms_per_graph(y.square().sum() / 2, [x, y], [torch.tensor([0, 1])] * 2)
        [tensor([20.,  4.], dtype=torch.float64), tensor([10.,  2.], dtype=torch.float64)]
    """
    reached = [number for number, layer in enumerate(tokens) if layer.requires_grad]
    norms: list[Tensor | None] = [None] * len(tokens)
    if not reached or not loss.requires_grad:
        return norms
    gradients = torch.autograd.grad(loss, [tokens[number] for number in reached], allow_unused=True)
    for number, gradient in zip(reached, gradients, strict=True):
        if gradient is not None:
            rows = as_double(gradient)
            batch = batches[number].to(rows.device)
            norms[number] = norm_per_graph(rows, batch, int(batch.max()) + 1 if len(batch) else 0)
    return norms


def weight_condition(module: nn.Module) -> float:
    """Return the largest condition number `sigma_1 / sigma_min(m, n)` among the weight matrices `[m, n]` of a module.

    Embeddings, norms and other tensors that are not matrices are skipped. Infinity for a singular matrix, NaN without a
    matrix or if a weight is not finite.

    Examples:
        >>> layer = nn.Linear(2, 2)
        >>> _ = layer.weight.data.copy_(torch.tensor([[4.0, 0.0], [0.0, 0.5]]))
        >>> weight_condition(nn.Sequential(layer, nn.LayerNorm(2)))
        8.0
    """
    embedded = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    matrices = [weight for weight in module.parameters() if weight.dim() == 2 and id(weight) not in embedded]
    weights = [as_double(weight.detach()) for weight in matrices if weight.numel()]
    # LAPACK fails on NaN, and `max` of numbers with NaN depends on their order.
    if not weights or not all(bool(weight.isfinite().all()) for weight in weights):
        return math.nan
    values = [torch.linalg.svdvals(weight) for weight in weights]
    return max(float(sigma[0] / sigma[-1]) if sigma[-1] else math.inf for sigma in values)


def summarise_gradients(recording: Recording, loss: Tensor, batch: Tensor, model: nn.Module) -> Summary:
    """Measure gradients and weights layer by layer: means over graphs.

    Number l is the input of attention layer l, the number after the last is the model's output, as for ranks. Measures:
    `gradient_norm`, `||dL / dX_l||_F` of each graph; `condition`, see `weight_condition`, of the module of layer l, the
    same for all graphs. X_l is the `input` of a trace. If a residual branch also starts from it, its gradient includes
    both paths; with a norm in between, as in pre-norm transformers, it includes only the path through the layer. A
    layer without `input`, or whose tensor the loss does not depend on, has no gradient norm.

    Args:
        recording: of one forward pass with gradients.
        loss: L of that pass, a scalar.
        batch: graph of each node `[N]`.
        model: the module that was recorded.

    Examples:
        >>> from graphbench.diagnostics import record
        >>> from graphbench.nn import MultiHeadAttention
        >>> layer, x = MultiHeadAttention(4, num_heads=2), torch.randn(3, 4)
        >>> batch = torch.tensor([0, 0, 1])
        >>> with record(layer) as recording:
        ...     loss = layer(x, batch).sum()
        >>> first, last = summarise_gradients(recording, loss, batch, layer).values()
        >>> round(last.mean("gradient_norm"), 4), last.name  # (sqrt(8) + 2) / 2
        (2.4142, 'output')
    """
    layers = [(trace.name, trace.tokens if trace.input is None else trace.input, trace.batch) for trace in recording]
    output = recording.output
    if output is not None and output.dim() == 2 and len(output) == len(batch):
        layers.append(("output", output, batch))
    norms = gradient_norms_per_graph(loss, [tokens for _, tokens, _ in layers], [graph for _, _, graph in layers])
    modules = dict(model.named_modules())
    summary: Summary = {}
    for number, ((name, _, graph), norm) in enumerate(zip(layers, norms, strict=True)):
        layer = summary.setdefault(number, LayerSummary(number, name))
        count = int(graph.max()) + 1 if len(graph) else 0
        measures = {} if norm is None else {"gradient_norm": norm}
        if number < len(recording) and name in modules:
            measures["condition"] = torch.full((count,), weight_condition(modules[name]), dtype=torch.float64)
        layer.add_graphs(measures)
    return {number: layer for number, layer in summary.items() if layer.values}
