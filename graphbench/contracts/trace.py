"""Traces of attention layers: what a listener receives, at no cost without a listener."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn


@dataclass
class LayerTrace:
    """One attention layer in one forward pass, without padding.

    Legend: T tokens of all graphs one after the other (nodes first if a layer has extra tokens), H heads,
    d head width.

    A layer fills in the fields it knows. What it omits is not measured, and nothing else changes. The recording sets
    `layer` and `name`, because only it sees the order of the calls.

    Args:
        tokens: what the layer returned, `[T, dim]`.
        batch: graph of each token `[T]`.
        values: `x W^V W^O` per head without bias, `[T, H, dim]`: what attention mixes.
        attention: sequence with one `[H, n_g, n_g]` (or `[H, n_g, k_g]`) tensor per graph, rows are queries; None if
            the layer has no matrix to show. Layers for large graphs compute a matrix only when it is read.
        columns: for sampled attention, `columns[g][j]` is the token (within the graph) behind column j.
        num_nodes: nodes per graph `[G]`; the remaining tokens of a graph are extra tokens.
        input: the tokens that entered the layer `[T, dim]`, before any projection; not detached, since the range of
            a model is measured along their gradients.
        substructure: which tokens represent substructures, bool `[T]`; None if all extra tokens do.
        residual_weight: weight of the residual branch around the layer; differs from 1 with deepnorm.
        mixing_weight: learned weight of the attention relative to what else the layer mixes `[]`, such as gamma of
            SFi-Former, which mixes attention with the adjacency matrix.
        layer: number of the call in its forward pass, from 0; set by the recording.
        name: dotted name of the module; set by the recording.

    Examples:
        >>> import torch
        >>> x, batch = torch.zeros(3, 4), torch.tensor([0, 0, 1])
        >>> LayerTrace(tokens=x, batch=batch, input=x).residual_weight
        1.0
    """

    tokens: Tensor
    batch: Tensor
    values: Tensor | None = None
    attention: Sequence[Tensor] | None = None
    columns: list[Tensor] | None = None
    num_nodes: Tensor | None = None
    input: Tensor | None = None
    substructure: Tensor | None = None
    residual_weight: float = 1.0
    mixing_weight: Tensor | None = None
    layer: int = 0
    name: str = ""


class Recorder(Protocol):
    """Receives traces."""

    def __call__(self, trace: LayerTrace) -> None:
        """Receive one trace; must not modify its tensors."""


class Traced(nn.Module):
    """Mixin for attention layers whose traces can be recorded.

    `self.listening` is True only while a recorder is attached; only then may a layer leave its fused kernel and compute
    what a trace needs. `self.trace(lambda: LayerTrace(...))` builds the trace only if a recorder is attached.

    Examples:
        >>> import torch
        >>> class Layer(Traced, torch.nn.Module):
        ...     def forward(self, x, batch):
        ...         self.trace(lambda: LayerTrace(tokens=2 * x, batch=batch, input=x))
        ...         return 2 * x
        >>> from graphbench.diagnostics import record
        >>> layer = Layer()
        >>> with record(layer) as recording:
        ...     _ = layer(torch.ones(3, 4), torch.zeros(3, dtype=torch.int64))
        >>> [trace.tokens.shape for trace in recording]
        [torch.Size([3, 4])]
    """

    # On the class, so that a layer need not call a constructor of this mixin, and the state_dict does not change.
    _recorder: Recorder | None = None

    @property
    def listening(self) -> bool:
        """Tell whether a recorder is attached."""
        return self._recorder is not None

    def trace(self, make: Callable[[], LayerTrace]) -> None:
        """Pass a trace to the recorder, if there is one."""
        if self._recorder is not None:
            self._recorder(make())


class ReadsFeatures(nn.Module):
    """Mixin for modules that turn features of nodes or edges into vectors, which are all that a model sees of them.

    Categories have no gradients, but their embeddings do. Diagnostics and attributions differentiate with respect to
    the outputs of these modules, see `graphbench.diagnostics.encoders`.

    Examples:
        >>> class Embedding(ReadsFeatures):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.table = nn.Embedding(5, 8)
        ...     def forward(self, categories):
        ...         return self.table(categories).sum(1)
        >>> import torch
        >>> Embedding()(torch.zeros(3, 2, dtype=torch.int64)).shape
        torch.Size([3, 8])
    """
