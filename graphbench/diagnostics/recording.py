"""Record the attention layers of a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, overload

import torch
from torch import Tensor, nn

from graphbench.contracts.trace import LayerTrace, Recorder, Traced


class Recording(Sequence[LayerTrace]):
    """The traces of one or more forward passes, in call order.

    `output` is the model's last result: its tensor, or the `node` of its `Representation`. It is None before the first
    pass, and if neither exists.

    Examples:
        >>> from graphbench.nn import MultiHeadAttention
        >>> layer = MultiHeadAttention(4, num_heads=2)
        >>> with record(layer) as recording:
        ...     _ = layer(torch.randn(3, 4), torch.zeros(3, dtype=torch.int64))
        >>> len(recording), recording.output.shape
        (1, torch.Size([3, 4]))
    """

    def __init__(self, matrices: bool = True) -> None:
        self.output: Tensor | None = None
        self._matrices = matrices
        self._traces: list[LayerTrace] = []
        self._next_layer = 0

    @overload
    def __getitem__(self, index: int) -> LayerTrace: ...

    @overload
    def __getitem__(self, index: slice) -> list[LayerTrace]: ...

    def __getitem__(self, index: int | slice) -> LayerTrace | list[LayerTrace]:
        return self._traces[index]

    def __len__(self) -> int:
        return len(self._traces)

    def __repr__(self) -> str:
        return f"Recording({', '.join(f'{trace.layer}: {trace.name}' for trace in self)})"

    def cpu(self) -> Recording:
        """Copy the traces to the CPU, where there is float64."""
        copied = Recording()
        copied.output, copied._next_layer = _to_cpu(self.output), self._next_layer
        for trace in self:
            copied._traces.append(LayerTrace(*(_to_cpu(getattr(trace, field.name)) for field in fields(trace))))
        return copied

    def clear(self) -> None:
        """Drop all traces and their memory, and continue recording."""
        self._traces.clear()
        self.output, self._next_layer = None, 0

    def take(self, trace: LayerTrace, name: str) -> None:
        """Add a trace of the module `name`, numbered in call order within the pass."""
        trace = replace(trace, layer=self._next_layer, name=trace.name or name)
        if not self._matrices:
            trace = replace(trace, attention=None, columns=None, values=None)
        self._traces.append(trace)
        self._next_layer += 1

    def start_pass(self, *_: Any) -> None:
        """Start a new forward pass of the model: its first layer is number 0."""
        self._next_layer = 0

    def end_pass(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """Keep the model's result."""
        tokens = getattr(output, "node", output)
        self.output = tokens if isinstance(tokens, Tensor) else None


def _to_cpu(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_to_cpu(one) for one in value]
    return value.cpu() if isinstance(value, Tensor) else value


@contextlib.contextmanager
def record(model: nn.Module, matrices: bool = True) -> Iterator[Recording]:
    """Record every attention layer of a model.

        with torch.no_grad(), record(model) as recording:
            model(batch)
        print([trace.name for trace in recording])

    Layers are numbered from 0 in call order, starting again in every forward pass of `model`; a layer that is called
    several times (shared or looped) gets a number each time. Recording changes neither outputs nor random numbers.
    Recordings may be nested, and all of them receive the same traces. Compiled models run uncompiled while they are
    recorded, so that no graph is compiled for the recorder.

    Traces keep whatever graph autograd has built for them: record under `torch.no_grad()` unless you need gradients.

    Args:
        model: any module; its parts that are `Traced` are recorded, and an empty recording means it has none.
        matrices: keep the attention and the values of heads, whose memory grows with heads, layers, and for attention
            the square of the nodes; otherwise only tokens.

    Examples:
        >>> from graphbench.nn import MultiHeadAttention
        >>> layer = MultiHeadAttention(4, num_heads=2)
        >>> with torch.no_grad(), record(layer) as recording:
        ...     _ = layer(torch.randn(3, 4), torch.zeros(3, dtype=torch.int64))
        >>> recording[0].attention[0].sum(-1).allclose(torch.ones(2, 3))
        True
    """
    recording = Recording(matrices)
    before: list[tuple[Traced, Recorder | None]] = []
    with contextlib.ExitStack() as stack:
        if any(_is_compiled(module) for module in model.modules()):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.callback(_detach, before)
        for hook in (
            model.register_forward_pre_hook(recording.start_pass),
            model.register_forward_hook(recording.end_pass),
        ):
            stack.callback(hook.remove)
        for name, module in model.named_modules():
            if isinstance(module, Traced):
                before.append((module, module._recorder))
                module._recorder = _listener(recording, name.removeprefix("_orig_mod."), module._recorder)
        yield recording


def _listener(recording: Recording, name: str, earlier: Recorder | None) -> Recorder:
    """Return a recorder that also calls the earlier one."""

    def listen(trace: LayerTrace) -> None:
        recording.take(trace, name)
        if earlier is not None:
            earlier(trace)

    return listen


def _detach(before: list[tuple[Traced, Recorder | None]]) -> None:
    """Restore the earlier recorders, and remove the attribute of layers that had none."""
    for module, earlier in before:
        if earlier is None:
            module.__dict__.pop("_recorder", None)
        else:
            module._recorder = earlier


def _is_compiled(module: nn.Module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None or "_orig_mod" in module._modules
