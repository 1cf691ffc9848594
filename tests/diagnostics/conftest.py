"""Ragged tokens and patterns for the tests of diagnostics."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphbench.diagnostics import Patterns


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


@pytest.fixture
def sizes() -> list[int]:
    """Return numbers of nodes: fewer and more than the token width, equal ones and a single node."""
    return [3, 17, 1, 8, 30, 8]


@pytest.fixture
def batch(sizes: list[int]) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))


@pytest.fixture
def tokens(batch: Tensor, generator: torch.Generator) -> Tensor:
    """Return random tokens of width 12, of low rank in graph 4."""
    tokens = torch.randn(len(batch), 12, generator=generator)
    low = torch.randn(30, 4, generator=generator) @ torch.randn(4, 12, generator=generator)
    tokens[batch == 4] = low
    return tokens


@pytest.fixture
def patterns(sizes: list[int], generator: torch.Generator) -> Patterns:
    """Return 0 to 40 random substructures a graph; graph 2 has one, graph 3 none."""
    nodes, subs, graphs, first = [], [], [], 0
    for graph, (n, count) in enumerate(zip(sizes, [4, 40, 1, 0, 7, 21], strict=True)):
        for _ in range(count):
            size = int(torch.randint(1, n + 1, (1,), generator=generator))
            nodes.append(torch.randperm(n, generator=generator)[:size] + first)
            subs.append(torch.full((size,), len(graphs)))
            graphs.append(graph)
        first += n
    return Patterns.uniform(torch.cat(nodes), torch.cat(subs), torch.tensor(graphs), torch.tensor(sizes))
