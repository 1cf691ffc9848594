"""A batch as one block of memory, for the way from a worker to the training process.

A batch has about a dozen tensors. Sent one by one, each costs a file of shared memory that one process makes and the
other maps; for small graphs that takes longer than cutting the batch. `speed/data_path.py` prints the rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphbench.contracts import GraphBatch

#: Bytes that tensors start at multiples of: a cache line, and a multiple of every number's size.
_ALIGNMENT = 64


@dataclass
class PackedBatch:
    """Tensors of a `GraphBatch` in one buffer.

    Args:
        buffer: `[bytes]`, uint8.
        parts: name -> (first byte, type, shape) of each tensor.
        others: what is no tensor, such as `num_graphs`.
    """

    buffer: Tensor
    parts: dict[str, tuple[int, torch.dtype, torch.Size]]
    others: dict[str, Any]

    @classmethod
    def pack(cls, batch: GraphBatch) -> PackedBatch:
        """Copy the tensors of a batch into one buffer."""
        fields = batch.to_dict()
        tensors = {name: value.contiguous() for name, value in fields.items() if isinstance(value, Tensor)}
        parts, end = {}, 0
        for name, tensor in tensors.items():
            parts[name] = (end, tensor.dtype, tensor.shape)
            end += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
        buffer = torch.empty(end, dtype=torch.uint8)
        for name, tensor in tensors.items():
            start = parts[name][0]
            buffer[start : start + tensor.nbytes] = tensor.view(-1).view(torch.uint8)
        return cls(buffer, parts, {name: value for name, value in fields.items() if name not in tensors})

    def unpack(self) -> GraphBatch:
        """The batch again: its tensors are views of the buffer."""
        fields = dict(self.others)
        for name, (start, dtype, shape) in self.parts.items():
            size = shape.numel() * dtype.itemsize
            fields[name] = self.buffer[start : start + size].view(dtype).view(shape)
        return GraphBatch.from_dict(fields)

    def pin_memory(self) -> PackedBatch:
        """The same in page-locked memory; a `DataLoader` calls this."""
        return PackedBatch(self.buffer.pin_memory(), self.parts, self.others)
