import pytest
import torch
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

from graphbench import BenchmarkSpec, Features
from graphbench.errors import BadInput
from graphbench.nn import HeadConfig, gcn_edges
from graphbench_baselines import GAT, GCN, GIN, GINE, GatedGCN, GraphSAGE

ZINC = BenchmarkSpec("ZINC", "graph-regression", Features((28,)), Features((4,)), "MAE", False, "L1")


def count(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(("model", "published"), [(GCN, 103_077), (GAT, 102_385), (GatedGCN, 105_875)])
def test_published_parameter_counts_on_zinc(model, published):
    """The models of about 100,000 parameters of "Benchmarking Graph Neural Networks"."""
    architecture = model(ZINC)
    assert count(architecture) + count(HeadConfig(3, "halving").mlp(architecture.dim, 1)) == published


@pytest.mark.parametrize(("model", "width", "published"), [(GCN, 172, 505_079), (GIN, 124, 509_549)])
def test_published_parameter_counts_of_16_layers_on_zinc(model, width, published):
    """Those of about 500,000 parameters; GIN's read-outs of 17 depths have one bias here."""
    if model is GIN:
        architecture = GIN(ZINC, hidden_dim=width, num_layers=16, all_layers=True)
        assert count(architecture) + count(HeadConfig(1).mlp(architecture.dim, 1)) == published - 16
    else:
        architecture = model(ZINC, hidden_dim=width, num_layers=16)
        assert count(architecture) + count(HeadConfig(3, "halving").mlp(architecture.dim, 1)) == published


def test_one_read_out_of_all_layers_is_the_sum_of_a_read_out_of_each(spec, batch):
    torch.manual_seed(0)
    model = GIN(spec, hidden_dim=8, num_layers=2, all_layers=True).eval()
    read_out = torch.randn(3, 8)
    x, total = model.node_encoder(batch), 0
    for layer, weight in zip((*model.layers, None), read_out, strict=True):
        total = total + x @ weight
        x = layer(x, batch.edge_index, None)[0] if layer is not None else x
    torch.testing.assert_close(model(batch).node @ read_out.flatten(), total, atol=1e-5, rtol=1e-5)


def adjacency(batch):
    """Return the dense matrix, in which a duplicate edge counts twice."""
    dense = torch.zeros(batch.num_nodes, batch.num_nodes)
    return dense.index_put((batch.edge_index[1], batch.edge_index[0]), torch.ones(()), accumulate=True)


def test_gcn_by_the_mean_over_neighbours(spec, batch):
    """The convolution behind the printed scores of "Benchmarking Graph Neural Networks": `W mean_j x_j + b`."""
    model = GCN(spec, hidden_dim=8, num_layers=1, self_loops=False, edge_weights="mean")
    conv, x = model.layers[0].conv, torch.randn(batch.num_nodes, 8)
    index, weight = model.make_edges(batch.edge_index, batch.num_nodes, x.dtype)
    found = conv(x, index, weight)
    for node in range(batch.num_nodes):
        neighbours = batch.edge_index[0, batch.edge_index[1] == node]
        if len(neighbours):
            torch.testing.assert_close(found[node], conv.lin(x[neighbours].mean(0)) + conv.bias)
    with pytest.raises(BadInput, match="edge_weights must be one of symmetric, mean"):
        GCN(spec, edge_weights="max")


def test_gcn_without_self_loops_by_its_equation(spec, batch):
    """`D^-1/2 A D^-1/2 X W + b`, and only the bias for a node without neighbours."""
    torch.manual_seed(0)
    conv = GCN(spec, hidden_dim=8, num_layers=1, self_loops=False).layers[0].conv
    torch.nn.init.normal_(conv.bias)
    x, dense = torch.randn(batch.num_nodes, 8), adjacency(batch)
    degrees = dense.sum(1)
    scale = torch.where(degrees > 0, degrees.clamp(min=1).rsqrt(), 0)
    expected = (scale[:, None] * dense * scale) @ x @ conv.lin.weight.T + conv.bias
    new = conv(x, *gcn_edges(batch.edge_index, len(x), self_loops=False))
    torch.testing.assert_close(new, expected, atol=1e-5, rtol=1e-5)


def test_rows_of_unit_length_before_the_residual(spec, batch):
    torch.manual_seed(0)
    model = GCN(spec, hidden_dim=8, num_layers=1, residual=False, unit_length=True).eval()
    layer, x = model.layers[0], model.node_encoder(batch)
    plain = F.relu(layer.norm(layer.conv(x, *gcn_edges(batch.edge_index, len(x)))))
    lengths = plain.norm(dim=1, keepdim=True)
    assert (lengths > 0).any()
    expected = torch.where(lengths > 0, plain / lengths.clamp(min=1e-12), plain)
    torch.testing.assert_close(model(batch).node, expected)


def test_last_layer_of_gat_has_one_head_when_asked_for(spec):
    several, alone = (GAT(spec, hidden_dim=16, num_layers=3, num_heads=4, last_head_alone=x) for x in (False, True))
    assert [layer.conv.heads for layer in several.layers] == [4, 4, 4]
    assert [layer.conv.heads for layer in alone.layers] == [4, 4, 1]
    assert count(several) == count(alone)


def test_gat_without_self_loops_reads_neighbours_alone(spec, batch):
    """A node's own features then enter only through attention weights, which are 1 with a single neighbour."""
    torch.manual_seed(0)
    conv = GAT(spec, hidden_dim=8, num_layers=1, num_heads=2, self_loops=False).layers[0].conv
    x = torch.randn(2, 8)
    pair = torch.tensor([[0, 1], [1, 0]])
    torch.testing.assert_close(conv(x, pair), x.flip(0) @ conv.lin.weight.T)


def test_gin_layers_have_the_published_count():
    """The published 103,079 less embeddings (28 x 110) and the linear read-outs of all 5 depths (5 x 111)."""
    assert count(GIN(ZINC).layers) == 103_079 - 28 * 110 - 5 * 111


def test_gine_is_gin_and_edge_embeddings():
    assert count(GINE(ZINC)) == count(GIN(ZINC)) + 4 * 110


def test_gcn_is_a_residual_stack_of_pyg_layers(spec, batch):
    torch.manual_seed(0)
    model = GCN(spec, hidden_dim=8, num_layers=2).eval()
    x = model.node_encoder(batch)
    for layer in model.layers:
        conv = GCNConv(8, 8)
        conv.load_state_dict(layer.conv.state_dict())
        x = x + F.relu(layer.norm(conv(x, batch.edge_index)))
    torch.testing.assert_close(model(batch).node, x, atol=1e-5, rtol=1e-5)


def test_max_aggregation_projects_neighbours(spec):
    conv = GraphSAGE(spec, hidden_dim=8, aggregation="max").layers[0].conv
    assert isinstance(conv, SAGEConv)
    assert conv.project
    assert not GraphSAGE(spec, hidden_dim=8, aggregation="mean").layers[0].conv.project


def test_edge_features_can_be_left_unread(spec, batch):
    torch.manual_seed(0)
    model = GINE(spec, hidden_dim=8, edge_features=False).eval()
    before = model(batch).node
    batch.edge_attr = (batch.edge_attr + 1) % 4
    assert torch.equal(model(batch).node, before)
    assert count(GINE(spec, hidden_dim=8)) - count(model) == 4 * 8 - 8


def test_gat_has_a_bias_only_without_a_norm(spec):
    assert GAT(spec).layers[0].conv.bias is None
    assert GAT(spec, norm="none").layers[0].conv.bias is not None


def test_gat_heads_must_divide_the_width(spec):
    with pytest.raises(BadInput, match="num_heads=7 and hidden_dim=16"):
        GAT(spec, hidden_dim=16, num_heads=7)


def test_unknown_aggregation_is_an_error(spec):
    with pytest.raises(BadInput, match="'sum'"):
        GraphSAGE(spec, aggregation="sum")


P, DIM = 0.4, 8


def batch_norm(x):
    """Apply a batch norm with initial weights and the statistics of the rows."""
    return (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()


def published(model, conv):
    """Every layer in the order of "Benchmarking Graph Neural Networks": its residual, norm, activation and dropout.

    Args:
        model: name of the architecture.
        conv: `conv(layer number, x)`, without any of these.
    """

    def layer(x, number, dropout):
        if model in ("GCN", "GIN", "GINE"):
            return dropout(x + batch_norm(conv(number, x)).relu(), P)
        if model == "GAT":
            return x + F.elu(batch_norm(conv(number, dropout(x, P))))
        return x + batch_norm(conv(number, dropout(x, P)).relu())

    return layer


@pytest.mark.parametrize("model", [GCN, GIN, GINE, GAT, GraphSAGE])
def test_order_of_residual_norm_and_dropout_is_the_published_one(model, spec, batch, fixed_dropout):
    torch.manual_seed(0)
    trained = model(spec, hidden_dim=DIM, num_layers=2, dropout=P).double().train()
    index, edge = batch.edge_index, None if trained.edge_encoder is None else trained.edge_encoder(batch)
    if trained.make_edges is not None:
        index, edge = trained.make_edges(index, batch.num_nodes, torch.float64)
    index = trained.precompute(batch).get("looped_edges", index)

    def conv(number, x):
        return trained.layers[number].conv(x, index) if edge is None else trained.layers[number].conv(x, index, edge)

    x, layer = trained.node_encoder(batch), published(model.__name__, conv)
    for number in range(2):
        x = layer(x, number, fixed_dropout)
    torch.testing.assert_close(trained(batch).node, x, atol=1e-10, rtol=1e-10)


def test_gat_drops_attention_weights_by_the_published_equation(spec, batch, fixed_dropout):
    """`alpha_ij = Drop(softmax_j(LeakyReLU(a . W x_i + b . W x_j)))` with self-loops, node by node and head by head."""
    torch.manual_seed(0)
    heads, width = 2, DIM // 2
    conv = GAT(spec, hidden_dim=DIM, num_layers=1, num_heads=heads, dropout=P).double().train().layers[0].conv
    x = torch.randn(batch.num_nodes, DIM, dtype=torch.float64)
    own = torch.arange(batch.num_nodes).expand(2, -1)
    edges = torch.cat([batch.edge_index[:, batch.edge_index[0] != batch.edge_index[1]], own], dim=1)
    h = (x @ conv.lin.weight.T).view(-1, heads, width)
    of_source, of_target = ((h * a).sum(-1) for a in (conv.att_src[0], conv.att_dst[0]))
    kept = fixed_dropout(torch.ones(edges.shape[1], heads, dtype=torch.float64), P)
    expected = torch.zeros_like(h)
    for node in range(batch.num_nodes):
        incoming = (edges[1] == node).nonzero().flatten()
        logits = F.leaky_relu(of_source[edges[0, incoming]] + of_target[node], 0.2)
        weights = logits.softmax(0) * kept[incoming]
        expected[node] = (weights[..., None] * h[edges[0, incoming]]).sum(0)
    torch.testing.assert_close(conv(x, edges), expected.flatten(1), atol=1e-10, rtol=1e-10)


def test_every_node_of_gat_has_one_loop_whatever_the_graph_has(spec):
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 1, 0]])
    graph = Data(edge_index=edges, num_nodes=4)
    made = GAT(spec, hidden_dim=8, num_layers=1, num_heads=2).precompute(graph)["looped_edges"]
    assert sorted(made.T.tolist()) == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 2], [3, 3]]


