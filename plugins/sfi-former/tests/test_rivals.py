"""Plain regularisers of attention: against bisection, formulas written row by row, and the loss of a training step."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from graphbench import BenchmarkModule
from graphbench.errors import BadInput
from graphbench.nn import DenseLayout, HeadConfig
from graphbench.testing import tiny_batch, tiny_spec, tiny_table
from graphbench_sfi_former import DenseFlowAttention, DFiFormer, SparseFlowAttention
from graphbench_sfi_former.layers import RIVALS, RivalAttention, sparsemax

DIM, HEADS = 6, 2


def projected_by_bisection(row):
    """Nearest point of the simplex: the level tau at which `sum max(s - tau, 0)` is one, halved 200 times."""
    low, high = row.min() - 1, row.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (row - middle).clamp(min=0).sum() > 1 else (low, middle)
    return (row - low).clamp(min=0)


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_sparsemax_is_the_nearest_point_of_the_simplex(scale):
    generator = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(20, 9, generator=generator, dtype=torch.float64)
    logits[3, 1:] = logits[3, :1]  # ties
    expected = torch.stack([projected_by_bisection(row) for row in logits])
    torch.testing.assert_close(sparsemax(logits), expected, atol=1e-12, rtol=0)
    hidden = torch.cat([logits, torch.full((20, 3), -torch.inf, dtype=torch.float64)], 1)
    torch.testing.assert_close(sparsemax(hidden)[:, :9], expected, atol=1e-12, rtol=0)
    assert not sparsemax(hidden)[:, 9:].any()
    assert (sparsemax(logits.bfloat16()).sum(-1) - 1).abs().max() < 1e-6


def test_gradient_of_sparsemax_is_that_of_finite_differences():
    torch.manual_seed(0)
    logits = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(sparsemax, (logits,))


def test_large_logits_lose_nothing_in_single_precision():
    logits = torch.tensor([[1e6, 1e6 - 0.5, 0.0]])
    torch.testing.assert_close(sparsemax(logits), torch.tensor([[0.75, 0.25, 0.0]]))


@pytest.fixture
def graphs():
    batch = tiny_table(tiny_spec(), sizes=[5, 2, 9, 1]).batch(range(4))
    x = torch.randn(batch.num_nodes, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return x, batch, DenseLayout.from_batch(batch)


def test_rows_without_a_source_get_no_flow(graphs):
    torch.manual_seed(0)
    x, batch, layout = graphs
    graph = torch.ones(4, 1, 9, 9, dtype=torch.bool)
    closed = torch.tensor([0, 3, 6, 16])  # two rows of a graph, one of another, and a graph of one node
    graph[batch.batch[closed], 0, closed - batch.ptr[batch.batch[closed]]] = False
    rivals = [partial(RivalAttention, rival=rival) for rival in RIVALS]
    for kind in (SparseFlowAttention, DenseFlowAttention, *rivals):
        layer = kind(DIM, HEADS, terms="flow", extra_parameters=False).double().eval()
        out, whole = layer(x, batch, layout, graph), layer(x, batch, layout)
        torch.testing.assert_close(out[closed], layer.out_proj.bias.expand(4, -1))
        others = torch.ones(len(x), dtype=torch.bool).index_fill(0, closed, False)
        torch.testing.assert_close(out[others], whole[others])
        out.sum().backward()
        assert all(p.grad.isfinite().all() for p in layer.parameters() if p.grad is not None)


def logits_of(layer, rows):
    """Logits `[H, n, n]` of one graph."""
    projected = layer.in_proj(rows).view(len(rows), 3, HEADS, DIM).permute(1, 2, 0, 3)
    return projected[0] @ projected[1].transpose(1, 2) / DIM**0.5


@pytest.mark.parametrize("rival", ["entropy", "l2"])
def test_penalty_is_the_mean_over_rows_and_heads(graphs, rival):
    torch.manual_seed(0)
    x, batch, layout = graphs
    layer = RivalAttention(DIM, HEADS, rival=rival).double()
    layer(x, batch, layout)
    rows = []
    for graph in range(batch.num_graphs):
        weights = logits_of(layer, x[batch.ptr[graph] : batch.ptr[graph + 1]]).softmax(-1)
        own = torch.special.entr(weights).sum(-1) if rival == "entropy" else 1 - (weights**2).sum(-1)
        rows.append(own.flatten())
    torch.testing.assert_close(layer.take_row_penalty(), torch.cat(rows).mean())
    assert layer.take_row_penalty() is None
    graph = torch.ones(4, 1, 9, 9, dtype=torch.bool)
    graph[0, 0, 0] = False  # a row without a source has weights of 0, hence no penalty
    layer(x, batch, layout, graph)
    rows[0].view(HEADS, 5)[:, 0] = 0
    torch.testing.assert_close(layer.take_row_penalty(), torch.cat(rows).mean())


def test_sparsemax_takes_the_place_of_softmax(graphs):
    torch.manual_seed(0)
    x, batch, layout = graphs
    layer = RivalAttention(DIM, HEADS, rival="sparsemax", terms="flow", extra_parameters=False).double()
    with torch.no_grad():
        layer.in_proj.linear.weight.mul_(4)
    expected = []
    for graph in range(batch.num_graphs):
        rows = x[batch.ptr[graph] : batch.ptr[graph + 1]]
        value = layer.in_proj(rows).view(len(rows), 3, HEADS, DIM)[:, 2].transpose(0, 1)
        flat = logits_of(layer, rows).flatten(0, 1)
        weights = torch.stack([projected_by_bisection(row) for row in flat]).view(HEADS, len(rows), len(rows))
        expected.append(layer.out_proj((weights @ value).transpose(0, 1).flatten(1)))
    torch.testing.assert_close(layer(x, batch, layout), torch.cat(expected))
    assert layer.take_row_penalty() is None


def test_a_training_step_has_the_penalty_in_its_loss():
    """Only the penalty depends on the weight: the loss grows in proportion to it."""
    losses = {}
    for weight in (0.0, 1.0, 3.0):
        torch.manual_seed(0)
        options = {"hidden_dim": 8, "num_layers": 2, "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
        module = BenchmarkModule(
            tiny_spec(),
            lambda spec, w=weight, o=options: DFiFormer(spec, rival="entropy", rival_weight=w, **o),
            HeadConfig(),
        )
        representation = module.represent(tiny_batch(module.architecture))
        losses[weight] = representation.penalty
    assert losses[0.0] == 0
    assert losses[1.0] > 0
    torch.testing.assert_close(losses[3.0], 3 * losses[1.0])


def test_penalty_reaches_queries_and_keys_alone():
    torch.manual_seed(0)
    model = DFiFormer(tiny_spec(), hidden_dim=8, num_layers=1, num_heads=2, rival="l2")
    model(tiny_batch(model)).penalty.backward()
    heads = model.layers[0].attention.in_proj.linear.weight.grad.unflatten(0, (3, -1))
    assert heads[0].any()
    assert heads[1].any()
    assert not heads[2].any()
    assert model.layers[0].feed_forward.expand.weight.grad is None


def test_an_unknown_rival_is_an_error():
    with pytest.raises(BadInput, match="l1"):
        DFiFormer(tiny_spec(), hidden_dim=8, num_layers=1, num_heads=2, rival="l1")
