"""Record a model's encoded vectors of node and edge features, replace them, or differentiate with respect to them.

Categories have no gradients, but their embeddings do. If a model reads features through `graphbench.nn.FeatureEncoder`
(or Graphormer's released tables), the encoder's outputs are all that it knows of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from graphbench.contracts import GraphBatch
from graphbench.contracts.trace import ReadsFeatures

Kind = Literal["node", "edge"]
#: Fields of a batch that encoders read, by the kind of their rows.
_FIELDS: dict[Kind, tuple[str, ...]] = {"node": ("x", "x_dense", "pos"), "edge": ("edge_attr", "edge_dense")}


@dataclass
class EncoderCall:
    """One call of an encoder in a forward pass."""

    kind: Kind  # whether its rows are nodes or edges
    encoder: nn.Module  # the called module
    arguments: tuple[Tensor | None, ...]  # its arguments
    #: for each argument, its field of the batch, possibly followed by more columns; None if the argument is None.
    fields: tuple[str | None, ...]
    output: Tensor  # its result `[rows, dim]`


@contextlib.contextmanager
def recorded(module: nn.Module, batch: GraphBatch) -> Iterator[list[EncoderCall]]:
    """Record in the list, in order, every call of an encoder on the features of `batch` within the block."""
    calls: list[EncoderCall] = []

    def note(encoder: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
        match = _fields(arguments, batch)
        if match is not None:
            calls.append(EncoderCall(match[0], encoder, arguments, match[1], output.detach()))

    with _hooked(module, note):
        yield calls


@contextlib.contextmanager
def replaced(module: nn.Module, batch: GraphBatch, outputs: Sequence[Tensor]) -> Iterator[None]:
    """Let the calls that `recorded` would record return `outputs` instead, in order, within the block."""
    waiting = list(outputs)

    def swap(encoder: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor | None:
        return waiting.pop(0).to(output.dtype) if _fields(arguments, batch) is not None else None

    with _hooked(module, swap):
        yield


@contextlib.contextmanager
def differentiable(module: nn.Module, batch: GraphBatch) -> Iterator[list[Tensor]]:
    """Make the inputs at the nodes of `batch` leaves of autograd within the block; the list has them after a pass.

    Encoders of node features return new leaves `[num_nodes, dim]`, without positional encodings, which depend on the
    structure. If a model calls no encoder, the leaves are the floating-point node columns of the batch.

    Args:
        module: to be run once within the block, with gradients enabled.
        batch: its features are replaced by copies, in place; none may be an inference tensor.

    Examples:
        >>> from graphbench.contracts import GraphTable
        >>> graph = {"num_nodes": 2, "edge_index": torch.zeros(2, 0, dtype=torch.int64), "x_dense": torch.ones(2, 3)}
        >>> batch, model = GraphTable.from_graphs([graph]).batch([0]), nn.Linear(3, 4)
        >>> with differentiable(model, batch) as inputs:
        ...     output = model(batch.x_dense)
        >>> torch.autograd.grad(output.sum(), inputs)[0].shape
        torch.Size([2, 3])
    """
    leaves: list[Tensor] = []

    def cut(encoder: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor | None:
        match = _fields(arguments, batch)
        if match is None or match[0] != "node":
            return None
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    columns = []
    for name in _FIELDS["node"]:
        if batch.get(name) is not None and batch[name].is_floating_point():
            batch[name] = batch[name].detach().clone().requires_grad_()
            columns.append(batch[name])
    with _hooked(module, cut):
        yield leaves
        # After the pass, when it is clear whether an encoder was called.
        leaves.extend([] if leaves else columns)


@contextlib.contextmanager
def _hooked(module: nn.Module, hook: Any) -> Iterator[None]:
    encoders = [part for part in module.modules() if isinstance(part, ReadsFeatures)]
    handles = [encoder.register_forward_hook(hook) for encoder in encoders]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _fields(arguments: tuple[Any, ...], batch: GraphBatch) -> tuple[Kind, tuple[str | None, ...]] | None:
    """Return the kind of an encoder's features, and the field of each argument; None if it received others."""
    for kind, names in _FIELDS.items():
        fields = {name: batch[name] for name in names if batch.get(name) is not None}
        matches = [next((n for n in fields if _is(argument, fields[n])), None) for argument in arguments]
        if any(matches) and all(
            name is not None or argument is None for name, argument in zip(matches, arguments, strict=True)
        ):
            return kind, tuple(matches)
    return None


def _is(argument: Any, field: Tensor) -> bool:
    """Return whether an argument is a field; positional encodings add columns after dense ones."""
    # Shapes first: comparing numbers waits for the device.
    width = field.shape[1]
    return (
        isinstance(argument, Tensor)
        and argument.is_floating_point() == field.is_floating_point()
        and argument.shape[0] == field.shape[0]
        and argument.shape[1] >= width
        and torch.equal(argument[:, :width], field)
    )
