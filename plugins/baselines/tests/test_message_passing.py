import pytest
import torch
from torch.nn import functional as F
from torch_geometric.nn import GCNConv, SAGEConv

from graphbench import BenchmarkSpec, Features
from graphbench.errors import BadInput
from graphbench.nn import HeadConfig
from graphbench_baselines import GAT, GCN, GIN, GINE, GatedGCN, GraphSAGE

ZINC = BenchmarkSpec("ZINC", "graph-regression", Features((28,)), Features((4,)), "MAE", False, "L1")


def count(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(("model", "published"), [(GCN, 103_077), (GAT, 102_385), (GatedGCN, 105_875)])
def test_published_parameter_counts_on_zinc(model, published):
    """The models of about 100,000 parameters of "Benchmarking Graph Neural Networks"."""
    architecture = model(ZINC)
    assert count(architecture) + count(HeadConfig(3, "halving").mlp(architecture.dim, 1)) == published


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
    with pytest.raises(BadInput, match="num_heads=7, hidden_dim=16"):
        GAT(spec, hidden_dim=16, num_heads=7)


def test_unknown_aggregation_is_an_error(spec):
    with pytest.raises(BadInput, match="'sum'"):
        GraphSAGE(spec, aggregation="sum")
