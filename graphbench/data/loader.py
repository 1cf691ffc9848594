"""Load batches of a `GraphTable`, in this process or in workers, resumable within an epoch."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from graphbench.contracts import GraphBatch, GraphTable
from graphbench.data.mapped import Prefetcher, trim_mapped
from graphbench.data.sampler import SizeBucketSampler
from graphbench.data.worker_pool import random_state
from graphbench.errors import check_range

#: Batches between two checks of the resident size of memory maps.
_TRIM_EVERY = 8
#: Bytes that tensors start at multiples of: a cache line, and a multiple of every number's size.
_ALIGNMENT = 64
#: Row numbers of the sampler -> a batch.
Cut = Callable[[Sequence[int]], GraphBatch]
#: A batch, and a generator for random choices of training -> the batch with more fields.
Precompute = Callable[[GraphBatch, torch.Generator | None], GraphBatch]


@dataclass
class PackedBatch:
    """Tensors of a `GraphBatch` in one buffer, for the way from a worker to the training process, and on to a GPU.

    A batch has about a dozen tensors. Sent one by one, each costs a file of shared memory that one process creates and
    the other maps; for small graphs that takes longer than cutting the batch. `speed/data_path.py` prints the rate.
    To a GPU, each would cost a copy of its own.

    Args:
        buffer: `[bytes]`, uint8, on any device.
        parts: name -> (first byte, type, shape) of each tensor.
        others: values that are not tensors, such as `num_graphs`.
    """

    buffer: Tensor
    parts: dict[str, tuple[int, torch.dtype, torch.Size]]
    others: dict[str, Any]

    @classmethod
    def pack(cls, batch: GraphBatch, pin_memory: bool = False) -> PackedBatch:
        """Copy the tensors of a batch on the CPU into one buffer, which copies to a GPU do not wait for if pinned."""
        fields = batch.to_dict()
        tensors = {name: value.contiguous() for name, value in fields.items() if isinstance(value, Tensor)}
        parts, end = {}, 0
        for name, tensor in tensors.items():
            parts[name] = (end, tensor.dtype, tensor.shape)
            # Rounded up: a view of another type must start at a multiple of its numbers' size.
            end += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
        buffer = torch.empty(end, dtype=torch.uint8, pin_memory=pin_memory)
        for name, tensor in tensors.items():
            start = parts[name][0]
            buffer[start : start + tensor.nbytes] = tensor.view(-1).view(torch.uint8)
        return cls(buffer, parts, {name: value for name, value in fields.items() if name not in tensors})

    def unpack(self) -> GraphBatch:
        """Restore the batch; its tensors are views of the buffer."""
        fields = dict(self.others)
        for name, (start, dtype, shape) in self.parts.items():
            size = shape.numel() * dtype.itemsize
            fields[name] = self.buffer[start : start + size].view(dtype).view(shape)
        return GraphBatch.from_dict(fields)

    def to(self, device: torch.device, stream: torch.cuda.Stream | None = None) -> PackedBatch:
        """Copy to a GPU, all tensors at once; from page-locked memory the copy does not block.

        With a `stream` it is copied beside what the GPU computes, and its current stream waits; by default the copy
        takes its turn on the current stream.
        """
        if stream is None:
            return PackedBatch(self.buffer.to(device, non_blocking=True), self.parts, self.others)
        with torch.cuda.stream(stream):
            buffer = self.buffer.to(device, non_blocking=True)
        current = torch.cuda.current_stream(device)
        current.wait_stream(stream)
        buffer.record_stream(current)  # the memory must not be reused while the current stream reads it
        return PackedBatch(buffer, self.parts, self.others)


class _Rows(Dataset[GraphBatch | PackedBatch]):
    """Cut all rows of a batch in one call of `GraphTable.batch`; pack the result in a worker."""

    def __init__(self, table: GraphTable, cut: Cut | None = None, precompute: Precompute | None = None) -> None:
        self.table, self.cut, self.has_rows, self.precompute = table, cut or table.batch, cut is None, precompute
        self._batches = 0
        self._prefetch: Prefetcher | None = None

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> GraphBatch:
        return self.cut([index])

    def __getitems__(self, seeded: tuple[list[int] | None, Sequence[int]]) -> GraphBatch | PackedBatch:
        seeds, indices = seeded
        self._batches += 1
        if self._batches % _TRIM_EVERY == 0:
            trim_mapped()
        if self.has_rows:
            if self._prefetch is None:  # built in the worker: maps are not sent between processes
                self._prefetch = Prefetcher(self.table)
            self._prefetch(indices)
        # Waking a team of threads costs more than these small copies, on a busy machine a hundred times more
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            batch = self.cut(indices)
            if self.precompute is not None:
                batch = self.precompute(batch, None if seeds is None else _generator(seeds))
            if get_worker_info() is None:
                return batch
            packed = PackedBatch.pack(batch)
            # Here an error reaches the training, which would wait for ever for a batch that the thread cannot send
            packed.buffer.share_memory_()
            return packed
        finally:
            torch.set_num_threads(threads)


class _Seeded:
    """Batches of a sampler with the seeds of their random choices; workers do not know the epoch."""

    def __init__(self, sampler: SizeBucketSampler, draws: bool) -> None:
        self.sampler, self.draws = sampler, draws

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[tuple[list[int] | None, list[int]]]:
        for rows in self.sampler:
            yield [self.sampler.seed, self.sampler.epoch, rows[0]] if self.draws else None, rows


def _generator(seeds: Sequence[int]) -> torch.Generator:
    """Make a generator that follows from the seeds alone."""
    return torch.Generator().manual_seed(int(random_state(*seeds).randint(1 << 63, dtype=np.int64)))


def _unchanged(batch: Any) -> Any:
    return batch


class GraphLoader:
    """Iterate over the batches of one epoch.

    It wraps a `DataLoader` instead of being one: Lightning rebuilds data loaders with samplers of its own (for
    prediction, and on several devices), which would count graphs twice. It leaves any other iterable alone, tells
    `batch_sampler` the epoch, and keeps `state_dict()` in checkpoints.

    An iterator reads the epoch with its first batch, because Lightning makes iterators before it sets the epoch.
    Where nobody calls `set_epoch`, as in a loop of one's own, each iteration is the next epoch.

    Args:
        table: the graphs; memory-mapped columns are inherited by workers, never copied.
        batch_sampler: yields the rows of each batch.
        num_workers: processes that cut batches; 0 cuts them here, which is fastest for small graphs.
        cut: makes a batch of the sampler's items, where these are not rows of whole graphs.
        precompute: adds fields to a batch where it is cut (`Architecture.precomputed`).
        draws: give `precompute` a generator, which follows from the sampler's seed, the epoch and the batch's graphs.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> table = tiny_table(tiny_spec(), num_graphs=4)
        >>> loader = GraphLoader(table, SizeBucketSampler(table.num_nodes, batch_size=3, shuffle=True))
        >>> sum(batch.num_graphs for batch in loader)
        4
    """

    def __init__(
        self,
        table: GraphTable,
        batch_sampler: SizeBucketSampler,
        num_workers: int = 0,
        cut: Cut | None = None,
        precompute: Precompute | None = None,
        draws: bool = False,
    ) -> None:
        check_range("num_workers", num_workers, at_least=0, whole=True)
        self.precompute, self.draws = precompute, draws
        self.table, self.batch_sampler, self.cut = table, batch_sampler, cut
        self.num_workers = num_workers
        self._progress = (0, 0)
        self._loader: DataLoader[GraphBatch | PackedBatch] | None = None

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[GraphBatch]:
        self.batch_sampler.begin()
        # Read before the sampler starts: it sets `start` back to 0 with its first batch.
        epoch, done = self.batch_sampler.epoch, self.batch_sampler.start
        self._progress = (epoch, done)
        if self._loader is None:
            self._loader = self._open()
        for batch in self._loader:
            done += 1
            self._progress = (epoch, done)
            yield batch.unpack() if isinstance(batch, PackedBatch) else batch

    def _open(self) -> DataLoader[GraphBatch | PackedBatch]:
        """Build the underlying loader: forked workers where possible, and a generator of its own."""
        # Forked workers inherit the table; spawned ones would each get a copy through a pipe.
        context = None
        if self.num_workers and "fork" in multiprocessing.get_all_start_methods():
            context = multiprocessing.get_context("fork")
        return DataLoader(
            _Rows(self.table, self.cut, self.precompute),
            batch_sampler=cast(Any, _Seeded(self.batch_sampler, self.draws)),
            num_workers=self.num_workers,
            collate_fn=_unchanged,
            persistent_workers=self.num_workers > 0,
            multiprocessing_context=context,
            # A DataLoader draws a seed for each iterator, by default from the global generator, as training does.
            generator=torch.Generator().manual_seed(self.batch_sampler.seed),
        )

    def set_epoch(self, epoch: int) -> None:
        """Choose the shuffle of the next iteration."""
        self.batch_sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the iteration: batches yielded, not those that workers prepared ahead."""
        epoch, done = self._progress
        return self.batch_sampler.state_dict(done if epoch == self.batch_sampler.epoch else 0)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the next iteration of that epoch after the state's batches."""
        self.batch_sampler.load_state_dict(state)
        self._progress = (self.batch_sampler.epoch, self.batch_sampler.start)

    def replace(self, loaders: list[GraphLoader]) -> None:
        """Take the place of loaders of the same batches, as a loop makes them that asks for one in every epoch.

        Their workers end, else there would be more with each epoch; and the shuffle goes on, else it would be one.
        Loaders that are replaced are taken out of the list.
        """
        order = self.batch_sampler
        for one in [one for one in loaders if one.table is self.table and one.batch_sampler.shuffle == order.shuffle]:
            loaders.remove(one)
            one.close()
            order.set_epoch(one.batch_sampler.next_epoch)

    def close(self) -> None:
        """End the workers; the next iteration starts new ones."""
        self._loader = None
