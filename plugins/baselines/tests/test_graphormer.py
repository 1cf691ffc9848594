import networkx as nx
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


@pytest.mark.parametrize(("version", "expected"), [("paper", 0.01), ("fairseq", 0.02)])
def test_normal_weights_shrink_with_depth_in_the_papers_version(spec, version, expected):
    """Published weights: N(0, 0.02^2 / L) in the first code, N(0, 0.02^2) in the second; no biases."""
    torch.manual_seed(0)
    layer = Graphormer(spec, num_layers=4, version=version).layers[1]
    for linear in (layer.attention.qk_map, layer.attention.out_map, layer.ffn.expand):
        assert float(linear.weight.detach().std()) == pytest.approx(expected, rel=0.05)
        assert not linear.bias.any()


def test_xavier_weights_are_within_their_bounds(spec):
    """Uniform within sqrt(6 / 2d), with gain 1/sqrt(2) for queries, keys and values; elsewhere 1/sqrt(fan in)."""
    torch.manual_seed(0)
    model = Graphormer(spec, hidden_dim=64, ffn_dim=96, num_heads=4, num_layers=2, version="fairseq", init="xavier")
    layer, xavier = model.layers[1], (6 / 128) ** 0.5
    query, key = layer.attention.qk_map.weight.chunk(2)
    for weight, bound in (
        (query, xavier * 2**-0.5),
        (key, xavier * 2**-0.5),
        (layer.attention.v_map.weight, xavier * 2**-0.5),
        (layer.attention.out_map.weight, xavier),
        (layer.ffn.contract.weight, 96**-0.5),
        (model.final.linear.weight, 64**-0.5),
    ):
        assert bound * 0.9 < weight.detach().abs().max() <= bound * (1 + 1e-6)
    assert not layer.attention.out_map.bias.any()
    assert float(model.embedding.in_degree.weight.detach().std()) == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_hops": -1}, "max_hops must be an integer of at least 0, but got -1"),
        ({"version": "third"}, "version must be one of paper, fairseq, but got 'third'"),
        ({"init": "zeros"}, "init must be one of normal, xavier, but got 'zeros'"),
        ({"num_heads": 3}, "num_heads=3 and hidden_dim=80"),
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


def shuffle_edges(table, seed=0):
    """The same graphs with their edges listed in another order, each with its features."""
    generator = torch.Generator().manual_seed(seed)
    ranges = zip(table.ptr["edge"][:-1].tolist(), table.num_edges.tolist(), strict=True)
    order = torch.cat([start + torch.randperm(n, generator=generator) for start, n in ranges])
    columns = {
        name: table.columns[name][order] if column.axis == "edge" else table.columns[name]
        for name, column in table.layout.items()
    }
    return GraphTable(columns, table.layout, table.ptr)


@torch.no_grad()
@pytest.mark.parametrize("options", [{}, {"version": "fairseq"}, {"max_hops": 2}], ids=["paper", "fairseq", "two hops"])
def test_the_order_of_edges_does_not_matter(options):
    """A pair that several shortest paths join gets the same bias, however the edges of its graph are listed."""
    torch.manual_seed(0)
    model = Graphormer(CATEGORICAL, hidden_dim=16, num_heads=4, num_layers=2, **options).double().eval()
    for parameter in model.parameters():  # large enough for edges to matter
        torch.nn.init.normal_(parameter, std=0.5)
    net = nx.convert_node_labels_to_integers(nx.grid_2d_graph(4, 4)).to_directed()
    number = net.number_of_edges()
    grid = {
        "num_nodes": 16,
        "edge_index": torch.tensor(list(net.edges())).t(),
        "x": torch.randint(3, (16, 2)),
        "edge_attr": torch.randint(4, (number, 1)),
        "y": torch.zeros(1),
    }
    table = GraphTable.from_graphs([grid, grid])
    before, after = (model(encode(t, model.required_encodings()).batch([0, 1])) for t in (table, shuffle_edges(table)))
    torch.testing.assert_close(after.node, before.node, atol=1e-12, rtol=0)
    torch.testing.assert_close(after.graph, before.graph, atol=1e-12, rtol=0)
    other = table.columns | {"edge_attr": (table.columns["edge_attr"] + 1) % 4}
    changed = encode(GraphTable(other, table.layout, table.ptr), model.required_encodings()).batch([0, 1])
    assert (model(changed).graph - before.graph).abs().max() > 1e-3, "edges do enter"
