"""The attention of Performer: its equation, PyG's module, and what padding must not do."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_baselines import GPS
from graphbench_baselines.performer import PerformerBranch

DIM, HEADS, WIDTH = 8, 2, 64
SIZES = (5, 1, 9)


@pytest.fixture
def branch():
    torch.manual_seed(0)
    return PerformerBranch(DIM, HEADS).double().eval()


def nodes():
    return torch.randn(sum(SIZES), DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def run(branch, x, sizes):
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return branch(x, Data(num_nodes=len(x)), DenseLayout.from_batch(batch))


def test_attention_is_the_sum_over_the_nodes_of_the_graph(branch):
    """Node by node and head by head, with the weights f(q_i) . f(k_j) over their sum."""
    x, own, first = nodes(), branch.performer, 0
    features = own.fast_attn.projection_matrix
    expected = torch.zeros(len(x), HEADS * WIDTH, dtype=torch.float64)
    for size in SIZES:
        part = x[first : first + size]
        q, k, v = (part @ linear.weight.T for linear in (own.q, own.k, own.v))
        for head in range(HEADS):
            columns = slice(head * WIDTH, (head + 1) * WIDTH)
            for i in range(size):
                f_q = (features @ q[i, columns]).relu() + 0.001
                weights = torch.stack([f_q @ ((features @ k[j, columns]).relu() + 0.001) for j in range(size)])
                expected[first + i, columns] = weights / weights.sum() @ v[:, columns]
        first += size
    expected = expected @ own.attn_out.weight.T + own.attn_out.bias
    torch.testing.assert_close(run(branch, x, SIZES), expected, atol=1e-10, rtol=1e-10)


def test_without_padding_it_is_the_module_of_pyg(branch):
    x = nodes()
    torch.testing.assert_close(run(branch, x, [15]), branch.performer(x[None])[0], atol=1e-10, rtol=1e-10)


def test_features_are_orthogonal_and_saved(branch):
    features = branch.performer.fast_attn.projection_matrix
    assert len(features) == int(WIDTH * torch.log(torch.tensor(float(WIDTH))))
    block = features[:WIDTH]
    torch.testing.assert_close(block @ block.T, torch.eye(WIDTH).double(), atol=1e-5, rtol=0)
    assert any("projection_matrix" in name for name in branch.state_dict())


def test_parameters_and_heads(spec):
    assert sum(p.numel() for p in PerformerBranch(DIM, HEADS).parameters()) == 256 * HEADS * DIM + DIM
    with pytest.raises(BadInput, match="num_heads=3 and hidden_dim=64"):
        GPS(spec, attention="Performer", num_heads=3, local_layer="GINE")