def test_gated_gcn_drops_nodes_and_edges_after_their_residuals(spec, batch, fixed_dropout):
    torch.manual_seed(0)
    model = GatedGCN(spec, hidden_dim=DIM, num_layers=2, dropout=P).double().train()
    x, edge = model.node_encoder(batch), model.edge_encoder(batch)
    source, target = batch.edge_index
    for layer in model.layers:
        a, b, d, e = (x @ w.T + c for w, c in zip(*(t.chunk(4) for t in layer.node_maps.parameters()), strict=True))
        edge_hat = d[target] + e[source] + layer.edge_map(edge)
        total, weight = torch.zeros_like(x), torch.zeros_like(x)
        for number, (j, i) in enumerate(batch.edge_index.T.tolist()):
            total[i] += torch.sigmoid(edge_hat[number]) * b[j]
            weight[i] += torch.sigmoid(edge_hat[number])
        x = fixed_dropout(x + batch_norm(a + total / (weight + 1e-6)).relu(), P)
        edge = fixed_dropout(edge + batch_norm(edge_hat).relu(), P)
    found = model(batch)
    torch.testing.assert_close(found.node, x, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(found.edge, edge, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("aggregation", ["max", "mean"])
@pytest.mark.parametrize("unit_length", [False, True])
def test_graphsage_agrees_with_its_equation(spec, batch, aggregation, unit_length):
    """`W1 x_i + W2 aggregate_j + b`, over its length with `unit_length`, node by node."""
    torch.manual_seed(0)
    model = GraphSAGE(spec, hidden_dim=DIM, num_layers=1, aggregation=aggregation, unit_length=unit_length).double()
    conv, x = model.layers[0].conv, torch.randn(batch.num_nodes, DIM, dtype=torch.float64)
    seen = conv.lin(x).relu() if aggregation == "max" else x
    expected = []
    for node in range(batch.num_nodes):
        around = seen[batch.edge_index[0][batch.edge_index[1] == node]]
        joined = (around.amax(0) if aggregation == "max" else around.mean(0)) if len(around) else torch.zeros_like(x[0])
        row = conv.lin_r(x[node]) + conv.lin_l(joined)
        expected.append(row / row.norm() if unit_length else row)
    torch.testing.assert_close(conv(x, batch.edge_index), torch.stack(expected), atol=1e-10, rtol=1e-10)
    entered = model.eval().node_encoder(batch)
    scaled = (1 + 1e-5) ** -0.5 * conv(entered, batch.edge_index).relu()  # batch norm before any training
    torch.testing.assert_close(model(batch).node, entered + scaled, atol=1e-10, rtol=1e-10)
