"""PPGT: its equations against loops over pairs, its norm in closed form, and the size of the released models."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from graphbench import GraphTable
from graphbench.errors import BadInput
from graphbench.testing import encode
from graphbench_baselines import PPGT
from graphbench_baselines.ppgt import AdaRMSNorm

DIM, HEADS, STEPS = 8, 2, 4


def test_the_size_of_the_released_zinc_model(recipe):
    """Counted from the released code by hand, with its 21 atom types in place of 28."""
    layer = 4 * (64 * 64 + 64) + (64 * 16 + 16) + (64 * 128 + 128 + 128 * 64 + 64) + 2 * 128
    nodes = 21 * 64 + (25 * 64 + 64) + 2 * (64 + 64)
    waves = 7 * (25 + 3)
    blocks = 2 * (128 + 64 * 128 + 128 + 128 * 64 + 64) + 128
    pairs = 4 * 64 + waves * 128 + 128 + 128 * 64 + 64 + blocks
    head = 2 * (64 * 64 + 64) + 65
    found = recipe("ppgt/zinc")
    assert found.parameters - 7 * 64 == 12 * layer + nodes + pairs + 128 + head == 493_185
    assert found.config["expected"]["parameters"] == found.parameters


def test_the_size_of_the_released_pattern_model(recipe):
    found = recipe("ppgt/pattern")
    assert found.config["expected"]["parameters"] == found.parameters


def rms(x):
    return x.square().mean(-1, keepdim=True).add(1e-6).sqrt()


def test_the_norm_is_rmsnorm_at_first_and_can_be_the_identity():
    torch.manual_seed(0)
    norm, x = AdaRMSNorm(DIM).double(), 10 * torch.randn(5, DIM, dtype=torch.float64)
    torch.testing.assert_close(norm(x), x / rms(x), rtol=1e-6, atol=0)  # beta = 1 has the root of 1 + 1e-6
    with torch.no_grad():
        norm.alpha.fill_(1.0)
        norm.beta.zero_()
    torch.testing.assert_close(norm(x), x)
    with torch.no_grad():
        norm.alpha.normal_()
        norm.beta.normal_()
    torch.testing.assert_close(norm(x), x / rms(x) * rms(x * norm.alpha + norm.beta))


def norm_by_hand(norm, x):
    return x / rms(x) * rms(x * norm.alpha + norm.beta)


def mlp(block, x):
    return block.contract(F.gelu(block.expand(x)))


def pairs_of(model, graph, edges, walks, degree):
    """Vectors of all pairs of a graph `[n, n, DIM]`, one by one."""
    stem, n = model.pair_stem, graph["num_nodes"]
    inverse = [1 / d if d else 0.0 for d in degree.tolist()]
    rows = []
    for i in range(n):
        for j in range(n):
            p = torch.tensor([*walks[i, j].tolist(), 1 / n, inverse[j], inverse[i]], dtype=torch.float64)
            waves = [
                turn(2**level * math.pi * value) for turn in (math.sin, math.cos) for value in p for level in range(3)
            ]
            rows.append(stem.contract(F.gelu(stem.expand(torch.cat([p, torch.tensor(waves, dtype=torch.float64)])))))
    pair = torch.stack(rows).view(n, n, DIM)
    for number, (j, i) in enumerate(graph["edge_index"].T.tolist()):
        pair = pair.index_put((torch.tensor(i), torch.tensor(j)), edges[number], accumulate=True)
    for norm, block in zip(stem.norms[:2], stem.blocks, strict=True):
        pair = pair + mlp(block, norm_by_hand(norm, pair))
    return norm_by_hand(stem.norms[2], pair)


def attend(attention, x, pair):
    """Attention of one graph, query by query."""
    n, width = len(x), DIM // HEADS
    q, k, v = attention.qkv_map(x).chunk(3, -1)
    bias, factor = attention.pair_map(pair).split(HEADS, -1)
    mixed = torch.zeros_like(x)
    for head in range(HEADS):
        part = slice(head * width, (head + 1) * width)
        for i in range(n):
            logits = torch.stack(
                [
                    q[i, part] @ k[j, part] - k[j, part] @ k[j, part] / (2 * width**0.5) + bias[i, j, head]
                    for j in range(n)
                ]
            )
            weights = logits.softmax(0) * (1 + factor[i, :, head])
            mixed[i, part] = weights @ v[:, part]
    return attention.out_map(mixed)


def test_ppgt_agrees_with_its_equations_pair_by_pair(spec, graphs):
    """Walks, degrees, sizes and edges into pairs and nodes; weights far from their initial values."""
    torch.manual_seed(0)
    model = PPGT(spec, DIM, 2, HEADS, STEPS, attention_dropout=0.0, drop_path=0.0).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    batch = encode(GraphTable.from_graphs(graphs), model.required_encodings()).batch(range(len(graphs)))
    nodes, edges = model.node_encoder(batch), model.pair_stem.edge_encoder(batch)
    expected, first = [], 0
    for number, graph in enumerate(graphs):
        n, count = graph["num_nodes"], graph["edge_index"].shape[1]
        adjacency = torch.zeros(n, n, dtype=torch.float64)
        for source, target in graph["edge_index"].T.tolist():
            adjacency[source, target] += 1
        degree = adjacency.sum(1)
        step = adjacency / degree.clamp(min=1)[:, None]
        walks = torch.stack([torch.linalg.matrix_power(step, k) for k in range(STEPS)], -1).float().double()
        start = int(batch.ptr[number])
        x = nodes[start : start + n] + model.node_walks(walks.diagonal().T)
        x = x + model.node_degree((1 + degree).log()[:, None])
        x = x + model.node_size(torch.full((n, 1), math.log(1 + n), dtype=torch.float64))
        pair = pairs_of(model, graph, edges[first : first + count], walks, degree)
        first += count
        for layer in model.layers:
            x = x + attend(layer.attention, norm_by_hand(layer.attention_norm, x), pair)
            x = x + mlp(layer.feed_forward, norm_by_hand(layer.norm, x))
        expected.append(norm_by_hand(model.norm, x))
    torch.testing.assert_close(model(batch).node, torch.cat(expected), atol=2e-5, rtol=2e-5)  # waves are of float32


def test_a_graph_leaves_out_its_branch_as_a_whole(spec, graphs):
    """Training drops the branch of whole graphs and keeps its mean; evaluation drops none."""
    torch.manual_seed(0)
    model = PPGT(spec, DIM, 1, HEADS, STEPS, attention_dropout=0.0, drop_path=0.5).train()
    batch = encode(GraphTable.from_graphs(graphs), model.required_encodings()).batch(range(len(graphs)))
    layer, ones = model.layers[0], torch.ones(batch.num_nodes, DIM)
    factors = torch.stack([layer._path(ones, batch) for _ in range(2000)])
    assert set(factors.unique().tolist()) == {0.0, 2.0}
    for number in range(len(graphs)):
        part = factors[:, batch.batch == number]
        assert torch.equal(part, part[:, :1, :1].expand_as(part))
    assert factors.mean() == pytest.approx(1.0, abs=0.05)
    assert torch.equal(layer.eval()._path(ones, batch), ones)


@pytest.mark.parametrize(
    ("options", "named"), [({"num_heads": 7}, "num_heads"), ({"num_steps": 1}, "num_steps"), ({"drop_path": 1}, "path")]
)
def test_bad_options_are_named(spec, options, named):
    with pytest.raises(BadInput, match=named):
        PPGT(spec, **options)
