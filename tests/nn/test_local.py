import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv, GCNConv, GINEConv

from graphbench.errors import BadInput
from graphbench.nn import ConvLayer, GatedGCNLayer, make_local_layer

DIM = 8


def inputs(batch):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch.num_nodes, DIM, generator=generator)
    return x, batch.edge_index, torch.randn(batch.edge_index.shape[1], DIM, generator=generator)


@pytest.mark.parametrize(
    ("name", "conv", "reads_edges"),
    [
        ("GCN", lambda: GCNConv(DIM, DIM), False),
        ("GAT", lambda: GATConv(DIM, 2, 4, edge_dim=DIM), True),
        (
            "GINE",
            lambda: GINEConv(
                torch.nn.Sequential(torch.nn.Linear(DIM, DIM), torch.nn.ReLU(), torch.nn.Linear(DIM, DIM))
            ),
            True,
        ),
    ],
)
def test_convolutions_are_those_of_pyg(batch, name, conv, reads_edges):
    torch.manual_seed(0)
    layer, reference = make_local_layer(name, DIM, num_heads=4), conv()
    reference.load_state_dict(layer.conv.state_dict())
    x, edge_index, edge = inputs(batch)
    new_x, new_edge = layer(x, edge_index, edge)
    expected = reference(x, edge_index, edge) if reads_edges else reference(x, edge_index)
    torch.testing.assert_close(new_x, x + expected, atol=1e-5, rtol=1e-5)
    assert new_edge is edge


def test_gine_adds_neighbours_and_edges(batch):
    layer = make_local_layer("GINE", DIM)
    x, edge_index, edge = inputs(batch)
    total = x.clone()
    for (source, target), vector in zip(edge_index.t().tolist(), edge, strict=True):
        total[target] += F.relu(x[source] + vector)
    torch.testing.assert_close(layer(x, edge_index, edge)[0], x + layer.conv.nn(total), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("name", "parameters"), [("GatedGCN", 5 * 64 + 9 * 8), ("GINE", 2 * 64 + 2 * 8)])
def test_local_parameter_counts(name, parameters):
    assert sum(p.numel() for p in make_local_layer(name, DIM).parameters()) == parameters


def test_none_is_no_layer():
    assert make_local_layer("none", DIM) is None


def test_gated_gcn_takes_its_options():
    layer = make_local_layer("GatedGCN", DIM, dropout=0.3, norm="layer", gated_by_distance=True)
    assert isinstance(layer, GatedGCNLayer)
    assert layer.dropout.p == 0.3
    assert isinstance(layer.node_norm, torch.nn.LayerNorm)
    assert layer.gate is not None


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("GINE", {"gated_by_distance": True}, "Only the local layer GatedGCN"),
        ("GAT", {"num_heads": 3}, "num_heads=3 and width 8"),
        ("GAT", {"num_heads": 0}, "num_heads must be an integer of at least 1"),
        ("PNA", {}, "'PNA'"),
    ],
)
def test_impossible_local_layers_are_errors(name, options, message):
    with pytest.raises(BadInput, match=message):
        make_local_layer(name, DIM, **options)


def test_conv_layer_composes_norm_activation_and_residual(batch):
    torch.manual_seed(0)
    conv = GCNConv(DIM, DIM)
    x, edge_index, _ = inputs(batch)
    raw = F.layer_norm(conv(x, edge_index), (DIM,))
    layer = ConvLayer(conv, DIM, norm="layer", activation=F.elu)
    torch.testing.assert_close(layer(x, edge_index, None)[0], x + F.elu(raw))
    layer.residual = False
    torch.testing.assert_close(layer(x, edge_index, None)[0], F.elu(raw))


@pytest.mark.parametrize("drops", ["branch", "output", "input"])
@pytest.mark.parametrize("activation_first", [False, True])
def test_conv_layer_drops_what_it_is_told(batch, monkeypatch, drops, activation_first):
    """Replace dropout by a product with 3, so that its position shows."""
    torch.manual_seed(0)
    monkeypatch.setattr(F, "dropout", lambda x, *options: 3 * x)
    conv = GCNConv(DIM, DIM)
    x, edge_index, _ = inputs(batch)
    raw = conv(3 * x if drops == "input" else x, edge_index)
    norm = lambda rows: F.layer_norm(rows, (DIM,))  # noqa: E731
    new = norm(raw.tanh()) if activation_first else norm(raw).tanh()
    expected = {"branch": x + 3 * new, "output": 3 * (x + new), "input": x + new}[drops]
    layer = ConvLayer(conv, DIM, 0.5, "layer", activation=torch.tanh, drops=drops, activation_first=activation_first)
    torch.testing.assert_close(layer(x, edge_index, None)[0], expected)


def test_unknown_places_of_dropout_are_errors():
    with pytest.raises(BadInput, match="drops must be one of branch, output, input, but got 'edges'"):
        ConvLayer(GCNConv(DIM, DIM), DIM, drops="edges")
    with pytest.raises(BadInput, match="drops must be one of branch, output, but got 'input'"):
        GatedGCNLayer(DIM, drops="input")


def test_conv_layer_dropout_spares_the_residual(batch):
    torch.manual_seed(0)
    x, edge_index, _ = inputs(batch)
    layer = ConvLayer(GCNConv(DIM, DIM), DIM, dropout=0.9)
    kept = layer(x, edge_index, None)[0] == x
    assert 0.8 < kept.float().mean() < 0.98
