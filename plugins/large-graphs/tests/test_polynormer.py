"""Polynormer against dense matrices, and its global attention against PyG's."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch_geometric.nn import attention as attention_of_pyg

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_large_graphs import Polynormer
from graphbench_large_graphs.linear import linear_attention
from graphbench_large_graphs.polynormer import GlobalLayer, logistic_features

DIM, HEADS = 8, 2


def linear(x, module):
    return x @ module.weight.T + module.bias


def share(module):
    return module.weight[0].sigmoid() if module.start is None else module.weight[0]


def gat(conv, x, adjacency):
    """Softmax over the neighbours and the node itself; the random graphs have no edge twice."""
    h = (x @ conv.lin.weight.T).unflatten(-1, (HEADS, -1))
    logits = (h * conv.att_dst).sum(-1)[:, None] + (h * conv.att_src).sum(-1)[None]
    seen = (adjacency + torch.eye(len(x), dtype=x.dtype)) > 0
    weights = F.leaky_relu(logits, 0.2).masked_fill(~seen[..., None], -torch.inf).softmax(1)
    return torch.einsum("ijh,jhd->ihd", weights, h).flatten(1)


@pytest.mark.parametrize(
    ("beta", "relu", "pre_norm", "qk_shared"), [(None, True, True, True), (0.4, False, False, False)]
)
def test_model_agrees_with_its_equations(made, spec, batch, adjacency, same_graph, beta, relu, pre_norm, qk_shared):
    options = {"beta": beta, "relu": relu, "pre_norm": pre_norm, "qk_shared": qk_shared, "num_heads": HEADS}
    model = made(lambda: Polynormer(spec, DIM, num_layers=2, global_layers=2, **options))
    act = torch.relu if relu else lambda x: x
    x, total = linear(batch.x_dense, model.input_map), 0
    for layer in model.local_layers:
        if pre_norm:
            x = F.layer_norm(x, (DIM,), *layer.pre_norm.parameters())
        gate, b = act(linear(x, layer.gate)), share(layer.beta)
        y = act(gat(layer.conv, x, adjacency) + linear(x, layer.linear))
        x = (1 - b) * F.layer_norm(gate * y, (DIM,), *layer.norm.parameters()) + b * y
        total = total + x
    x = F.layer_norm(total, (DIM,), *model.norm.parameters())
    for layer in model.global_layers:
        k = linear(x, layer.key_map).sigmoid().unflatten(-1, (HEADS, -1))
        q = k if qk_shared else linear(x, layer.query_map).sigmoid().unflatten(-1, (HEADS, -1))
        weights = torch.einsum("ihm,jhm->hij", q, k) * same_graph
        v = linear(x, layer.value_map).unflatten(-1, (HEADS, -1))
        mixed = torch.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdim=True), v).flatten(1)
        mixed = F.layer_norm(mixed, (DIM,), *layer.norm.parameters()) * (linear(x, layer.gate) + share(layer.beta))
        x = act(linear(mixed, model.global_out))
    torch.testing.assert_close(model(batch).node, x, rtol=1e-9, atol=1e-9)


def log_domain(q, k, v, same_graph):
    """Compute means over the nodes of each graph from logarithms of weights, for which nothing is too small."""
    pairs = F.logsigmoid(q).unsqueeze(1) + F.logsigmoid(k)  # [T, T, H, m]
    logits = pairs.logsumexp(-1).masked_fill(~same_graph[..., None], -torch.inf)
    return torch.einsum("ijh,jhd->ihd", logits.softmax(1), v)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("far", [0.0, -20.0, -43.0, -60.0, -500.0])
def test_features_of_float32_are_right_however_small_they_are(batch, same_graph, far, shared):
    """Also if graphs differ by many orders of magnitude, and if large features of queries are small in keys."""
    generator = torch.Generator().manual_seed(0)
    q, k = (4 * torch.randn(batch.num_nodes, HEADS, 4, generator=generator) for _ in range(2))
    k[5:] += far  # all but the first graph
    k[..., 0] += far
    q[..., 1:] += 0.5 * far
    v, weight = (torch.randn(batch.num_nodes, HEADS, 3, generator=generator) for _ in range(2))
    results = []
    for dtype in (torch.float32, torch.float64):
        queries, keys, values = (part.clone().to(dtype).requires_grad_() for part in (q, k, v))
        queries = keys if shared else queries
        if dtype == torch.float32:
            layout = DenseLayout.from_batch(batch)
            out = linear_attention(*logistic_features(queries, keys, layout), values, layout)
        else:
            out = log_domain(queries, keys, values, same_graph)
        (out * weight.to(dtype)).sum().backward()
        results.append([out.detach().double(), *(part.grad.double() for part in (queries, keys, values))])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=2e-4, atol=2e-4)


def test_half_precision_has_its_features_in_float32(batch):
    layout = DenseLayout.from_batch(batch)
    logits = torch.linspace(-300, 0, batch.num_nodes * 2).view(-1, 1, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        queries, keys = logistic_features(logits.bfloat16(), logits.bfloat16(), layout)
    assert queries.dtype == keys.dtype == torch.float32
    expected = logistic_features(*(logits.bfloat16().double(),) * 2, layout)
    torch.testing.assert_close(queries.double(), expected[0], rtol=1e-4, atol=1e-30)
    torch.testing.assert_close(keys.double(), expected[1], rtol=1e-4, atol=1e-30)


@pytest.mark.skipif(
    not hasattr(attention_of_pyg, "PolynormerAttention"), reason="this release of PyG has no Polynormer"
)
def test_global_attention_on_one_graph_is_that_of_pyg(made, one_graph):
    """PyG adds 1e-6 to the denominator, and has its own output map and ReLU in the layer."""
    layer = made(lambda: GlobalLayer(DIM, num_heads=1, beta=0.9, qk_shared=False))
    theirs = attention_of_pyg.PolynormerAttention(DIM, 1, DIM, beta=0.9, qkv_bias=True, qk_shared=False).double().eval()
    with torch.no_grad():
        layer.beta.weight.fill_(0.9)
        names = {"h_lins": "gate", "q": "query_map", "k": "key_map", "v": "value_map", "lns": "norm"}
        for mine, name in names.items():
            getattr(theirs, mine).load_state_dict(getattr(layer, name).state_dict())
        theirs.lin_out.weight.copy_(torch.eye(DIM))
        theirs.lin_out.bias.zero_()
    batch = one_graph(30)
    x = torch.randn(30, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = layer(x, batch, DenseLayout.from_batch(batch)).relu()
    torch.testing.assert_close(found, theirs(x[None])[0], rtol=1e-5, atol=1e-5)


def test_without_global_layers_the_sum_of_local_ones_is_the_answer(spec, batch):
    """The weights of a first stage are those of the second, except for those that the second adds."""
    torch.manual_seed(0)
    options = {"hidden_dim": DIM, "num_layers": 3, "num_heads": HEADS}
    first, second = (Polynormer(spec, global_layers=count, **options).double().eval() for count in (0, 2))
    missing, unexpected = second.load_state_dict(first.state_dict(), strict=False)
    assert not unexpected
    assert {name.partition(".")[0] for name in missing} == {"global_layers", "global_out", "norm"}
    x, total = first.input_map(batch.x_dense), 0
    loops = torch.arange(batch.num_nodes).expand(2, -1)  # the random graphs have none
    for layer in second.local_layers:
        x = layer(x, torch.cat([batch.edge_index, loops], dim=1))
        total = total + x
    torch.testing.assert_close(first(batch).node, total)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 7}, "num_heads=7 and hidden_dim=512"),
        ({"beta": 1.2}, "beta must be at least 0 and at most 1, but got 1.2"),
        ({"global_layers": -1}, "global_layers must be an integer of at least 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        Polynormer(spec, **options)
