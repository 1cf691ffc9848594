"""Attention along edges, by loops and by torch's operations, compared with matrices of all pairs in float64."""

import math

import pytest
import torch

from graphbench.errors import BadInput
from graphbench.nn import attend_along_edges
from graphbench.testing import computed_by

NODES, EDGES, HEADS, D = 23, 61, 3, 5
WIDTH = HEADS * D


@pytest.fixture(params=["numba", "torch"], autouse=True)
def way(request):
    """Run every test with the loops and with torch's operations."""
    with computed_by(request.param):
        yield request.param


def draw(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def edge_index():
    """Return edges with parallel edges, loops and nodes without incoming edges."""
    ends = torch.randint(0, NODES - 3, (2, EDGES), generator=torch.Generator().manual_seed(7))
    ends[:, 1], ends[:, 2] = ends[:, 0], 5
    return ends


def by_matrices(qkv, edge_index, steer, largest):
    """Return x', s and w from products with incidence matrices and a softmax over edges."""
    source, target = (torch.nn.functional.one_hot(ends, NODES).double() for ends in edge_index)
    q, k, v = qkv.chunk(3, 1)
    scores = (target @ q) * (source @ k) / math.sqrt(D) * (1 if steer is None else steer)
    exponentials = scores.unflatten(1, (HEADS, D)).sum(-1).clamp(-largest, largest).exp()
    weights = exponentials / (target @ (target.T @ exponentials))
    mixed = target.T @ ((source @ v).unflatten(1, (HEADS, D)) * weights[..., None]).flatten(1)
    return mixed, scores, weights


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("steered", [False, True])
@pytest.mark.parametrize("with_scores", [False, True])
@pytest.mark.parametrize("scale", [1.0, 30.0])  # at 30 nearly all logits are clamped
def test_outputs_and_gradients(dtype, steered, with_scores, scale, edge_index):
    given = [draw(NODES, 3 * WIDTH, scale=scale), *([draw(EDGES, WIDTH, seed=1)] if steered else [])]
    inputs = [x.to(dtype).requires_grad_() for x in given]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    found = attend_along_edges(inputs[0], edge_index, *(inputs[1:] or [None]), HEADS, 5.0, with_scores)
    expected = by_matrices(exact[0], edge_index, *(exact[1:] or [None]), 5.0)
    assert (found[1] is not None) == with_scores
    assert not found[2].requires_grad
    tolerance = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 2e-4, "atol": 2e-5 * scale**2}
    differentiable = [i for i in (0, 1) if found[i] is not None]
    for i in (*differentiable, 2):
        torch.testing.assert_close(found[i].double(), expected[i], **tolerance)
    upstream = [draw(*expected[i].shape[::-1], seed=9 + i).T for i in differentiable]  # rows are not contiguous
    ours = torch.autograd.grad([found[i] for i in differentiable], inputs, [u.to(dtype) for u in upstream])
    theirs = torch.autograd.grad([expected[i] for i in differentiable], exact, upstream)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, **tolerance)


def test_a_logit_beyond_the_clamp_has_no_gradient_and_one_before_it_has():
    # At the clamp itself, torch has a gradient up to 2.13, and none in 2.15.
    index, steer = torch.tensor([[0, 1], [2, 2]]), torch.ones(2, 1, dtype=torch.float64)
    for key, moves in ((4.9, True), (5.1, False)):  # Q is 1, so the logit is the key
        qkv = torch.tensor([[0.0, key, 1.0], [0.0, 2.0, 3.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
        qkv.requires_grad_()
        mixed, _, _ = attend_along_edges(qkv, index, steer, 1)
        (gradient,) = torch.autograd.grad(mixed.sum(), qkv)
        weight = math.exp(4.9) / (math.exp(4.9) + math.exp(2))
        assert gradient[0, 1].item() == pytest.approx(weight * (1 - weight) * (1 - 3) if moves else 0.0)


def test_threads_change_no_bit(way):
    if way == "torch":
        pytest.skip("torch's own sums depend on its threads")
    found, before = [], torch.get_num_threads()
    ends = torch.randint(0, 900, (2, 9000), generator=torch.Generator().manual_seed(1))
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        qkv, steer = draw(900, 3 * 96).requires_grad_(), draw(9000, 96, seed=1).requires_grad_()
        mixed, scores, weights = attend_along_edges(qkv, ends, steer, 6, with_scores=True)
        gradients = torch.autograd.grad(mixed.square().sum() + scores.sum(), (qkv, steer))
        found.append((mixed, scores, weights, *gradients))
    torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], others, strict=True))


def test_a_number_that_is_none_reaches_its_neighbours_alone(edge_index):
    qkv = draw(NODES, 3 * WIDTH).float()
    qkv[3, WIDTH] = torch.nan  # a key of the first head
    mixed, _, weights = attend_along_edges(qkv, edge_index, None, HEADS)
    hit = torch.zeros(NODES, dtype=torch.bool)
    hit[edge_index[1, edge_index[0] == 3]] = True
    assert torch.equal(mixed[:, 0].isnan(), hit)
    assert not mixed[:, D:].isnan().any()
    assert torch.equal(weights[:, 0].isnan(), hit[edge_index[1]])


def test_no_edges_and_no_nodes():
    none = torch.empty(2, 0, dtype=torch.int64)
    for nodes in (0, 3):
        qkv = draw(nodes, 3 * WIDTH).requires_grad_()
        mixed, scores, weights = attend_along_edges(qkv, none, draw(0, WIDTH), HEADS, with_scores=True)
        assert torch.equal(mixed, torch.zeros(nodes, WIDTH, dtype=torch.float64))
        assert (scores.shape, weights.shape) == ((0, WIDTH), (0, HEADS))
        (gradient,) = torch.autograd.grad(mixed.sum(), qkv)
        assert torch.equal(gradient, torch.zeros_like(qkv))


@pytest.mark.parametrize("wrong", [NODES, -1])
@pytest.mark.parametrize("end", [0, 1])
def test_an_edge_to_a_node_that_is_not_there_is_refused(wrong, end, edge_index):
    edge_index[end, 11] = wrong
    with pytest.raises((IndexError, RuntimeError)):
        attend_along_edges(draw(NODES, 3 * WIDTH), edge_index, None, HEADS)


@pytest.mark.parametrize("largest", [0.0, 51.0, math.nan])
def test_a_clamp_whose_exponentials_overflow_is_refused(largest, edge_index):
    with pytest.raises(BadInput, match="largest"):
        attend_along_edges(draw(NODES, 3 * WIDTH), edge_index, None, HEADS, largest)


@pytest.mark.parametrize("shape", [(EDGES - 1, WIDTH), (EDGES, WIDTH - HEADS)])
def test_steering_of_another_shape_is_refused(shape, edge_index):
    with pytest.raises(RuntimeError):
        attend_along_edges(draw(NODES, 3 * WIDTH), edge_index, draw(*shape), HEADS)


@pytest.mark.parametrize("num_heads", [0, 2])
def test_heads_must_divide_the_channels(num_heads, edge_index):
    with pytest.raises(BadInput, match=f"maps of {num_heads} heads"):
        attend_along_edges(draw(NODES, 3 * WIDTH), edge_index, None, num_heads)
