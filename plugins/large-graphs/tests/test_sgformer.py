"""SGFormer against matrices of all pairs, and against PyG's on one graph."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch_geometric.nn import models

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout, RWSEEncoder
from graphbench_large_graphs import SGFormer
from graphbench_large_graphs.sgformer import SimpleAttention

DIM, HEADS = 8, 2


def linear(x, module):
    return x @ module.weight.T + module.bias


def attention(layer, x, same_graph):
    """Attention per head: queries and keys are divided by the Frobenius norm of the graph's, over all heads."""
    q, k, v = (part.unflatten(-1, (HEADS, -1)) for part in linear(x, layer.qkv_map).chunk(3, dim=-1))
    size = same_graph.sum(1).double()
    q, k = (p / (same_graph.double() @ p.square().sum((1, 2))).sqrt()[:, None, None] for p in (q, k))
    weights = torch.einsum("ihm,jhm->hij", q, k) / size[:, None] * same_graph
    weights = weights + torch.eye(len(x), dtype=torch.float64)
    return torch.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdim=True), v).mean(1)


def batch_norm(x, norm):
    return (x - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias


@pytest.mark.parametrize("aggregation", ["add", "concatenate"])
def test_model_agrees_with_its_equations(made, spec, batch, symmetric, same_graph, aggregation):
    options = {"num_layers": 2, "num_heads": HEADS, "alpha": 0.3, "graph_weight": 0.8, "aggregation": aggregation}
    model = made(lambda: SGFormer(spec, hidden_dim=DIM, gnn_layers=2, **options))
    half = model.attention_branch
    x = linear(batch.x_dense, half.encoder.features.linear)
    x = F.layer_norm(x, (DIM,), *half.norms[0].parameters()).clamp(min=0)
    for layer, norm in zip(half.attentions, half.norms[1:], strict=True):
        x = F.layer_norm(0.3 * attention(layer, x, same_graph) + 0.7 * x, (DIM,), norm.weight, norm.bias)
    half = model.graph_branch
    y = start = batch_norm(linear(batch.x_dense, half.encoder.features.linear), half.norm).clamp(min=0)
    for layer in half.layers:
        mixed = symmetric @ y @ layer.conv.lin.weight.T + layer.conv.bias
        y = start + batch_norm(mixed, layer.norm).clamp(min=0)
    expected = 0.8 * y + 0.2 * x if aggregation == "add" else torch.cat([x, y], dim=-1)
    assert model.dim == expected.shape[1]
    torch.testing.assert_close(model(batch).node, expected, rtol=1e-11, atol=1e-11)


@pytest.fixture
def float64_by_default():
    """PyG's attention creates ones in the default precision."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.skipif(not hasattr(models, "SGFormer"), reason="this release of PyG has no SGFormer")
def test_on_one_graph_it_is_the_model_of_pyg(made, spec, one_graph, float64_by_default):
    """With PyG's norms of single queries and its activation."""
    options = {"num_layers": 2, "gnn_layers": 2, "attention_activation": True, "normalisation": "node"}
    model = made(lambda: SGFormer(spec, hidden_dim=DIM, **options))
    theirs = models.SGFormer(spec.node.dense, DIM, DIM, trans_num_layers=2, gnn_num_layers=2).double().eval()
    with torch.no_grad():
        pairs = [
            (theirs.trans_conv.fcs[0], model.attention_branch.encoder.features.linear),
            (theirs.graph_conv.fcs[0], model.graph_branch.encoder.features.linear),
            (theirs.graph_conv.bns[0], model.graph_branch.norm),
            *zip(theirs.trans_conv.bns, model.attention_branch.norms, strict=True),
            *zip(theirs.graph_conv.bns[1:], [layer.norm for layer in model.graph_branch.layers], strict=True),
            *zip(theirs.graph_conv.convs, [layer.conv for layer in model.graph_branch.layers], strict=True),
        ]
        for mine, ours in pairs:
            mine.load_state_dict(ours.state_dict())
        for mine, ours in zip(theirs.trans_conv.attns, model.attention_branch.attentions, strict=True):
            ours.qkv_map.bias.zero_()  # PyG's maps have none
            for name, weight in zip("qkv", ours.qkv_map.weight.chunk(3), strict=True):
                getattr(mine, name).weight.copy_(weight)
        theirs.fc.weight.copy_(torch.eye(DIM))
        theirs.fc.bias.zero_()
        batch = one_graph(30)
        batch.x_dense = batch.x_dense.double()
        expected = theirs(batch.x_dense, batch.edge_index, batch.batch)
        torch.testing.assert_close(model(batch).node.log_softmax(-1), expected, rtol=1e-10, atol=1e-10)


def test_one_layer_of_attention_reaches_every_node(spec, one_graph):
    torch.manual_seed(0)
    layer, batch = SimpleAttention(3).double(), one_graph(30)
    x, layout = batch.x_dense.double(), DenseLayout.from_batch(batch)
    moved = x.clone()
    moved[0] += 1
    assert ((layer(x, batch, layout) - layer(moved, batch, layout)).abs().sum(1) > 0).all()


def test_both_halves_have_positions_of_their_own(spec):
    model = SGFormer(spec, hidden_dim=DIM, positional_encoders=[RWSEEncoder(4, 2)])
    first, second = model.attention_branch.encoder.positional[0], model.graph_branch.encoder.positional[0]
    assert {id(p) for p in first.parameters()}.isdisjoint(id(p) for p in second.parameters())
    (encoding,) = model.required_encodings()
    assert encoding.parameters()["num_steps"] == 4


def test_weight_decay_of_the_attention_half(spec):
    assert SGFormer(spec, hidden_dim=DIM).parameter_groups() == ()
    model = SGFormer(spec, hidden_dim=DIM, attention_weight_decay=0.001)
    (group,) = model.parameter_groups()
    assert group["weight_decay"] == 0.001
    assert {id(p) for p in group["params"]} == {id(p) for p in model.attention_branch.parameters()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"graph_weight": 1.0}, "graph_weight must be above 0 and below 1, but got 1.0"),
        ({"aggregation": "cat"}, "aggregation must be one of add, concatenate, but got 'cat'"),
        ({"normalisation": "batch"}, "normalisation must be one of graph, node, but got 'batch'"),
        ({"alpha": 0.0}, "alpha must be"),
        ({"gnn_layers": 0}, "gnn_layers"),
        ({"hidden_dim": 1}, "hidden_dim must be an integer of at least 2, but got 1"),
        ({"attention_weight_decay": -1.0}, "attention_weight_decay"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        SGFormer(spec, **options)
