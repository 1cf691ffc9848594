"""BigBird as a branch of GPS: its pattern counted pair by pair, its random blocks, and its cost."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_baselines import GPS
from graphbench_baselines.bigbird import BigBirdBranch, random_blocks

DIM, HEADS, BLOCK, RANDOM = 8, 2, 3, 3
#: Nodes of graphs with 1, 1, 2, 3, 4, 8, 11, 12 and 20 blocks; most of the last blocks are not full.
SIZES = (1, 3, 4, 8, 11, 24, 31, 36, 59)


@pytest.fixture
def branch():
    torch.manual_seed(0)
    return BigBirdBranch(DIM, HEADS).double().eval()


def nodes(sizes=SIZES):
    return torch.randn(sum(sizes), DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def run(branch, x, sizes):
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return branch(x, Data(num_nodes=len(x)), DenseLayout.from_batch(batch))


def counts(size, head):
    """How often node i of a graph attends to node j, `[size, size]`."""
    blocks = -(-size // BLOCK)
    drawn = random_blocks(torch.tensor([blocks]), blocks, HEADS, RANDOM)[0, head].tolist()
    times = torch.zeros(size, size, dtype=torch.float64)
    for i in range(size):
        own = i // BLOCK
        seen = {0, blocks - 1} | {near for near in (own - 1, own, own + 1) if 0 <= near < blocks}
        more = [block for block in drawn[own] if block >= 0]
        if own in (0, blocks - 1):
            seen, more = set(range(blocks)), []
        for j in range(size):
            times[i, j] = (j // BLOCK in seen) + more.count(j // BLOCK)
    return times


def test_a_layer_agrees_with_its_equations_pair_by_pair(branch):
    x, first, width = nodes(), 0, DIM // HEADS
    q, k, v = (x @ weight.T for weight in branch.qkv_map.weight.chunk(3))
    mixed = torch.zeros_like(x)
    for size in SIZES:
        rows = slice(first, first + size)
        for head in range(HEADS):
            part = slice(head * width, (head + 1) * width)
            weights = counts(size, head) * (q[rows, part] @ k[rows, part].T / width**0.5).exp()
            mixed[rows, part] = weights / weights.sum(1, keepdim=True) @ v[rows, part]
        first += size
    y = branch.attention_norm(x + branch.out_map(mixed))
    network = branch.feed_forward
    expected = branch.norm(y + network.contract(network.expand(y).relu()))
    torch.testing.assert_close(run(branch, x, SIZES), expected, atol=1e-10, rtol=1e-10)


def test_a_graph_does_not_see_the_others(branch):
    x, first = nodes(), 0
    together = run(branch, x, SIZES)
    for size in SIZES:
        rows = slice(first, first + size)
        torch.testing.assert_close(run(branch, x[rows], [size]), together[rows], atol=1e-10, rtol=1e-10)
        first += size


@pytest.mark.parametrize(("total", "spans"), [(5, [(0, 5, 3)]), (10, [(0, 8, 1), (8, 10, 2)]), (40, [(0, 11, 3)])])
def test_random_blocks_come_from_the_spans_of_the_plan(total, spans):
    drawn = random_blocks(torch.tensor([total]), 50, 4, RANDOM)[0]
    for start, stop, wanted in spans:
        inside = (drawn >= start) & (drawn < stop)
        assert (inside.sum(-1) == wanted).all()
        # Each of its blocks is chosen somewhere, and none twice in a row.
        assert set(drawn[inside].tolist()) == set(range(start, stop))
    assert all(len(set(row.tolist())) == RANDOM for row in drawn.flatten(0, 1))
    assert torch.equal(drawn[:, :40], random_blocks(torch.tensor([total]), 40, 4, RANDOM)[0])
    assert not torch.equal(drawn[0], drawn[1])


def test_memory_grows_linearly_with_the_nodes(branch):
    """The largest tensor that one graph makes, against twice as many nodes."""

    def largest(size):
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
            run(branch, nodes([size]), [size])
        return max(kept)

    assert largest(1200) <= 2.2 * largest(600)


def test_parameters_and_heads(spec):
    assert sum(p.numel() for p in BigBirdBranch(DIM, HEADS).parameters()) == 6 * DIM**2 + 7 * DIM
    with pytest.raises(BadInput, match="num_heads=3 and hidden_dim=64"):
        GPS(spec, attention="BigBird", num_heads=3)


def test_dropout_is_that_of_the_layer_and_no_weight_is_dropped(spec):
    layer = GPS(spec, attention="BigBird", dropout=0.2, attention_dropout=0.7).layers[0].attention
    assert (layer.dropout.p, layer.feed_forward.dropout.p, layer.feed_forward.activation_dropout.p) == (0.2, 0.2, 0.0)


@pytest.mark.parametrize(
    "name", ["cifar10", "coco-sp", "mnist", "pascalvoc-sp", "pattern", "peptides-func", "peptides-struct"]
)
def test_configurations_have_the_parameters_they_expect(recipe, name):
    found = recipe(f"gps/{name}", "gps/overlays/bigbird")
    assert found.config["expected"]["variants"]["bigbird"]["parameters"] == found.parameters
