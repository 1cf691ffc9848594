"""Random graphs instead of data that are not available, so that a recipe can be tried for a few steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from graphbench import registry
from graphbench.benchmarks.base import GraphBenchmark
from graphbench.contracts import SPLITS, GraphTable
from graphbench.errors import BadInput
from graphbench.testing.tiny import tiny_table

#: Nodes of a graph with coordinates, among which models choose neighbours and centres; other graphs have 3 to 7.
_POINTS = 1024


class StandIn(GraphBenchmark):
    """Random graphs with the features, targets and metric of another benchmark, whose data are not opened.

    Scores on them are meaningless; `graphbench reproduce --scale smoke` uses them instead of data to download.

    Args:
        of: registered name of the benchmark.
        of_options: its options, as far as its specification depends on them.
        sizes: graphs in the train, validation and test splits.
        options: see `GraphBenchmark`.

    Raises:
        BadInput: the benchmark does not accept the options.
        UnknownName: there is no such benchmark.
    """

    def __init__(
        self, of: str, of_options: dict[str, Any] | None = None, sizes: tuple[int, int, int] = (8, 4, 4), **options: Any
    ) -> None:
        super().__init__(**options)
        self.of, self.of_options, self.sizes = of, of_options or {}, sizes
        try:
            spec = registry.load("benchmarks", of)(**self.of_options).spec
        except TypeError as error:
            raise BadInput(f"of_options: {of} does not accept them: {error}") from error
        #: The other benchmark's specification, for these graphs.
        self.spec = dataclasses.replace(spec, split_sizes=sizes, source="generated stand-in", offline=True)

    def source_key(self) -> dict[str, Any]:
        """Identify the graphs."""
        return {"of": self.of, "options": self.of_options, "sizes": list(self.sizes)}

    def read(self) -> Mapping[str, GraphTable]:
        """Sample each split."""
        return {
            split: self._sample(count, seed) for seed, (split, count) in enumerate(zip(SPLITS, self.sizes, strict=True))
        }

    def _sample(self, count: int, seed: int) -> GraphTable:
        points = self.spec.coordinates > 1
        table = tiny_table(self.spec, count, seed, sizes=[_POINTS] * count if points else None, edges=not points)
        if "category" in self.spec.node.names:  # one per object, whose points have labels of the category's parts
            # All objects have the same number of points: every _POINTS-th row is the first of an object.
            first = table.columns["x"][::_POINTS, :1]
            table.columns["x"][:, :1] = torch.repeat_interleave(first, _POINTS, 0)
            table.columns["y"] = self._parts(table.columns["x"][:, :1], seed)
        return table

    def _parts(self, category: torch.Tensor, seed: int) -> torch.Tensor:
        """Draw a random part of the category of each point `[num_nodes, 1]`."""
        counts = torch.tensor([int(word) for word in self.spec.extra["parts"].split()])
        first = counts.cumsum(0) - counts
        drawn = torch.rand(category.shape, generator=torch.Generator().manual_seed(seed))
        return first[category.long()] + (drawn * counts[category.long()]).long()
