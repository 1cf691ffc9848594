import pytest
import torch

from graphbench.errors import BadInput
from graphbench.nn import EdgeGate, GatedGCNLayer

DIM = 6


def inputs(batch):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch.num_nodes, DIM, dtype=torch.float64, generator=generator)
    edge = torch.randn(batch.edge_index.shape[1], DIM, dtype=torch.float64, generator=generator)
    distances = torch.rand(len(edge), 1, dtype=torch.float64, generator=generator)
    return x, batch.edge_index, edge, distances


def make_layer(**options):
    torch.manual_seed(0)
    layer = GatedGCNLayer(DIM, **options).double().eval()
    for norm in (layer.node_norm, layer.edge_norm):
        for buffer in (norm.running_mean, norm.running_var) if isinstance(norm, torch.nn.BatchNorm1d) else ():
            torch.nn.init.uniform_(buffer, 0.5, 2.0)
    return layer


def reference(layer, x, edge_index, edge, distances=None):
    """Evaluate the equations of the docstring, edge by edge and node by node."""
    weights, biases = layer.node_maps.weight.split(DIM), layer.node_maps.bias.split(DIM)
    a, b, d, e = ((lambda v, w=w, c=c: w @ v + c) for w, c in zip(weights, biases, strict=True))
    new_x, new_edge = [], []
    edges = list(enumerate(edge_index.t().tolist()))
    hats = [d(x[i]) + e(x[j]) + layer.edge_map(edge[k]) for k, (j, i) in edges]
    gates = [torch.sigmoid(hat) for hat in hats]
    if distances is not None:
        gates = [gate * layer.gate(distances[k : k + 1])[0] for k, gate in enumerate(gates)]
    for node in range(len(x)):
        total, weight = torch.zeros(DIM, dtype=x.dtype), torch.zeros(DIM, dtype=x.dtype)
        for k, (j, i) in edges:
            if i == node:
                total, weight = total + gates[k] * b(x[j]), weight + gates[k]
        new_x.append(a(x[node]) + total / (weight + 1e-6))
    new_x = x + layer.node_norm(torch.stack(new_x)).relu()
    new_edge = edge + layer.edge_norm(torch.stack(hats)).relu()
    return new_x, new_edge


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
def test_agrees_with_the_equations(batch, norm):
    layer = make_layer(norm=norm)
    x, edge_index, edge, _ = inputs(batch)
    for ours, expected in zip(layer(x, edge_index, edge), reference(layer, x, edge_index, edge), strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-12, rtol=1e-10)


def test_distance_gate_agrees_with_the_equations(batch):
    layer = make_layer(gated_by_distance=True)
    x, edge_index, edge, distances = inputs(batch)
    ours = layer(x, edge_index, edge, distances)
    for got, expected in zip(ours, reference(layer, x, edge_index, edge, distances), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-12, rtol=1e-10)
    assert not torch.allclose(ours[0], layer(x, edge_index, edge, 4 * distances)[0])
    with pytest.raises(BadInput, match="distances"):
        layer(x, edge_index, edge)


def test_without_residual_the_input_is_not_added(batch):
    x, edge_index, edge, _ = inputs(batch)
    with_residual, without = make_layer()(x, edge_index, edge), make_layer(residual=False)(x, edge_index, edge)
    torch.testing.assert_close(with_residual[0] - x, without[0])
    torch.testing.assert_close(with_residual[1] - edge, without[1])


@pytest.mark.parametrize(
    ("gated", "parameters"), [(False, 5 * 52**2 + 9 * 52), (True, 5 * 52**2 + 9 * 52 + 3 * 52 + 1)]
)
def test_gated_gcn_parameter_count(gated, parameters):
    layer = GatedGCNLayer(52, gated_by_distance=gated)
    assert sum(p.numel() for p in layer.parameters()) == parameters


def test_gate_is_between_zero_and_one_and_a_function_of_distance():
    torch.manual_seed(0)
    gate = EdgeGate(8)
    values = gate(torch.linspace(0, 4, 9)[:, None])
    assert values.shape == (9, 1)
    assert ((values > 0) & (values < 1)).all()
    assert values.std() > 0


def test_training_drops_nodes_and_edges(batch):
    layer = make_layer(dropout=0.9, norm="none").train()
    x, edge_index, edge, _ = inputs(batch)
    new_x, new_edge = layer(x, edge_index, edge)
    assert (new_x == x).double().mean() > 0.8
    assert (new_edge == edge).double().mean() > 0.8


def test_graphs_without_edges_train():
    layer = GatedGCNLayer(DIM)
    x = torch.randn(4, DIM, requires_grad=True)
    new_x, new_edge = layer(x, torch.empty(2, 0, dtype=torch.int64), torch.empty(0, DIM))
    new_x.sum().backward()
    assert new_edge.shape == (0, DIM)
    torch.testing.assert_close(new_x, x + layer.node_norm(layer.node_maps(x)[:, :DIM]).relu())
    assert x.grad.isfinite().all()
    assert layer.node_maps.weight.grad.isfinite().all()
    assert layer.edge_norm.running_mean.isfinite().all()
