"""Against PyG's layer with the same weights, which keeps a message per edge and tower."""

from __future__ import annotations

import copy

import pytest
import torch
from torch_geometric.nn import PNAConv

from graphbench.contracts import devices
from graphbench.errors import BadInput
from graphbench.testing import computed_by
from graphbench_baselines.tower_pna import TowerPNA, reduced_messages

NODES, DIM, EDGE_DIM = 7, 12, 5
#: Ascending targets; node 2 sends twice to node 3, node 4 to itself, and nothing arrives at nodes 5 and 6.
EDGES = torch.tensor([[1, 2, 0, 3, 2, 2, 1, 4, 0, 6], [0, 0, 1, 1, 3, 3, 3, 4, 4, 4]])
ARRIVING = torch.tensor([2, 2, 0, 3, 3, 0, 0])


@pytest.fixture(params=["numba", "torch", "apple"], autouse=True)
def way(request, monkeypatch):
    """Every test runs with the loops, with torch's operations, and with those available on Apple's GPUs."""
    if request.param == "apple":
        monkeypatch.setattr(devices, "_APPLE", {"cpu"})
    with computed_by("numba" if request.param == "numba" else "torch"):
        yield request.param


def pair(edge_dim, towers, dtype=torch.float64):
    torch.manual_seed(0)
    ours = TowerPNA(DIM, edge_dim, towers).to(dtype)
    theirs = PNAConv(
        DIM, DIM, ["mean", "sum", "max"], ["identity"], torch.ones(2), edge_dim, towers, divide_input=True
    ).to(dtype)  # fmt: skip
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def results(call, parameters, inputs):
    """Output, and gradients of a weighted sum of it."""
    out = call()
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    return [out, *torch.autograd.grad((out * weight).sum(), [*inputs, *parameters])]


@pytest.mark.parametrize("edge_dim", [None, EDGE_DIM])
@pytest.mark.parametrize("towers", [1, 3, 4])
@pytest.mark.parametrize("equal", [False, True])
def test_outputs_and_gradients_are_those_of_pyg(edge_dim, towers, equal):
    """Also if messages are equal, so that several of them are the largest and share its gradient.

    Weights are then multiples of 1/64, for which every sum is exact: on some CPUs a matrix product rounds its last
    rows in a different order than the others, and equal nodes would send messages that differ in their last bit.
    """
    ours, theirs = pair(edge_dim, towers)
    x = torch.randn(NODES, DIM, dtype=torch.float64)
    edge = torch.randn(EDGES.shape[1], EDGE_DIM, dtype=torch.float64)
    if equal:
        x, edge = torch.ones_like(x), torch.ones_like(edge)
        with torch.no_grad():
            for weight in (*ours.parameters(), *theirs.parameters()):
                weight.copy_((64 * weight).round() / 64)
    inputs = [part.requires_grad_() for part in ((x,) if edge_dim is None else (x, edge))]
    edge = None if edge_dim is None else edge
    found = results(lambda: ours(x, EDGES, edge, ARRIVING), ours.parameters(), inputs)
    expected = results(lambda: theirs(x, EDGES, edge), theirs.parameters(), inputs)
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left, right, atol=1e-12, rtol=1e-12)


def test_float32_with_large_values_is_near_float64():
    """Sums with cancellation lose no more than those of PyG."""
    ours, theirs = pair(EDGE_DIM, 3)
    x, edge = 1e4 * torch.randn(NODES, DIM, dtype=torch.float64), torch.randn(EDGES.shape[1], EDGE_DIM).double()
    exact = theirs(x, EDGES, edge).detach()
    found = ours.float()(x.float(), EDGES, edge.float(), ARRIVING)
    torch.testing.assert_close(found.double(), exact, atol=1e-6 * float(exact.abs().max()), rtol=0)


def test_graphs_without_edges():
    ours, theirs = pair(None, 3)
    x, none = torch.randn(4, DIM, dtype=torch.float64), torch.zeros(2, 0, dtype=torch.long)
    found = ours(x, none, None, torch.zeros(4, dtype=torch.long))
    torch.testing.assert_close(found, theirs(x, none), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_hubs_in_half_precision(dtype):
    """Sums over thousands of messages, and the shares of thousands of equal ones, are not rounded to a few digits."""
    leaves = 3000
    edges = torch.stack([torch.arange(leaves), torch.full((leaves,), leaves)])
    arriving = torch.zeros(leaves + 1, dtype=torch.int64).index_fill(0, edges[1, :1], leaves)
    torch.manual_seed(0)
    layer, x = TowerPNA(DIM, None, 3).to(dtype), torch.rand(leaves + 1, DIM).to(dtype)
    exact = copy.deepcopy(layer).double()(x.double(), edges, None, arriving)
    torch.testing.assert_close(
        layer(x, edges, None, arriving).double(), exact, rtol=0, atol=2e-2 * float(exact.abs().max())
    )
    equal = torch.ones(leaves + 1, DIM, dtype=dtype, requires_grad=True)
    reduced_messages(equal, None, edges, arriving)[1][leaves].sum().backward()
    torch.testing.assert_close(equal.grad.double().sum(0), torch.ones(DIM, dtype=torch.float64), rtol=0, atol=1e-2)


def test_threads_change_no_bit(way):
    if way == "torch":
        pytest.skip("torch's own sums depend on its threads")
    found, before = [], torch.get_num_threads()
    generator = torch.Generator().manual_seed(1)
    arriving = torch.randint(0, 20, (900,), generator=generator)
    count = int(arriving.sum())
    source = torch.randint(0, 900, (count,), generator=generator)
    index = torch.stack([source, torch.arange(900).repeat_interleave(arriving)])
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        torch.manual_seed(2)
        sent, edges = torch.randn(900, 96, requires_grad=True), torch.randn(count, 96, requires_grad=True)
        total, largest = reduced_messages(sent, edges, index, arriving)
        some = arriving > 0
        loss = total.square().sum() + largest[some].square().sum()
        found.append((total, largest, *torch.autograd.grad(loss, (sent, edges))))
    torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], others, strict=True))


def test_what_is_no_number_is_the_largest():
    sent = torch.randn(NODES, DIM)
    sent[6, 3] = torch.nan
    total, largest = reduced_messages(sent, None, EDGES, ARRIVING)
    hit = torch.zeros(NODES, DIM, dtype=torch.bool)
    hit[4, 3] = True  # node 6 sends only to node 4
    assert torch.equal(total.isnan(), hit)
    assert torch.equal(largest.isnan(), hit)


def test_edges_of_another_number_are_refused():
    with pytest.raises(RuntimeError):
        reduced_messages(torch.randn(NODES, DIM), torch.randn(EDGES.shape[1] - 1, DIM), EDGES, ARRIVING)


@pytest.mark.parametrize("wrong", [NODES, -1])
def test_an_edge_from_a_node_that_is_not_there_is_refused(wrong):
    edges = EDGES.clone()
    edges[0, 4] = wrong
    with pytest.raises((IndexError, RuntimeError)):
        reduced_messages(torch.randn(NODES, DIM), None, edges, ARRIVING)


@pytest.mark.parametrize("towers", [0, 5])
def test_towers_must_divide_the_width(towers):
    with pytest.raises(BadInput, match=f"num_towers must divide hidden_dim, but got num_towers={towers}"):
        TowerPNA(DIM, None, towers)
