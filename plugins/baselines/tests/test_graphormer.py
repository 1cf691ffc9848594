import pytest
import torch

from graphbench import BenchmarkSpec, Features, GraphTable
from graphbench.diagnostics import record, summarise
from graphbench.errors import BadInput
from graphbench.testing import encode
from graphbench_baselines import Graphormer
from graphbench_baselines.graphormer import GraphormerLayer, SpatialBias, token_layout

HEADS = 3
CATEGORICAL = BenchmarkSpec("C", "graph-regression", Features((7, 3)), Features((4,)), "MAE", False, "L1")


def encoded(graphs, model):
    encodings = getattr(model, "required_encodings", lambda: model.encodings)()
    return encode(GraphTable.from_graphs(graphs), encodings).batch(range(len(graphs)))


def test_bias_lies_where_the_tokens_are(graphs):
    torch.manual_seed(0)
    module = SpatialBias(CATEGORICAL, HEADS, max_distance=4, max_hops=3).double()
    batch = encoded(graphs, module)
    layout, node, graph_token = token_layout(batch)
    bias = module(batch, layout.index[node], layout.max_nodes)
    pairs, size = module.pairs(batch), batch.ptr.diff().tolist()
    for graph, n in enumerate(size):
        own = pairs[batch.pair_ptr[graph] : batch.pair_ptr[graph + 1]].view(n, n, HEADS).permute(2, 0, 1)
        assert torch.equal(bias[graph, :, :n, :n], own)
        token = module.token.weight[0]
        assert torch.equal(bias[graph, :, n, : n + 1], token[:, None].expand(-1, n + 1))
        assert torch.equal(bias[graph, :, :n, n], token[:, None].expand(-1, n))
    assert graph_token.tolist() == [int(batch.ptr[g + 1]) + g for g in range(len(size))]


def test_layers_share_one_bias(graphs, spec):
    model = Graphormer(spec, hidden_dim=16, num_heads=4, num_layers=4).eval()
    calls = []
    model.bias.register_forward_hook(lambda *_: calls.append(0))
    model(encoded(graphs, model))
    assert len(calls) == 1


@pytest.mark.parametrize("norm_first", [True, False])
def test_layer_has_its_norms_in_place(graphs, spec, norm_first):
    torch.manual_seed(0)
    model = Graphormer(spec, hidden_dim=16, num_heads=4, num_layers=1).double()
    batch = encoded(graphs, model)
    layout, node, _ = token_layout(batch)
    biases = layout.block_biases(model.bias(batch, layout.index[node], layout.max_nodes))
    layer = GraphormerLayer(16, 24, 4, norm_first=norm_first).double()
    x = torch.randn(len(layout.index), 16, dtype=torch.float64)
    ffn = torch.nn.Sequential(layer.ffn.expand, torch.nn.GELU(), layer.ffn.contract)
    if norm_first:
        y = x + layer.attention(layer.attention_norm(x), layout, biases)
        expected = y + ffn(layer.ffn_norm(y))
    else:
        y = layer.attention_norm(x + layer.attention(x, layout, biases))
        expected = layer.ffn_norm(y + ffn(y))
    torch.testing.assert_close(layer(x, layout, biases), expected)


def test_degrees_enter_in_both_directions(graphs, spec):
    model = Graphormer(spec, hidden_dim=16, num_heads=4, num_layers=1, max_degree=4)
    batch = encoded(graphs, model)
    plain = model.embedding.features(batch)
    incoming = torch.bincount(batch.edge_index[1], minlength=batch.num_nodes).clamp(max=4)
    outgoing = torch.bincount(batch.edge_index[0], minlength=batch.num_nodes).clamp(max=4)
    expected = plain + model.embedding.in_degree.weight[incoming] + model.embedding.out_degree.weight[outgoing]
    torch.testing.assert_close(model.embedding(batch), expected)


def test_edges_matter_only_with_hops(graphs, spec):
    torch.manual_seed(0)
    model = Graphormer(spec, hidden_dim=16, num_heads=4, num_layers=1, max_hops=0).eval()
    assert model.bias.edge_term is None
    (paths,) = model.bias.encodings
    assert paths.with_edges == 0
    batch = encoded(graphs, model)
    before = model(batch).graph
    batch.edge_attr = (batch.edge_attr + 1) % 4
    assert torch.equal(model(batch).graph, before)


def test_released_model_trains_without_edge_features(graphs):
    bare = BenchmarkSpec("B", "node-classification", Features((7, 3)), Features(), "MAE", False, "L1", num_classes=2)
    model = Graphormer(bare, hidden_dim=16, num_heads=4, num_layers=2, version="fairseq", released=True)
    representation = model(encoded(graphs, model))
    representation.node.square().mean().backward()
    assert model.bias.edge_term.hops.grad is None
    assert model.bias.distance.weight.grad.isfinite().all()


def test_initial_weights_shrink_with_depth(spec):
    shallow, deep = (
        Graphormer(spec, num_layers=layers).layers[0].ffn.expand.weight.detach().std() for layers in (1, 4)
    )
    assert float(shallow) == pytest.approx(0.02, rel=0.05)
    assert float(deep) == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_layers": 0}, "num_layers must be at least 1, but got 0"),
        ({"max_hops": -1}, "max_hops must be at least 0, but got -1"),
        ({"version": "third"}, "version must be one of paper, fairseq, but got 'third'"),
        ({"num_heads": 3}, "num_heads=3 and hidden_dim=80"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, but got 1.0"),
    ],
)
def test_graphormer_refuses(spec, options, message):
    with pytest.raises(BadInput, match=message):
        Graphormer(spec, **options)


def test_the_graph_token_is_no_substructure(graphs, spec):
    model = Graphormer(spec, hidden_dim=16, ffn_dim=16, num_layers=2, num_heads=2).eval()
    batch = encoded(graphs, model)
    with torch.no_grad(), record(model) as recording:
        model(batch)
    measured = summarise(recording)[0].means()
    assert "effective_rank" in measured
    assert "token_capacity" not in measured
