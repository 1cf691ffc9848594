"""Load batches of a `GraphTable` in this process or in workers, and resume within an epoch."""

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
#: Alignment of tensors in bytes: a cache line, and a multiple of the size of every dtype.
_ALIGNMENT = 64
#: Maps row numbers from the sampler to a batch.
Cut = Callable[[Sequence[int]], GraphBatch]
#: Maps a batch, and a generator for random choices in training, to the batch with more fields.
Precompute = Callable[[GraphBatch, torch.Generator | None], GraphBatch]


@dataclass
class PackedBatch:
    """Tensors of a `GraphBatch` in one buffer, to send them from a worker to the training process and to a GPU.

    A batch has about a dozen tensors. Sent one by one, each needs a file of shared memory that one process creates and
    the other maps, which takes longer than cutting a batch of small graphs. `speed/data_path.py` prints the rate. To a
    GPU, each would need a separate copy.

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
        """Copy the tensors of a CPU batch into one buffer; if it is pinned, copies to a GPU do not block."""
        fields = batch.to_dict()
        tensors = {name: value.contiguous() for name, value in fields.items() if isinstance(value, Tensor)}
        parts, end = {}, 0
        for name, tensor in tensors.items():
            parts[name] = (end, tensor.dtype, tensor.shape)
            # Round up: a view with another dtype must start at a multiple of its item size.
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
        """Copy all tensors to a GPU at once, without blocking if they are in page-locked memory.

        With a `stream`, the copy overlaps with the computation, and the current stream of the GPU waits for it. By
        default the copy is queued on the current stream.
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
            # Errors here reach the training, which would otherwise wait forever for a batch that the thread cannot send
            packed.buffer.share_memory_()
            return packed
        finally:
            torch.set_num_threads(threads)


class _Seeded:
    """Batches of a sampler with the seeds of their random choices, since workers do not know the epoch."""

    def __init__(self, sampler: SizeBucketSampler, draws: bool) -> None:
        self.sampler, self.draws = sampler, draws

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[tuple[list[int] | None, list[int]]]:
        for rows in self.sampler:
            yield [self.sampler.seed, self.sampler.epoch, rows[0]] if self.draws else None, rows


def _generator(seeds: Sequence[int]) -> torch.Generator:
    """Create a generator that depends only on the seeds."""
    return torch.Generator().manual_seed(int(random_state(*seeds).randint(1 << 63, dtype=np.int64)))


def _unchanged(batch: Any) -> Any:
    return batch


class GraphLoader:
    """Iterate over the batches of one epoch.

    It wraps a `DataLoader` instead of being one: Lightning rebuilds data loaders with its own samplers (for prediction,
    and on several devices), which would count graphs twice. It leaves other iterables unchanged, passes the epoch to
    `batch_sampler`, and saves `state_dict()` in checkpoints.

    An iterator reads the epoch with its first batch, because Lightning creates iterators before it sets the epoch. If
    `set_epoch` is never called, as in a custom loop, each iteration is the next epoch.

    Args:
        table: the graphs; workers inherit memory-mapped columns without a copy.
        batch_sampler: yields the rows of each batch.
        num_workers: processes that cut batches; 0 cuts them here, which is fastest for small graphs.
        cut: creates a batch from the sampler's items, if these are not rows of whole graphs.
        precompute: adds fields to a batch in the process that cuts it (`Architecture.precomputed`).
        draws: pass `precompute` a generator that depends on the sampler's seed, the epoch and the batch's graphs.

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
        # Read these before the sampler starts: it resets `start` to 0 with its first batch.
        epoch, done = self.batch_sampler.epoch, self.batch_sampler.start
        self._progress = (epoch, done)
        if self._loader is None:
            self._loader = self._open()
        for batch in self._loader:
            done += 1
            self._progress = (epoch, done)
            yield batch.unpack() if isinstance(batch, PackedBatch) else batch

    def _open(self) -> DataLoader[GraphBatch | PackedBatch]:
        """Build the underlying loader, with forked workers if possible and a separate generator."""
        # Forked workers inherit the table; each spawned one would receive a copy through a pipe.
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
            # A DataLoader draws a seed for each iterator, by default from the global generator that training uses.
            generator=torch.Generator().manual_seed(self.batch_sampler.seed),
        )

    def set_epoch(self, epoch: int) -> None:
        """Choose the shuffle of the next iteration."""
        self.batch_sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the iteration; it counts yielded batches, not those that workers prepared ahead."""
        epoch, done = self._progress
        return self.batch_sampler.state_dict(done if epoch == self.batch_sampler.epoch else 0)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume the next iteration of the state's epoch after the batches that are done."""
        self.batch_sampler.load_state_dict(state)
        self._progress = (self.batch_sampler.epoch, self.batch_sampler.start)

    def replace(self, loaders: list[GraphLoader]) -> None:
        """Replace loaders of the same batches, for loops that create a new loader in every epoch.

        The workers of the replaced loaders exit; otherwise their number would grow with each epoch. The shuffle
        continues; otherwise it would be the same in every epoch. Replaced loaders are removed from the list.
        """
        order = self.batch_sampler
        for one in [one for one in loaders if one.table is self.table and one.batch_sampler.shuffle == order.shuffle]:
            loaders.remove(one)
            one.close()
            order.set_epoch(one.batch_sampler.next_epoch)

    def close(self) -> None:
        """Stop the workers; the next iteration starts new ones."""
        self._loader = None
