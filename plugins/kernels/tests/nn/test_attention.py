"""Attention in loops, against its definition graph by graph in float64 and against torch's operations."""

import os
import subprocess
import sys

import pytest
import torch

from graphbench.contracts.kernels import VARIABLE
from graphbench.nn import DenseLayout, attend_within_graphs, attention_weights, size_blocks
from graphbench.testing import computed_by
from graphbench_kernels.nn.attention import fit_loops, place_blocks
from graphbench_kernels.nn.dropping import draw_bits

SIZES = (5, 1, 30, 4, 12, 17, 3, 70)  # the last has more queries than are processed at a time
HEADS, WIDTH = 3, 5


@pytest.fixture(autouse=True)
def _with_loops(monkeypatch):
    """Run the kernels whatever the environment says."""
    monkeypatch.delenv(VARIABLE, raising=False)  # for child processes
    with computed_by("numba"):
        yield


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def layout_of(sizes=SIZES):
    return DenseLayout.from_batch(torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)))


def defined(qkv, sizes, bias=None):
    """The definition for each graph; `bias` is `[B, H or 1, N or 1, N]`."""
    parts = []
    for graph, rows in enumerate(qkv.split(sizes)):
        q, k, v = rows.unflatten(1, (3, HEADS, -1)).permute(1, 2, 0, 3)
        n = len(rows)
        own = None if bias is None else bias[graph, :, : min(n, bias.shape[2]), :n]
        parts.append((attention_weights(q[None], k[None], own)[0] @ v).transpose(0, 1).flatten(1))
    return torch.cat(parts)


def results(qkv, bias, upstream, compute):
    """Output and gradients."""
    asked = [x.detach().clone().requires_grad_() for x in (qkv, bias) if x is not None]
    out = compute(*asked)
    return out, *torch.autograd.grad(out, asked, upstream.to(out.dtype))


@pytest.mark.parametrize("shape", [None, (HEADS, 70, 70), (1, 70, 70), (HEADS, 1, 70)])
@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("width", [WIDTH, 16, 24])
def test_outputs_and_gradients_equal_the_definition(shape, scale, width):
    """Up to the rounding of torch's operations in float32, or of logits, since large ones have few digits left."""
    layout, upstream = layout_of(), draw(sum(SIZES), HEADS * width, seed=3)
    qkv = draw(sum(SIZES), 3 * HEADS * width) * scale
    bias = None if shape is None else draw(len(SIZES), *shape, seed=2)
    assert fit_loops(qkv, [bias], 70, 0.0)

    def in_blocks(qkv, bias=None):
        return attend_within_graphs(qkv, layout, HEADS, layout.block_biases(bias))

    found = results(qkv, bias, upstream, in_blocks)
    doubles = (qkv.double(), None if bias is None else bias.double())
    exact = results(*doubles, upstream, lambda qkv, bias=None: defined(qkv, SIZES, bias))
    with computed_by("torch"):
        rounded = results(qkv, bias, upstream, in_blocks)
    queries, keys, _ = qkv.unflatten(1, (3, HEADS, width)).unbind(1)
    digits = 2e-6 + 1e-7 * float((queries.norm(dim=-1).max() * keys.norm(dim=-1).max()) / width**0.5)
    for ours, theirs, true in zip(found, rounded, exact, strict=True):
        size = true.abs().max()
        assert (ours - true).abs().max() <= 2 * (theirs - true).abs().max() + digits * size
        assert (ours - true).abs().max() < 1e-3 * size


def test_places_are_where_the_graphs_of_blocks_lie():
    layout = layout_of()
    packing = layout.packing
    places = place_blocks(packing.ptr, packing.order, packing.shapes)
    assert len(places) == layout.num_blocks > 1
    for place, block in zip(places, layout.blocks, strict=True):
        assert place.starts.tolist() == layout.ptr[block.graphs].tolist()
        assert place.sizes.tolist() == block.layout.ptr.diff().tolist()
        assert place.length == block.layout.max_nodes == max(place.sizes)


