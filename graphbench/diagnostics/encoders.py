"""The vectors that features of nodes and edges become in a model: read once, then replaced, or differentiated along.

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
from graphbench.contracts.trace import ReadsFeatures

Kind = Literal["node", "edge"]
#: Fields of a batch that encoders read, by what their rows are.
_FIELDS: dict[Kind, tuple[str, ...]] = {"node": ("x", "x_dense", "pos"), "edge": ("edge_attr", "edge_dense")}


@dataclass
class EncoderCall:
    """One call of an encoder in a forward pass."""

    kind: Kind  # whether its rows are nodes or edges
    encoder: nn.Module  # what was called
    arguments: tuple[Tensor | None, ...]  # what it was given
    #: of each argument the field of the batch that it is, perhaps with further columns behind; None where the argument
    #: is None.
    fields: tuple[str | None, ...]
    output: Tensor  # what it returned `[rows, dim]`


@contextlib.contextmanager
def recorded(module: nn.Module, batch: GraphBatch) -> Iterator[list[EncoderCall]]:
    """Within the block, every call of an encoder on the features of `batch` is noted in the list, in order."""
    calls: list[EncoderCall] = []

    def note(encoder: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
        match = _fields(arguments, batch)
        if match is not None:
            calls.append(EncoderCall(match[0], encoder, arguments, match[1], output.detach()))

    with _hooked(module, note):
        yield calls


@contextlib.contextmanager
def replaced(module: nn.Module, batch: GraphBatch, outputs: Sequence[Tensor]) -> Iterator[None]:
    """Within the block, the calls that `recorded` would note return `outputs` instead, in order."""
    waiting = list(outputs)

    def swap(encoder: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor | None:
        return waiting.pop(0).to(output.dtype) if _fields(arguments, batch) is not None else None

    with _hooked(module, swap):
        yield


@contextlib.contextmanager
def differentiable(module: nn.Module, batch: GraphBatch) -> Iterator[list[Tensor]]:
    """Within the block, what enters at the nodes of `batch` is a leaf of autograd; the list has it after a pass.

    Encoders of node features return leaves of their own `[num_nodes, dim]`, without positional encodings, which depend
    on the structure. A model that calls none reads the floating-point columns of the batch, and these are the leaves.

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
        # After the pass, when it is known whether an encoder was called.
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
    """Whose features an encoder was given, and the field that each argument is; None where it was given others."""
    for kind, names in _FIELDS.items():
        fields = {name: batch[name] for name in names if batch.get(name) is not None}
        matches = [next((n for n in fields if _is(argument, fields[n])), None) for argument in arguments]
        if any(matches) and all(
            name is not None or argument is None for name, argument in zip(matches, arguments, strict=True)
        ):
            return kind, tuple(matches)
    return None


def _is(argument: Any, field: Tensor) -> bool:
    """Tell whether an argument is a field; positional encodings add columns behind dense ones."""
    # Shapes first: to compare numbers waits for the device.
    width = field.shape[1]
    return (
        isinstance(argument, Tensor)
        and argument.is_floating_point() == field.is_floating_point()
        and argument.shape[0] == field.shape[0]
        and argument.shape[1] >= width
        and torch.equal(argument[:, :width], field)
    )
