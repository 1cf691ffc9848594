"""Attention matrices of single graphs, prepared for display.

Legend: H heads, t tokens of a graph (nodes first), n of them nodes, k columns of its matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphbench.contracts.trace import LayerTrace
from graphbench.diagnostics.attention import attention_entropy, attention_row_sum, attention_zeros
from graphbench.diagnostics.recording import Recording
from graphbench.errors import BadInput


@dataclass(frozen=True)
class AttentionMap:
    """Attention of one layer in one graph.

    Args:
        layer: number of the layer.
        name: dotted name of its module.
        heads: numbers of the heads shown `[H]`.
        weights: `[H, t, t]`, float32 on the CPU, rows are queries; columns that sampled attention skipped are zero.
        num_nodes: n; the others are extra tokens.
        entropy: mean entropy of the rows of each head, nats `[H]`.
        zeros: share of exact zeros of each head among the k columns it could attend to `[H]`.
        row_sum: mean row sum of each head `[H]`.

    Examples:
        >>> half, none = torch.full((1, 2, 2), 0.5), torch.zeros(1)
        >>> shown = AttentionMap(0, "layer", (0,), half, num_nodes=2, entropy=none, zeros=none, row_sum=none + 1)
        >>> shown.received
        tensor([[0.5000, 0.5000]])
    """

    layer: int
    name: str
    heads: tuple[int, ...]
    weights: Tensor
    num_nodes: int
    entropy: Tensor
    zeros: Tensor
    row_sum: Tensor

    @property
    def received(self) -> Tensor:
        """Attention that each node receives, averaged over querying nodes `[H, n]`."""
        return self.weights[:, : self.num_nodes, : self.num_nodes].mean(1)

    def between(self, pairs: Tensor) -> Tensor:
        """Return the mean weight `[H, pairs]` over both directions between the nodes of each pair `[2, pairs]`."""
        return (self.weights[:, pairs[0], pairs[1]] + self.weights[:, pairs[1], pairs[0]]) / 2


def attention_maps(
    recording: Recording | Sequence[LayerTrace], layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> list[list[AttentionMap]]:
    """Return the maps of every graph of one forward pass, layer by layer; layers without attention matrices have none.

    `layers` and `heads` are the numbers of those to show; None for all.

    Raises:
        BadInput: there is no such layer, or a shown layer has no such head.

    Examples:
        >>> from graphbench.diagnostics import record
        >>> from graphbench.nn import MultiHeadAttention
        >>> layer, batch = MultiHeadAttention(4, num_heads=2), torch.tensor([0, 0, 0, 1, 1])
        >>> with torch.no_grad(), record(layer) as recording:
        ...     _ = layer(torch.randn(5, 4), batch)
        >>> [[tuple(shown.weights.shape) for shown in graph] for graph in attention_maps(recording)]
        [[(2, 3, 3)], [(2, 2, 2)]]
    """
    numbers = {trace.layer for trace in recording}
    if layers is not None and numbers and not set(layers) <= numbers:
        raise BadInput(f"layers must be among 0 .. {max(numbers)} of this model, got {list(layers)}.")
    shown = [t for t in recording if t.attention is not None and (layers is None or t.layer in layers)]
    count = max((len(trace.attention or ()) for trace in shown), default=0)
    return [[_map_of(trace, graph, heads) for trace in shown] for graph in range(count)]


def _map_of(trace: LayerTrace, graph: int, heads: Sequence[int] | None) -> AttentionMap:
    assert trace.attention is not None
    matrix = trace.attention[graph].detach().float().cpu()
    numbers = tuple(range(len(matrix)) if heads is None else heads)
    if not all(0 <= head < len(matrix) for head in numbers):
        raise BadInput(f"heads must be among 0 .. {len(matrix) - 1} of {trace.name}, got {list(numbers)}.")
    matrix = matrix[list(numbers)]
    size = matrix.shape[1]
    weights = matrix
    if trace.columns is not None:
        weights = matrix.new_zeros(len(matrix), size, size).index_add_(2, trace.columns[graph].cpu(), matrix)
    # Measured on `matrix`: columns that sampling skipped are not zeros that the head chose.
    return AttentionMap(
        layer=trace.layer,
        name=trace.name,
        heads=numbers,
        weights=weights,
        num_nodes=size if trace.num_nodes is None else int(trace.num_nodes[graph]),
        entropy=attention_entropy([matrix])[0],
        zeros=attention_zeros([matrix])[0],
        row_sum=attention_row_sum([matrix])[0],
    )


def spread_out(count: int, most: int) -> list[int]:
    """Return at most `most` of the numbers `0 .. count - 1`, evenly spread, including the first and the last.

    Examples:
        >>> spread_out(10, 4)
        [0, 3, 6, 9]
    """
    return torch.linspace(0, count - 1, min(count, most)).round().long().tolist() if count else []
