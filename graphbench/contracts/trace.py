"""What an attention layer tells a listener, and how it tells nobody at no cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor, nn


@dataclass
class LayerTrace:
    """One attention layer in one forward pass, without padding.

    Legend: T tokens of all graphs one after the other (nodes first where a layer has extra tokens), H heads,
    d head width.

    Args:
        layer: number of the layer, from 0.
        tokens: what the layer returned, `[T, dim]`.
        batch: graph of each token `[T]`.
        values: `x W^V W^O` per head without bias, `[T, H, dim]`: what attention mixes.
        attention: list with one `[H, n_g, n_g]` (or `[H, n_g, k_g]`) tensor a graph, rows are queries; None when the
            layer has no matrix to show.
        columns: for sampled attention, `columns[g][j]` is the token (within the graph) behind column j.
        num_nodes: nodes per graph `[G]`; the remaining tokens of a graph are extra tokens.
        name: dotted name of the module.
    """

    layer: int
    tokens: Tensor
    batch: Tensor
    values: Tensor | None = None
    attention: list[Tensor] | None = None
    columns: list[Tensor] | None = None
    num_nodes: Tensor | None = None
    name: str = ""
    extra: dict[str, Tensor] = field(default_factory=dict)


class Recorder(Protocol):
    """Receives traces."""

    def __call__(self, trace: LayerTrace) -> None:
        """Take one trace; must not modify its tensors."""


class Traced(nn.Module):
    """Mixin of attention layers that can be watched.

    `self.listening` is False unless somebody records; only then may a layer leave its fused kernel and compute what
    a trace needs. `self.trace(lambda: LayerTrace(...))` builds the record only when somebody listens.
    """

    layer: int = 0
    _recorder: Recorder | None = None

    @property
    def listening(self) -> bool:
        """Whether a recorder is attached."""
        return self._recorder is not None

    def trace(self, make: Callable[[], LayerTrace]) -> None:
        """Hand a record to the listener, if any."""
        if self._recorder is not None:
            self._recorder(make())
