import pytest
import torch
from torch import nn
from torch_geometric.nn import GINEConv, GPSConv

from graphbench import PositionalEncoder
from graphbench.diagnostics import record
from graphbench.errors import BadInput
from graphbench.nn import DenseLayout, GPSBackbone, GPSLayer, TransformerAttention, make_local_layer

DIM = 12


class Coordinates(PositionalEncoder):
    """Uses the dense features of the test graphs as positions."""

    def __init__(self):
        super().__init__()
        self.dim = 2

    def forward(self, batch):
        return batch.x_dense


def count(module):
    return sum(p.numel() for p in module.parameters())


def mlp(activation):
    act = {"relu": nn.ReLU, "gelu": nn.GELU}[activation]()
    return nn.Sequential(nn.Linear(DIM, DIM), act, nn.Linear(DIM, DIM))


def randomize_norms(module):
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm1d):
            for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
                nn.init.uniform_(tensor, 0.5, 1.5)


def layer_of_pyg(ours, activation):
    """Return PyG's layer with the weights of ours."""
    reference = GPSConv(DIM, GINEConv(mlp(activation)), heads=3, act=activation)
    reference.conv.load_state_dict(ours.local.conv.state_dict())
    attention = ours.attention.attention
    with torch.no_grad():
        reference.attn.in_proj_weight.copy_(attention.in_proj.weight)
        reference.attn.in_proj_bias.copy_(attention.in_proj.bias)
    reference.attn.out_proj.load_state_dict(attention.out_proj.state_dict())
    reference.mlp[0].load_state_dict(ours.feed_forward.expand.state_dict())
    reference.mlp[3].load_state_dict(ours.feed_forward.contract.state_dict())
    for theirs, norm in (
        (reference.norm1, ours.local_norm),
        (reference.norm2, ours.attention_norm),
        (reference.norm3, ours.norm),
    ):
        theirs.module.load_state_dict(norm.state_dict())
    return reference


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("training", [False, True])
def test_layer_agrees_with_pyg(batch, training, activation):
    torch.manual_seed(0)
    local = make_local_layer("GINE", DIM, activation=activation)
    ours = GPSLayer(DIM, local, TransformerAttention(DIM, 3), activation=activation)
    randomize_norms(ours)
    reference = layer_of_pyg(ours, activation)
    x, edge = torch.randn(batch.num_nodes, DIM), torch.randn(batch.edge_index.shape[1], DIM)
    out, new_edge = ours.train(training)(x, edge, batch, DenseLayout.from_batch(batch))
    expected = reference.train(training)(x, batch.edge_index, batch.batch, edge_attr=edge)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    assert new_edge is edge


@pytest.mark.parametrize(
    ("local", "parameters"), [("GatedGCN", 13 * DIM**2 + 22 * DIM), ("GINE", 10 * DIM**2 + 15 * DIM)]
)
def test_gps_layer_parameter_count(local, parameters):
    layer = GPSLayer(DIM, make_local_layer(local, DIM), TransformerAttention(DIM, 3))
    assert count(layer) == parameters


def test_a_missing_branch_costs_nothing(batch):
    x, layout = torch.randn(batch.num_nodes, DIM), DenseLayout.from_batch(batch)
    local = GPSLayer(DIM, make_local_layer("GCN", DIM), None)
    attention = GPSLayer(DIM, None, TransformerAttention(DIM, 3))
    ffn_and_norm = 4 * DIM**2 + 3 * DIM + 2 * DIM
    assert count(local) == ffn_and_norm + DIM**2 + DIM + 2 * DIM
    assert count(attention) == ffn_and_norm + 4 * DIM**2 + 4 * DIM + 2 * DIM
    for layer in (local, attention):
        assert layer(x, None, batch, layout)[0].shape == x.shape


def test_a_layer_without_branches_is_an_error():
    with pytest.raises(BadInput, match="a local layer, global attention or both"):
        GPSLayer(DIM, None, None)


class UniformAttention(nn.Module):
    """Every node sees the mean of its graph."""

    def forward(self, x, batch, layout):
        mean = layout.to_dense(x).sum(1) / batch.ptr.diff()[:, None]
        return mean[batch.batch]


def test_backbone_takes_any_attention(spec, batch):
    model = GPSBackbone(spec, DIM, 2, UniformAttention, local_layer="none")
    out = model(batch)
    assert out.node.shape == (batch.num_nodes, DIM)
    assert out.edge is None
    assert all(isinstance(layer.attention, UniformAttention) for layer in model.layers)


def test_a_recording_numbers_the_attention_layers(spec, batch):
    model = GPSBackbone(spec, DIM, 3, lambda: TransformerAttention(DIM, 3))
    with record(model) as recording:
        model(batch)
    assert [(trace.layer, trace.name) for trace in recording] == [
        (number, f"layers.{number}.attention.attention") for number in range(3)
    ]


@pytest.mark.parametrize(
    ("local", "encodes_edges"), [("GatedGCN", True), ("GINE", True), ("GAT", True), ("GCN", False)]
)
def test_edges_are_encoded_where_they_are_read(spec, batch, local, encodes_edges):
    model = GPSBackbone(spec, DIM, 1, lambda: None, local_layer=local)
    assert (model.edge_encoder is not None) is encodes_edges
    assert (model(batch).edge is not None) is encodes_edges


def test_distances_gate_the_edges(spec, batch):
    torch.manual_seed(0)
    model = GPSBackbone(spec, DIM, 2, lambda: None, gate_encoder=Coordinates()).eval()
    assert all(layer.local.gate is not None for layer in model.layers)
    source, target = batch.edge_index
    expected = (batch.x_dense[source] - batch.x_dense[target]).square().sum(1, keepdim=True)
    torch.testing.assert_close(model._distances(batch), expected)


def test_gates_ignore_the_signs_of_positions(spec, batch):
    """ES-LapPE exists to be invariant to the signs of eigenvectors."""

    class Flipped(Coordinates):
        def forward(self, batch):
            return batch.x_dense * torch.tensor([-1.0, 1.0])

    torch.manual_seed(0)
    model = GPSBackbone(spec, DIM, 2, lambda: None, gate_encoder=Coordinates()).eval()
    before = model(batch).node
    model.gate_encoder = Flipped()
    torch.testing.assert_close(model(batch).node, before)


def test_gates_need_gated_gcn(spec):
    with pytest.raises(BadInput, match="Only the local layer GatedGCN"):
        GPSBackbone(spec, DIM, 1, lambda: None, local_layer="GINE", gate_encoder=Coordinates())


def test_no_layers_is_an_error(spec):
    with pytest.raises(BadInput, match="num_layers must be an integer of at least 1, but got 0"):
        GPSBackbone(spec, DIM, 0, lambda: None)
