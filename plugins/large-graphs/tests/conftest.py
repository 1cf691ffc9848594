"""Small graphs in float64, their dense adjacency matrices, and a large graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphbench import BenchmarkSpec, GraphBatch, GraphTable
from graphbench.testing import tiny_spec, tiny_table

#: Nodes of each graph; one of them is a single node.
SIZES = (5, 1, 9, 4)


@pytest.fixture
def spec() -> BenchmarkSpec:
    return tiny_spec("node-classification", "dense")


@pytest.fixture
def batch(spec) -> GraphBatch:
    return in_float64(tiny_table(spec, sizes=SIZES).batch(range(len(SIZES))))


def in_float64(batch: GraphBatch) -> GraphBatch:
    return batch.apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)


@pytest.fixture
def adjacency(batch) -> Tensor:
    """Return the number of edges from j to i at `[i, j]`, for the whole batch."""
    dense = torch.zeros(batch.num_nodes, batch.num_nodes, dtype=torch.float64)
    dense.index_put_((batch.edge_index[1], batch.edge_index[0]), torch.ones(1, dtype=torch.float64), accumulate=True)
    return dense


@pytest.fixture
def symmetric(adjacency) -> Tensor:
    """`D^(-1/2) (A + I) D^(-1/2)`."""
    looped = adjacency + torch.eye(len(adjacency), dtype=torch.float64)
    scale = looped.sum(1).rsqrt()
    return scale[:, None] * looped * scale


@pytest.fixture
def same_graph(batch) -> Tensor:
    """Mask of the pairs of nodes of one graph, bool `[T, T]`."""
    return batch.batch[:, None] == batch.batch[None, :]


@pytest.fixture
def made() -> Callable[..., torch.nn.Module]:
    """Function: a module in float64 and evaluation mode, with random parameters and statistics."""

    def make(build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
        torch.manual_seed(0)
        module = build().double().eval()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(0.5 * torch.randn_like(parameter))
            for name, buffer in module.named_buffers():
                if name.endswith(("running_mean", "running_var")):
                    buffer.copy_(torch.rand_like(buffer) + 0.5)
        return module

    return make


@pytest.fixture
def one_graph(spec) -> Callable[[int], GraphBatch]:
    """Function: a batch of one graph of n nodes and 4 n directed edges, a ring and chords."""

    def make(n: int) -> GraphBatch:
        generator = torch.Generator().manual_seed(n)
        node = torch.arange(n)
        ends = torch.cat([(node + 1) % n, torch.randperm(n, generator=generator)])
        half = torch.stack([node.repeat(2), ends])
        graph = {
            "num_nodes": n,
            "edge_index": torch.cat([half, half.flip(0)], dim=1),
            "x_dense": torch.randn(n, spec.node.dense, generator=generator),
        }
        return GraphTable.from_graphs([graph]).batch([0])

    return make
