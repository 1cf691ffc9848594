"""NAGphormer against powers of the adjacency matrix and a loop over nodes."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from graphbench.errors import BadInput
from graphbench_large_graphs import NAGphormer

DIM, HEADS, HOPS = 8, 2, 3


def linear(x, module):
    return x @ module.weight.T + module.bias


def test_model_agrees_with_its_equations(made, spec, batch, symmetric):
    """The test propagates the raw features and maps them afterwards."""
    model = made(lambda: NAGphormer(spec, DIM, num_layers=2, num_heads=HEADS, num_hops=HOPS))
    powers = [torch.linalg.matrix_power(symmetric, k) @ batch.x_dense for k in range(HOPS + 1)]
    expected = []
    for node in range(batch.num_nodes):
        x = linear(torch.stack([power[node] for power in powers]), model.input_map)
        for layer in model.layers:
            y = F.layer_norm(x, (DIM,), *layer.attention_norm.parameters())
            heads = linear(y, layer.qkv_map).unflatten(-1, (3, HEADS, DIM // HEADS))
            mixed = torch.zeros(HOPS + 1, HEADS, DIM // HEADS, dtype=torch.float64)
            for head in range(HEADS):
                q, k, v = heads[:, :, head].unbind(1)
                mixed[:, head] = (q @ k.T / (DIM // HEADS) ** 0.5).softmax(-1) @ v
            x = x + linear(mixed.flatten(1), layer.out)
            y = F.layer_norm(x, (DIM,), *layer.feed_forward_norm.parameters())
            hidden = linear(y, layer.feed_forward.expand)
            gelu = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))
            x = x + linear(gelu, layer.feed_forward.contract)
        x = F.layer_norm(x, (DIM,), *model.norm.parameters())
        weights = torch.cat([linear(torch.cat([x[0], x[k]]), model.readout) for k in range(1, HOPS + 1)]).softmax(0)
        expected.append(x[0] + (weights[:, None] * x[1:]).sum(0))
    torch.testing.assert_close(model(batch).node, torch.stack(expected), rtol=1e-10, atol=1e-10)


def test_a_node_sees_as_many_steps_as_there_are_hops(spec, one_graph):
    """On a path of edges in both directions, for any number of layers."""
    torch.manual_seed(0)
    model = NAGphormer(spec, DIM, num_heads=HEADS, num_hops=HOPS).double().eval()
    batch = one_graph(10)
    step = torch.arange(9)
    batch.edge_index = torch.stack([torch.cat([step, step + 1]), torch.cat([step + 1, step])])
    batch.x_dense = batch.x_dense.double()
    before = model(batch).node
    batch.x_dense[0] += 1
    moved = (model(batch).node - before).abs().sum(1) > 0
    assert moved.tolist() == [True] * (HOPS + 1) + [False] * (9 - HOPS)


def test_initial_weights_are_those_of_the_released_code(spec):
    torch.manual_seed(0)
    model = NAGphormer(spec, 256, num_layers=4)
    weights = torch.cat([model.layers[0].qkv_map.weight.flatten(), model.input_map.weight.flatten()])
    assert weights.std().item() == pytest.approx(0.01, rel=0.02)
    assert (model.layers[3].feed_forward.contract.bias == 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 7}, "num_heads=7 and hidden_dim=512"),
        ({"num_hops": 0}, "num_hops must be an integer of at least 1, but got 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        NAGphormer(spec, **options)
