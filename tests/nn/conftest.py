"""Small random graphs shared by the tests of layers."""

from __future__ import annotations

import pytest
import torch

from graphbench import BenchmarkSpec, Features, GraphTable
from graphbench.nn import size_blocks

#: Nodes of each graph; two graphs have no edges, one of them is a single node.
SIZES = (5, 1, 9, 4, 12, 3)


@pytest.fixture(autouse=True)
def _blocks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each size its own block; otherwise graphs of a few nodes would share one."""
    monkeypatch.setattr(size_blocks, "BLOCK_COST", 0)


@pytest.fixture
def spec() -> BenchmarkSpec:
    return BenchmarkSpec("Tiny", "graph-regression", Features((7, 3), dense=2), Features((4,)), "MAE", False, "L1")


@pytest.fixture
def table() -> GraphTable:
    generator = torch.Generator().manual_seed(1)
    graphs = []
    for n in SIZES:
        num_edges = 0 if n in (1, 3) else 2 * n
        graphs.append(
            {
                "num_nodes": n,
                "edge_index": torch.randint(0, n, (2, num_edges), generator=generator),
                "x": torch.stack([torch.randint(0, size, (n,), generator=generator) for size in (7, 3)], dim=1),
                "x_dense": torch.randn(n, 2, generator=generator),
                "edge_attr": torch.randint(0, 4, (num_edges, 1), generator=generator),
                "y": torch.randn(1, generator=generator),
            }
        )
    return GraphTable.from_graphs(graphs)


@pytest.fixture
def batch(table):
    return table.batch(range(len(SIZES)))
