"""Small random graphs, and a stand-in for positional encoders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from graphbench import BenchmarkSpec, Features, GraphTable

#: Nodes of each graph; two of them have no edge, one of these is a single node.
SIZES = (5, 1, 9, 4, 12, 3)


@pytest.fixture
def spec() -> BenchmarkSpec:
    return BenchmarkSpec("Tiny", "graph-regression", Features((7, 3), dense=2), Features((4,)), "MAE", False, "L1")


@pytest.fixture
def graphs() -> list[dict]:
    generator = torch.Generator().manual_seed(1)
    made = []
    for n in SIZES:
        num_edges = 0 if n in (1, 3) else 2 * n
        made.append(
            {
                "num_nodes": n,
                "edge_index": torch.randint(0, n, (2, num_edges), generator=generator),
                "x": torch.stack([torch.randint(0, size, (n,), generator=generator) for size in (7, 3)], dim=1),
                "x_dense": torch.randn(n, 2, generator=generator),
                "edge_attr": torch.randint(0, 4, (num_edges, 1), generator=generator),
                "y": torch.randn(1, generator=generator),
            }
        )
    return made


@pytest.fixture
def batch(graphs):
    return GraphTable.from_graphs(graphs).batch(range(len(graphs)))


def mask(shape: Sequence[int], p: float) -> Tensor:
    """What the fixed dropout multiplies a tensor of a shape with; about a share p of it is zero."""
    numbers = torch.arange(math.prod(shape), dtype=torch.float64)
    return ((numbers * 0.618034 % 1.0) >= p).double().reshape(tuple(shape)) / (1.0 - p)


@pytest.fixture
def fixed_dropout(monkeypatch) -> Callable[[Tensor, float], Tensor]:
    """Dropout by masks that depend on the shape alone, for whoever calls `torch.nn.functional.dropout`."""

    def dropped(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return x * mask(x.shape, p) if training and p else x

    monkeypatch.setattr(torch.nn.functional, "dropout", dropped)
    return dropped