def test_a_layout_with_room_changes_nothing(monkeypatch):
    monkeypatch.setattr(size_blocks, "BLOCK_COST", 10**9)  # one block
    qkv, bias = draw(sum(SIZES), 3 * HEADS * WIDTH), draw(len(SIZES), HEADS, max(SIZES) + 5, max(SIZES) + 5, seed=2)
    found = []
    for room in (0, 5):
        tight = layout_of()
        layout = DenseLayout.from_rows(tight.graph_of, tight.ptr, max(SIZES) + room)
        assert layout.cut is None
        inside = bias[..., : layout.max_nodes, : layout.max_nodes]
        found.append(attend_within_graphs(qkv, layout, HEADS, layout.block_biases(inside)))
    assert torch.equal(*found)


def test_a_second_backward_pass_gives_the_same():
    rows = draw(sum(SIZES), 3 * HEADS * WIDTH).requires_grad_()
    out = attend_within_graphs(rows, layout_of(), HEADS, dropout=0.3)
    first, second = (torch.autograd.grad(out.square().sum(), rows, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("biased", [False, True])
def test_second_derivatives_are_those_of_the_formula(p, biased):
    """With dropout, the weights of the forward pass are dropped in both derivatives."""
    sizes = (5, 1, 70, 4)
    layout = layout_of(sizes)
    bias = draw(len(sizes), HEADS, 70, 70, seed=2) if biased else None
    given = [x.requires_grad_() for x in (draw(sum(sizes), 3 * HEADS * WIDTH), bias) if x is not None]

    def squared_gradient(**options):
        torch.manual_seed(5)
        out = attend_within_graphs(given[0], layout, HEADS, layout.block_biases(*given[1:]), p)
        grads = torch.autograd.grad(out.pow(3).sum(), given, **options)
        return grads, sum(grad.square().sum() for grad in grads)

    first, _ = squared_gradient()
    again, total = squared_gradient(create_graph=True)
    for one, other in zip(first, again, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    second = torch.autograd.grad(total, given)
    direction, step = [draw(*x.shape, seed=7) for x in given], 1e-2
    expected = sum((grad * along).sum() for grad, along in zip(second, direction, strict=True))
    found = []
    for side in (step, -step):
        with torch.no_grad():
            for x, along in zip(given, direction, strict=True):
                x += side * along
        found.append(squared_gradient()[1].double())
        with torch.no_grad():
            for x, along in zip(given, direction, strict=True):
                x -= side * along
    torch.testing.assert_close((found[0] - found[1]) / (2 * step), expected.double(), rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("biased", [False, True])
def test_dropped_weights_are_those_that_were_drawn(biased):
    """Their order is by graph of the batch, then by head, query and key."""
    layout, qkv = layout_of(), draw(sum(SIZES), 3 * HEADS * WIDTH)
    bias = draw(len(SIZES), HEADS, 70, 70, seed=2) if biased else None
    torch.manual_seed(5)
    drawn = draw_bits(HEADS * sum(size**2 for size in SIZES), 0.3)
    kept = iter((drawn.bits >= drawn.least).double() * drawn.factor)
    expected = []
    for graph, rows in enumerate(qkv.double().split(SIZES)):
        n = len(rows)
        q, k, v = rows.unflatten(1, (3, HEADS, -1)).permute(1, 2, 0, 3)
        weights = attention_weights(q, k, None if bias is None else bias[graph, :, :n, :n])
        factors = torch.tensor([next(kept) for _ in range(weights.numel())]).view(weights.shape)
        expected.append((weights * factors @ v).transpose(0, 1).flatten(1))
    torch.manual_seed(5)
    found = attend_within_graphs(qkv, layout, HEADS, layout.block_biases(bias), dropout=0.3)
    torch.testing.assert_close(found.double(), torch.cat(expected), rtol=1e-4, atol=1e-5)


def test_nothing_is_kept_for_pairs():
    rows, kept = draw(sum(SIZES), 3 * HEADS * WIDTH).requires_grad_(), []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        attend_within_graphs(rows, layout_of(), HEADS)
    assert kept
    assert sum(kept) < 2 * rows.numel()


def test_threads_change_nothing_but_rounding_of_products():
    found, before = [], torch.get_num_threads()
    sizes = (150, 90, 120, 7)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        torch.manual_seed(5)
        qkv = draw(sum(sizes), 3 * HEADS * WIDTH).requires_grad_()
        out = attend_within_graphs(qkv, layout_of(sizes), HEADS, dropout=0.5)
        found.append((out, *torch.autograd.grad(out.square().sum(), qkv)))
    torch.set_num_threads(before)
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_a_graph_has_the_same_output_in_every_batch():
    rows = draw(sum(SIZES), 3 * HEADS * WIDTH)
    whole = attend_within_graphs(rows, layout_of(), HEADS)
    first = 0
    for size in SIZES:
        own = slice(first, first + size)
        part = attend_within_graphs(torch.cat([rows[own], rows[:2]]), layout_of((size, 2)), HEADS)[:size]
        torch.testing.assert_close(part, whole[own], rtol=1e-5, atol=1e-6)
        first += size


def test_a_number_that_is_none_spoils_its_own_graph_and_head_alone():
    rows = draw(sum(SIZES), 3 * HEADS * WIDTH)
    rows[7, 0], rows[40, 2 * WIDTH] = torch.nan, torch.inf
    found = attend_within_graphs(rows, layout_of(), HEADS)
    expected = defined(rows, SIZES)
    assert torch.equal(found.isnan(), expected.isnan())
    torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_hidden_keys_weigh_nothing_and_rows_without_keys_are_zero(dropout):
    layout = layout_of()
    bias = torch.zeros(len(SIZES), 1, 70, 70)
    bias[..., 0] = -torch.inf  # the graph of one node has no key then
    rows = draw(sum(SIZES), 3 * HEADS * WIDTH)
    firsts = layout.ptr[:-1]
    rows[firsts, 2 * HEADS * WIDTH :] = 1e30  # values of hidden keys
    rows.requires_grad_()
    out = attend_within_graphs(rows, layout, HEADS, layout.block_biases(bias), dropout)
    assert out.abs().max() < 1e3
    assert torch.equal(out[5], torch.zeros(HEADS * WIDTH))
    (grad,) = torch.autograd.grad(out.sum(), rows)
    assert grad.isfinite().all()


def test_what_is_left_to_torch():
    qkv = draw(sum(SIZES), 3 * HEADS * WIDTH)
    assert fit_loops(qkv, [None], 70, 0.0)
    assert not fit_loops(qkv.double(), [None], 70, 0.0)
    assert not fit_loops(qkv, [qkv.bfloat16()], 70, 0.0)
    assert not fit_loops(qkv[:0], [None], 70, 0.0)
    assert not fit_loops(qkv, [None], 70, 1e-6), "no multiple of 2^-16 is near"
    for length, fused in ((6, False), (500, False), (600, True)):
        assert fit_loops(qkv, [None], length, 0.0) is not fused
        assert fit_loops(qkv, [None], length, 0.5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not fit_loops(qkv, [None], 70, 0.0)


_DIGEST = """
import hashlib
import torch
from graphbench.nn import DenseLayout, attend_within_graphs
torch.set_num_threads(1)
digest = hashlib.sha256()
for rows in range(2, 90):
    torch.manual_seed(rows)
    qkv = torch.randn(rows + 3, 3 * 2 * 9, requires_grad=True)
    layout = DenseLayout.from_batch((torch.arange(rows + 3) >= rows).long())
    out = attend_within_graphs(qkv, layout, 2, dropout=0.1)
    out.square().sum().backward()
    for x in (out, qkv.grad):
        digest.update(x.detach().numpy().tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_the_run_that_compiles_rounds_as_later_runs_do(tmp_path):
    """A first training once gave different losses than its repetition with code from disk."""
    environment = {**os.environ, "GRAPHBENCH_KERNEL_CACHE": str(tmp_path / "kernels")}
    first, second = (
        subprocess.run([sys.executable, "-c", _DIGEST], env=environment, check=True, capture_output=True).stdout
        for _ in range(2)
    )
    assert list((tmp_path / "kernels").iterdir())
    assert first == second != b""
