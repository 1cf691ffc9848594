"""Sequences of tokens, and the base class of their benchmarks, which computes positions and towers for each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.benchmarks.tables import make_table
from graphbench.contracts import SPLITS, GraphBatch, GraphTable
from graphbench.contracts.table import GRAPH, NODE, Column
from graphbench.data.checks import check_table
from graphbench.data.worker_pool import map_in_processes

#: Column for pairs of documents: first token of the second document, counted within the sequence.
SECOND = "second"


@dataclass(frozen=True)
class Sequences:
    """S labelled sequences, one after the other without padding.

    Args:
        tokens: uint8 `[sum(lengths)]`.
        lengths: number of tokens of each `[S]`, int64.
        labels: class of each `[S]`, uint8.
        second: first token of the second document, counted within the sequence, int32 `[S]`; None for single documents.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray
    second: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def join(cls, texts: Sequence[bytes], labels: np.ndarray, pairs: bool = False) -> Sequences:
        """Join byte strings, one per sequence, or two with `pairs`.

        Examples:
            >>> Sequences.join([b"a", b"bc", b"", b"d"], np.array([0, 1]), pairs=True).second.tolist()
            [1, 0]
        """
        sizes = np.array([len(text) for text in texts], dtype=np.int64).reshape(-1, 2 if pairs else 1)
        tokens = np.frombuffer(b"".join(texts), dtype=np.uint8).copy()
        second = sizes[:, 0].astype(np.int32) if pairs else None
        return cls(tokens, sizes.sum(1), labels.astype(np.uint8), second)


#: Samples sequences, given a seed and their number.
Draw = Callable[[tuple[int, ...], int], Sequences]


class SequenceTable(GraphTable):
    """A table of sequences: `batch` computes `pos` and, for pairs of documents, the tower in `x`.

    `pos [num_nodes, 1]` is 0, 1, 2, ... within a document, in float32. Storing it would take four times the space of
    the tokens.
    """

    @classmethod
    def of(cls, table: GraphTable) -> SequenceTable:
        """Wrap the columns of a table."""
        return cls(table.columns, table.layout, table.ptr, table.graph_ids)

    def with_columns(
        self, columns: Mapping[str, Tensor], layout: Mapping[str, Column], ptr: Mapping[str, Tensor] | None = None
    ) -> SequenceTable:
        """Add columns, see `GraphTable.with_columns`."""
        return self.of(super().with_columns(columns, layout, ptr))

    def slice(self, start: int, stop: int) -> SequenceTable:
        """Take consecutive graphs, see `GraphTable.slice`."""
        return self.of(super().slice(start, stop))

    def select(self, indices: Tensor) -> SequenceTable:
        """Copy chosen graphs, see `GraphTable.select`."""
        return self.of(super().select(indices))

    def batch(self, indices: Sequence[int] | Tensor) -> GraphBatch:
        """Gather a batch with positions and towers, see `GraphTable.batch`."""
        batch = super().batch(indices)
        second = batch[SECOND][:, 0] if SECOND in batch else None
        batch.pos, tower = places(batch.ptr, second)
        if tower is not None:
            batch.x = torch.cat([batch.x, tower], dim=1)
            del batch[SECOND]
        return batch


def places(ptr: Tensor, second: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Compute the position of every token in its document, float32 `[num_nodes, 1]`, and its tower `[num_nodes, 1]`.

    `ptr` has the first token of every sequence `[S + 1]`, `second` the first token of its second document `[S]`; for
    single documents it is None, and there is no tower.
    """
    lengths = ptr.diff()
    place = torch.arange(int(ptr[-1])) - torch.repeat_interleave(ptr[:-1], lengths)
    if second is None:
        return place[:, None].float(), None
    start = torch.repeat_interleave(second.to(torch.int64), lengths)
    tower = place >= start
    return torch.where(tower, place - start, place)[:, None].float(), tower[:, None].to(torch.int64)


class SequenceBenchmark(GraphBenchmark):
    """Base of benchmarks whose graphs are sequences: nodes in order, no edges."""

    takes_graphs: ClassVar[bool] = False
    python_input: ClassVar[str] = ""

    def open_tables(self) -> None:
        """Open the store; batches get positions and towers, which are not stored."""
        super().open_tables()
        self.tables = {split: SequenceTable.of(table) for split, table in self.tables.items()}

    def checked(self, chunks: Iterable[GraphTable], split: str) -> Iterator[GraphTable]:
        """Check sequences with their positions and towers, which are not stored."""
        first = 0
        for chunk in chunks:
            second = chunk.columns[SECOND][:, 0] if SECOND in chunk.columns else None
            pos, tower = places(chunk.ptr[NODE], second)
            x = chunk.columns["x"]
            columns = {"pos": pos, "x": x if tower is None else torch.cat([x, tower], dim=1)}
            check_table(chunk.with_columns(columns, {"pos": Column(NODE)}), self.spec, split, first)
            first += len(chunk)
            yield chunk

    def drawn(self, draw: Draw, seed: int, chunk: int) -> dict[str, Iterator[GraphTable]]:
        """Sample splits of the specified sizes on all cores, with a picklable function and in chunks."""
        return self.sampled(lambda number, size: self._drawn(draw, (seed, number), chunk, size))

    def _drawn(self, draw: Draw, seed: tuple[int, int], chunk: int, size: int) -> Iterator[GraphTable]:
        jobs = [((*seed, start), min(chunk, size - start)) for start in range(0, size, chunk)]
        description = f"Sampling {self.spec.name} {SPLITS[seed[1]]}"
        unit = f"chunks of {chunk} sequences"
        for sequences in map_in_processes(partial(_call, draw), jobs, len(jobs), description, unit=unit):
            yield to_table(sequences)


def _call(draw: Draw, job: tuple[tuple[int, ...], int]) -> Sequences:
    return draw(*job)


def to_table(sequences: Sequences) -> GraphTable:
    """Create a table of tokens `x`, classes `y` and, for pairs of documents, `second`."""
    table = token_table(sequences.tokens, sequences.lengths, sequences.second)
    return table.with_columns({"y": torch.from_numpy(sequences.labels)[:, None]}, {"y": Column(GRAPH)})


def token_table(tokens: np.ndarray, lengths: np.ndarray, second: np.ndarray | None) -> GraphTable:
    """Create a table of sequences without classes; arguments are as in `Sequences`."""
    columns = {"x": (tokens[:, None], NODE)}
    if second is not None:
        columns[SECOND] = (second[:, None], GRAPH)
    return make_table(columns, lengths)
