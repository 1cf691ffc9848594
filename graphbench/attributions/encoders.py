"""The vectors that features of nodes and edges become in a model: read once, then replaced.

Categories have no gradients; what they are looked up as has. Where a model reads features through
`graphbench.nn.FeatureEncoder` (or Graphormer's released tables), its outputs are all that it knows of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from graphbench.contracts import GraphBatch
from graphbench.nn import FeatureEncoder
from graphbench.nn.graphormer import ReleasedFeatures

Kind = Literal["node", "edge"]
#: Fields of a batch that encoders read, by what their rows are.
_FIELDS: dict[Kind, tuple[str, ...]] = {"node": ("x", "x_dense", "pos"), "edge": ("edge_attr", "edge_dense")}


@dataclass
class EncoderCall:
    """One call of an encoder in a forward pass.

    Args:
        kind: whether its rows are nodes or edges.
        output: what it returned `[rows, dim]`.
    """

    kind: Kind
    output: Tensor


@contextlib.contextmanager
def recorded(module: nn.Module, batch: GraphBatch) -> Iterator[list[EncoderCall]]:
    """Within the block, every call of an encoder on the features of `batch` is noted in the list, in order."""
    calls: list[EncoderCall] = []

    def note(encoder: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
        kind = _kind(arguments, batch)
        if kind is not None:
            calls.append(EncoderCall(kind, output.detach()))

    with _hooked(module, note):
        yield calls


@contextlib.contextmanager
def replaced(module: nn.Module, batch: GraphBatch, outputs: Sequence[Tensor]) -> Iterator[None]:
    """Within the block, the calls that `recorded` would note return `outputs` instead, in order."""
    waiting = list(outputs)

    def swap(encoder: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor | None:
        return waiting.pop(0).to(output.dtype) if _kind(arguments, batch) is not None else None

    with _hooked(module, swap):
        yield


@contextlib.contextmanager
def _hooked(module: nn.Module, hook: Any) -> Iterator[None]:
    encoders = [part for part in module.modules() if isinstance(part, (FeatureEncoder, ReleasedFeatures))]
    handles = [encoder.register_forward_hook(hook) for encoder in encoders]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _kind(arguments: tuple[Any, ...], batch: GraphBatch) -> Kind | None:
    """Whose features an encoder was given: the rows of a field, perhaps with further columns in front or behind."""
    given = [argument for argument in arguments if isinstance(argument, Tensor)]
    for kind, names in _FIELDS.items():
        fields = [batch[name] for name in names if batch.get(name) is not None]
        if given and all(any(_is(argument, field) for field in fields) for argument in given):
            return kind
    return None


def _is(argument: Tensor, field: Tensor) -> bool:
    """Whether an argument is a field: the positional encoding in front of a model adds columns behind dense ones."""
    width = field.shape[1]
    return (
        argument.shape[0] == field.shape[0] and argument.shape[1] >= width and torch.equal(argument[:, :width], field)
    )
