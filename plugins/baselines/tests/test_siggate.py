"""SigGate-GT: its equations against loops over nodes, its gates in closed form, and the size of the released models."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from graphbench import GraphTable
from graphbench.errors import BadInput
from graphbench.nn import TransformerAttention
from graphbench_baselines import SigGateGT
from graphbench_baselines.siggate import SigGateAttention

DIM, HEADS = 8, 2


def test_the_size_of_the_released_zinc_model(recipe):
    """Counted from the released code: 28 atom types and 4 bonds as columns, 32 of positions, d = 64, 10 layers."""
    d = 64
    messages = 6 * (d * d + d) + 2 * 2 * d
    attention = 5 * (d * d + d)
    network = (2 * d * d + 2 * d) + (2 * d * d + d)
    layer = messages + attention + network + 3 * 2 * d
    found = recipe("siggate/zinc")
    assert 10 * layer == 629_760
    assert found.parameters == 10 * layer + (28 + 32 + 1) * d + (4 + 1) * d + (d * 32 + 32) + 33 == 636_097


@pytest.mark.parametrize(("name", "outputs"), [("peptides-func", 10), ("peptides-struct", 11)])
def test_the_size_of_the_released_peptides_models(recipe, name, outputs):
    """d = 128: 15 d^2 + 24 d a layer, and columns for every category of atoms and bonds."""
    d, found = 128, recipe(f"siggate/{name}")
    columns = sum(found.spec.node.vocabularies) + 32 + 1 + sum(found.spec.edge.vocabularies) + 1
    assert found.parameters == 10 * (15 * d * d + 24 * d) + columns * d + (d * 64 + 64) + 65 * outputs


def attend(attention, x):
    """Attention of one graph, node by node and head by head."""
    q, k, v = attention.in_proj(x).chunk(3, -1)
    width, mixed = DIM // HEADS, torch.zeros_like(x)
    for i in range(len(x)):
        for head in range(HEADS):
            part = slice(head * width, (head + 1) * width)
            weights = torch.stack([q[i, part] @ k[j, part] / math.sqrt(width) for j in range(len(x))]).softmax(0)
            mixed[i, part] = weights @ v[:, part]
        if attention.gate_map is not None:
            mixed[i] = mixed[i] / (1 + torch.exp(-attention.gate_map(x[i])))
    return attention.out_proj(mixed)


@pytest.mark.parametrize("gated", [True, False])
def test_siggate_agrees_with_its_equations_node_by_node(spec, graphs, gated):
    """In evaluation, with weights and statistics far from their initial values; two graphs have no edge."""
    torch.manual_seed(0)
    model = SigGateGT(spec, DIM, 2, HEADS, gated=gated).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
        for name, statistic in model.named_buffers():
            if "running" in name:
                statistic.uniform_(0.5, 2.0)
    table = GraphTable.from_graphs(graphs)
    batch = table.batch(range(len(graphs)))
    x, edge = model.node_encoder(batch), model.edge_encoder(batch)
    for layer in model.layers:
        a, b, d, e = layer.node_maps(x).chunk(4, -1)
        gates = torch.zeros_like(edge)
        sums, weights = torch.zeros_like(x), torch.zeros_like(x)
        for number, (j, i) in enumerate(batch.edge_index.T.tolist()):
            gates[number] = torch.sigmoid(d[i] + e[j] + layer.edge_map(edge[number]))
            sums[i] += gates[number] * b[j]
            weights[i] += gates[number]
        x = layer.norms[0](x + F.relu(layer.node_norm(a + sums / (weights + 1e-6))))
        mixed = [attend(layer.attention, x[batch.batch == number]) for number in range(len(graphs))]
        x = layer.norms[1](x + torch.cat(mixed))
        x = layer.norms[2](x + layer.feed_forward.contract(F.gelu(layer.feed_forward.expand(x))))
        edge = F.relu(layer.edge_norm(layer.edge_out(gates)))
    found = model(batch)
    torch.testing.assert_close(found.node, x)
    torch.testing.assert_close(found.edge, edge)


def test_gates_start_at_the_sigmoid_of_one_half_and_can_silence_a_head():
    torch.manual_seed(0)
    attention, x = SigGateAttention(DIM, HEADS).double(), torch.randn(5, DIM, dtype=torch.float64)
    open_gates = attention.gate(torch.ones_like(x), torch.zeros_like(x))
    torch.testing.assert_close(open_gates, torch.full_like(x, 1 / (1 + math.exp(-0.5))))
    with torch.no_grad():
        attention.gate_map.weight.zero_()
        attention.gate_map.bias.fill_(-1e3)
    torch.testing.assert_close(attention(x), attention.out_proj.bias.expand_as(x))


def test_wide_open_gates_are_the_attention_of_a_transformer():
    torch.manual_seed(0)
    gated, plain = SigGateAttention(DIM, HEADS).double(), TransformerAttention(DIM, HEADS).double()
    plain.attention.load_state_dict({k: v for k, v in gated.state_dict().items() if not k.startswith("gate_map")})
    with torch.no_grad():
        gated.gate_map.weight.zero_()
        gated.gate_map.bias.fill_(1e3)
    x = torch.randn(5, DIM, dtype=torch.float64)
    torch.testing.assert_close(gated(x), plain(x))


def test_heads_must_divide_the_width(spec):
    with pytest.raises(BadInput):
        SigGateGT(spec, hidden_dim=9, num_heads=2)
