"""Memory of a training step on a GPU, by part, counted on the pretended GPU without numbers and without memory."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from graphbench.contracts import GraphBatch
from graphbench.testing.pretend import NAME, PretendedTensor, on_pretended_device, watched_tensors
from graphbench.training import optim
from graphbench.training.module import BenchmarkModule

#: Methods that return the tensors inside sparse tensors.
_COO, _CSR = ("_indices", "_values"), ("crow_indices", "col_indices", "values")


@dataclass(frozen=True)
class StepMemory:
    """Memory of a training step."""

    #: part -> bytes at the peak of the step. `activations` are saved by the forward pass for the backward pass,
    #: `temporaries` are all other tensors that do not outlast the step.
    parts: dict[str, int]
    saved: int  # bytes of all activations, some of which may be freed before the peak

    @property
    def total(self) -> int:
        """Bytes of all parts at the peak."""
        return sum(self.parts.values())

    @property
    def fixed(self) -> int:
        """Bytes at the peak that do not grow with the batch."""
        return sum(self.parts[part] for part in ("parameters and buffers", "gradients", "optimizer state"))


class Ledger:
    """Every allocation and release on the device, in order; `note` is for `watched_tensors`."""

    def __init__(self) -> None:
        #: `(number of the allocation, bytes)`, with negative bytes when it is freed.
        self.events: list[tuple[int, int]] = []
        self._live: dict[int, int] = {}

    def note(self, inner: Tensor) -> None:
        """Record the memory of a tensor, unless it is a view of a recorded one."""
        if inner.layout != torch.strided:
            for part in _COO if inner.layout == torch.sparse_coo else _CSR:
                self.note(getattr(inner, part)())
            return
        # Views share a storage: memory is allocated with the first of them, and freed with the last.
        storage = inner.untyped_storage()
        if storage._cdata not in self._live:
            number, size = len(self.events), storage.nbytes()
            self._live[storage._cdata] = number
            self.events.append((number, size))
            weakref.finalize(storage, self._free, storage._cdata, number, size)

    def _free(self, key: int, number: int, size: int) -> None:
        del self._live[key]
        self.events.append((number, -size))

    def of(self, tensors: Iterable[object]) -> set[int]:
        """Return the allocations of these tensors; tensors of other devices are ignored."""
        held = (tensor.numbers.untyped_storage()._cdata for tensor in tensors if isinstance(tensor, PretendedTensor))
        return {self._live[key] for key in held}

    def live(self) -> set[int]:
        """Return the allocations that have not been freed."""
        return set(self._live.values())

    def at_peak(self, start: int) -> dict[int, int]:
        """Return allocation -> bytes at the peak of the total after event `start`."""
        total = most = 0
        peak = start
        for place, (_, size) in enumerate(self.events):
            total += size
            if place >= start and total > most:
                most, peak = total, place
        held: dict[int, int] = {}
        for number, size in self.events[: peak + 1]:
            held[number] = held.get(number, 0) + size
        return {number: size for number, size in held.items() if size}


def step_memory(
    module: BenchmarkModule, batch: GraphBatch, clip: float | None = None, numbers: bool = False
) -> StepMemory:
    """Count the memory of a training step: forward and backward pass, clipping, optimizer.

    The second step is counted: the optimizer has its state, and gradients of the previous step exist until the
    backward pass begins, as in Lightning. Workspaces of kernels and metrics are not counted.

    Call it in a separate process (`graphbench.testing.pretend.in_fork`): it registers a device with PyTorch, and the
    module cannot be used afterwards. Module and batch are on the CPU; `clip` is the largest norm of the gradients.
    `numbers` computes all numbers, for a model whose shapes depend on its weights, which needs time and memory here.
    """
    ledger, held = Ledger(), dict[str, set[int]]()
    fused_on = mock.patch.object(optim, "_FUSED_ON", (*optim._FUSED_ON, NAME))
    with on_pretended_device(), watched_tensors(ledger.note), fused_on:
        _move(module.train(), numbers)
        graphs = copy.copy(batch).apply(PretendedTensor)
        parameters, optimizer = [*module.parameters()], module.build_optimizer()
        for _ in range(2):
            start = len(ledger.events)
            held["gradients"] = ledger.of(weight.grad for weight in parameters)
            loss = module.task.loss(module(graphs), graphs)
            # Allocations of this forward pass that still exist are kept for the backward pass.
            held["activations"] = {number for number in ledger.live() if number >= start}
            optimizer.zero_grad()
            loss.backward()
            held["gradients"] |= ledger.of(weight.grad for weight in parameters)
            if clip:
                nn.utils.clip_grad_norm_(parameters, clip, foreach=True)
            optimizer.step()
            del loss
        held["parameters and buffers"] = ledger.of([*parameters, *module.buffers()])
        held["optimizer state"] = ledger.of(tree_leaves([*optimizer.state.values()]))
        held["batch"] = ledger.of(graphs.to_dict().values())
        peak = ledger.at_peak(start)
    order = ("parameters and buffers", "gradients", "optimizer state", "batch", "activations")
    parts = {part: sum(peak.pop(number, 0) for number in held[part]) for part in order}
    sizes = dict(event for event in ledger.events if event[1] > 0)
    saved = sum(sizes.get(number, 0) for number in held["activations"])
    return StepMemory(parts | {"temporaries": sum(peak.values())}, saved)


def _move(module: nn.Module, numbers: bool) -> None:
    """Move to the pretended GPU: parameters without numbers unless `numbers`, buffers with theirs, maybe indices."""
    # Not by `Module.to`: shared weights stay shared, and numbers can be dropped.
    moved: dict[int, nn.Parameter] = {}
    for part in module.modules():
        for name, weight in part._parameters.items():
            if weight is not None:
                if id(weight) not in moved:
                    inner = weight.data if numbers else weight.data.to("meta")
                    moved[id(weight)] = nn.Parameter(PretendedTensor(inner), weight.requires_grad)
                part._parameters[name] = moved[id(weight)]
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = PretendedTensor(buffer)
