"""Graph-Mamba: the order in which nodes are read, buckets, evaluation, and the shipped configurations."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_baselines import GraphMamba
from graphbench_baselines.draws import fixed_uniforms
from graphbench_baselines.graph_mamba import MambaBranch

DIM = 8
NAMES = sorted(path.stem for path in (Path(__file__).parents[1] / "configs" / "graphmamba").glob("*.yaml"))


def make(num_orders, num_buckets):
    torch.manual_seed(0)
    return MambaBranch(DIM, num_orders, num_buckets, seed=3).double().eval()


def features(batch):
    return torch.randn(batch.num_nodes, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("num_orders", "num_buckets"), [(1, 1), (3, 1), (2, 3)])
def test_nodes_are_read_by_degree_graph_by_graph(batch, num_orders, num_buckets):
    """Each bucket of each graph is a sequence of its own; evaluation is the mean over the orders."""
    branch, x = make(num_orders, num_buckets), features(batch)
    leaving = [int((batch.edge_index[0] == node).sum()) for node in range(len(x))]
    numbers = fixed_uniforms(batch.max_nodes, 2 * num_orders, seed=3)
    expected = torch.zeros_like(x)
    for order in range(num_orders):
        noise, choice = numbers[:, 2 * order], numbers[:, 2 * order + 1]
        for graph in range(batch.num_graphs):
            start, stop = batch.ptr[graph].item(), batch.ptr[graph + 1].item()
            for bucket in range(num_buckets):
                members = [i for i in range(start, stop) if int(choice[i - start] * num_buckets) == bucket]
                members.sort(key=lambda i: leaving[i] + noise[i - start].item())
                if members:
                    expected[members] += branch.mamba(x[members][None])[0] / num_orders
    found = branch(x, batch, DenseLayout.from_batch(batch))
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


def test_training_samples_orders_and_evaluation_does_not(batch):
    branch, x, layout = make(5, 3), features(batch), DenseLayout.from_batch(batch)
    assert torch.equal(branch(x, batch, layout), branch(x, batch, layout))
    branch.train()
    torch.manual_seed(0)
    first, second = branch(x, batch, layout), branch(x, batch, layout)
    assert not torch.allclose(first, second)
    torch.manual_seed(0)
    assert torch.equal(first, branch(x, batch, layout))


def test_layers_take_other_orders(spec):
    assert [layer.attention.seed for layer in GraphMamba(spec, num_layers=3).layers] == [0, 1, 2]


@pytest.mark.parametrize("name", NAMES)
def test_configurations_have_the_parameters_they_expect(recipe, name):
    found = recipe(f"graphmamba/{name}")
    assert found.config["expected"]["parameters"] == found.parameters


@pytest.mark.parametrize("option", ["num_orders", "num_buckets", "num_layers"])
def test_options_below_one_are_refused(spec, option):
    with pytest.raises(BadInput, match=option):
        GraphMamba(spec, **{option: 0})
