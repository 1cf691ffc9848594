from __future__ import annotations

import pytest
import torch

from graphbench.contracts import Column, Encoded, Encoding, GraphTable
from graphbench.data.store import Store


def random_table(num_graphs=40, seed=0, low=2, high=30):
    """Return graphs of random sizes with all usual columns; graph g has y = g."""
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for graph in range(num_graphs):
        n, e = (int(torch.randint(low, high, (), generator=generator)) for _ in range(2))
        graphs.append(
            {
                "num_nodes": n,
                "edge_index": torch.randint(0, n, (2, e), generator=generator),
                "x": torch.randint(0, 5, (n, 1), generator=generator),
                "x_dense": torch.randn(n, 3, generator=generator),
                "edge_attr": torch.randint(0, 4, (e, 1), generator=generator),
                "y": torch.tensor([float(graph)]),
            }
        )
    return GraphTable.from_graphs(graphs)


class SelfSums(Encoding):
    """An encoding with a field on every kind of axis, cheap enough to check by hand."""

    def __init__(self, factor=1):
        self.factor = factor

    def parameters(self):
        return {"factor": self.factor}

    @property
    def layout(self):
        return {
            "scaled": Column("node"),
            "total": Column("graph"),
            "outer": Column("pair"),
            "member": Column("half", index_of="node"),
        }

    def compute(self, graphs):
        x = graphs.columns["x"][:, 0] * self.factor
        parts = x.split(graphs.num_nodes.tolist())
        halves = torch.tensor([(len(part) + 1) // 2 for part in parts])
        return Encoded(
            {
                "scaled": x,
                "total": torch.stack([part.sum() for part in parts]),
                "outer": torch.cat([part.outer(part).flatten() for part in parts]),
                "member": torch.cat([torch.arange(int(half)) for half in halves]),
            },
            {"half": torch.cat([torch.zeros(1, dtype=torch.int64), halves.cumsum(0)])},
        )


@pytest.fixture
def make_table():
    return random_table


@pytest.fixture
def self_sums():
    return SelfSums


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")
