"""What the benchmarks on sequences share: tokens in the store, positions and towers made while a batch is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.benchmarks.sequences.ragged import Sequences
from graphbench.contracts import SPLITS, GraphBatch, GraphTable
from graphbench.contracts.table import EDGE, EDGE_INDEX, GRAPH, NODE, Column, pointer
from graphbench.data.checks import check_table
from graphbench.data.worker_pool import map_in_processes

#: Column of pairs of documents: where the second begins, counted from the first token.
SECOND = "second"
#: Samples some sequences: seed and number of them in, the same out whatever the process.
Draw = Callable[[tuple[int, ...], int], Sequences]


class SequenceTable(GraphTable):
    """A table of sequences: `batch` adds what need not be stored, `pos` and, for pairs of documents, the tower in `x`.

    `pos [num_nodes, 1]` is 0, 1, 2, ... within a document, float32; a token takes one byte on disk and its position
    would take four.
    """

    @classmethod
    def of(cls, table: GraphTable) -> SequenceTable:
        """The same columns."""
        return cls(table.columns, table.layout, table.ptr, table.graph_ids)

    def with_columns(
        self, columns: Mapping[str, Tensor], layout: Mapping[str, Column], ptr: Mapping[str, Tensor] | None = None
    ) -> SequenceTable:
        """As `GraphTable.with_columns`."""
        return self.of(super().with_columns(columns, layout, ptr))

    def slice(self, start: int, stop: int) -> SequenceTable:
        """As `GraphTable.slice`."""
        return self.of(super().slice(start, stop))

    def select(self, indices: Tensor) -> SequenceTable:
        """As `GraphTable.select`."""
        return self.of(super().select(indices))

    def batch(self, indices: Sequence[int] | Tensor) -> GraphBatch:
        """As `GraphTable.batch`, with positions and towers."""
        batch = super().batch(indices)
        second = batch[SECOND][:, 0] if SECOND in batch else None
        batch.pos, tower = places(batch.ptr, second)
        if tower is not None:
            batch.x = torch.cat([batch.x, tower], dim=1)
            del batch[SECOND]
        return batch


def places(ptr: Tensor, second: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Position of every token in its document, float32 `[num_nodes, 1]`, and its tower `[num_nodes, 1]`.

    Args:
        ptr: first token of every sequence `[S + 1]`.
        second: where the second documents begin within their sequences `[S]`; None for single documents, which have
            no tower.
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
        """Open the store; tables hand out positions and towers, which are not stored."""
        super().open_tables()
        self.tables = {split: SequenceTable.of(table) for split, table in self.tables.items()}

    def checked(self, chunks: Iterable[GraphTable], split: str) -> Iterator[GraphTable]:
        """Check sequences with their positions and towers; what is stored goes without."""
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
        """Splits of the specification's sizes, sampled on all cores; equal seeds sample equal sequences.

        Args:
            draw: importable; samples the sequences of a job.
            seed: of the whole set.
            chunk: sequences a job.
        """
        sizes = zip(SPLITS, self.spec.split_sizes or (), strict=True)
        return {split: self._drawn(draw, (seed, number), chunk, size) for number, (split, size) in enumerate(sizes)}

    def _drawn(self, draw: Draw, seed: tuple[int, int], chunk: int, size: int) -> Iterator[GraphTable]:
        jobs = [((*seed, start), min(chunk, size - start)) for start in range(0, size, chunk)]
        description = f"Sampling {self.spec.name} {SPLITS[seed[1]]}"
        unit = f"chunks of {chunk} sequences"
        for sequences in map_in_processes(partial(_call, draw), jobs, len(jobs), description, unit=unit):
            yield to_table(sequences)


def _call(draw: Draw, job: tuple[tuple[int, ...], int]) -> Sequences:
    return draw(*job)


def to_table(sequences: Sequences) -> GraphTable:
    """Sequences as a table of tokens `x`, classes `y` and, for pairs of documents, `second`."""
    columns = {
        "x": torch.from_numpy(sequences.tokens)[:, None],
        "y": torch.from_numpy(sequences.labels)[:, None],
        "edge_index": torch.zeros(0, 2, dtype=torch.uint8),
    }
    layout = {"x": Column(NODE), "y": Column(GRAPH), "edge_index": EDGE_INDEX}
    if sequences.second is not None:
        columns[SECOND], layout[SECOND] = torch.from_numpy(sequences.second)[:, None], Column(GRAPH)
    lengths = torch.from_numpy(sequences.lengths)
    return GraphTable(columns, layout, {NODE: pointer(lengths), EDGE: pointer(torch.zeros_like(lengths))})
