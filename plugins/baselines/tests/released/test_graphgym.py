"""GPS in the authors' names, restated from the paper's equations, against the model here with the converted weights."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graphbench import GraphTable, registry
from graphbench.errors import BadInput
from graphbench.nn import HeadConfig, RWSEEncoder
from graphbench.testing import encode
from graphbench.training.module import BenchmarkModule
from graphbench_baselines import GPS
from graphbench_baselines.released.graphgym import gps

DIM, LAYERS, HEADS, STEPS, POSITION = 12, 2, 3, 5, 4
SPEC = registry.load("benchmarks", "PCQM4Mv2").spec
#: OGB's tables when the weights were released, with four tags of chirality.
ATOMS, BONDS = (119, 4, 12, 12, 10, 6, 6, 2, 2), (5, 6, 2)


def container(**parts):
    """Create a module that only contains others by name."""
    module = nn.Module()
    for name, part in parts.items():
        module.add_module(name, part)
    return module


def tables(sizes, width):
    return nn.ModuleList(nn.Embedding(size, width) for size in sizes)


class Layer(nn.Module):
    """GatedGCN and softmax attention in parallel, `Norm(s + W2 GELU(W1 s))` on the sum of both."""

    def __init__(self):
        super().__init__()
        norm = partial(nn.BatchNorm1d, DIM)
        maps = {name: nn.Linear(DIM, DIM) for name in "ABCDE"}
        self.local_model = container(**maps, bn_node_x=norm(), bn_edge_e=norm())
        self.self_attn = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.norm1_local, self.norm1_attn, self.norm2 = norm(), norm(), norm()
        self.ff_linear1, self.ff_linear2 = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

    def forward(self, x, edge, edge_index):
        local, (source, target) = self.local_model, edge_index
        raw = local.D(x)[target] + local.E(x)[source] + local.C(edge)
        gate = torch.sigmoid(raw)
        above = torch.zeros_like(x).index_add(0, target, gate * local.B(x)[source])
        below = torch.zeros_like(x).index_add(0, target, gate)
        mixed = local.A(x) + above / (below + 1e-6)
        x_local = self.norm1_local(x + F.gelu(local.bn_node_x(mixed)))
        edge = edge + F.gelu(local.bn_edge_e(raw))
        x_global = self.norm1_attn(x + self.self_attn(x[None], x[None], x[None])[0][0])
        joined = x_local + x_global
        return self.norm2(joined + self.ff_linear2(F.gelu(self.ff_linear1(joined)))), edge


class Reference(nn.Module):
    """The network on one graph, its parameters called as in GraphGPS."""

    def __init__(self):
        super().__init__()
        atoms = container(atom_embedding_list=tables(ATOMS, DIM - POSITION))
        walks = container(raw_norm=nn.BatchNorm1d(STEPS), pe_encoder=nn.Linear(STEPS, POSITION))
        bonds = container(bond_embedding_list=tables(BONDS, DIM))
        self.encoder = container(node_encoder=container(encoder1=atoms, encoder2=walks), edge_encoder=bonds)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        widths = [(DIM, DIM // 2), (DIM // 2, DIM // 4), (DIM // 4, 1)]
        self.post_mp = container(FC_layers=nn.ModuleList(nn.Linear(*pair) for pair in widths))

    def forward(self, graph):
        encoders, edge_index = self.encoder.node_encoder, graph["edge_index"]
        atoms = sum(table(graph["x"][:, i]) for i, table in enumerate(encoders.encoder1.atom_embedding_list))
        walks = encoders.encoder2.pe_encoder(encoders.encoder2.raw_norm(return_probabilities(graph)))
        x = torch.cat([atoms, walks], 1)
        bonds = self.encoder.edge_encoder.bond_embedding_list
        edge = sum(table(graph["edge_attr"][:, i]) for i, table in enumerate(bonds))
        for layer in self.layers:
            x, edge = layer(x, edge, edge_index)
        out, (*hidden, last) = x.mean(0), self.post_mp.FC_layers
        for linear in hidden:
            out = F.gelu(linear(out))
        return last(out)


def return_probabilities(graph):
    """Diagonals of the first powers of the walk's matrix."""
    adjacency = torch.zeros(graph["num_nodes"], graph["num_nodes"], dtype=torch.float64)
    adjacency[tuple(graph["edge_index"])] = 1
    walk = adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)
    return torch.stack([torch.linalg.matrix_power(walk, step).diagonal() for step in range(1, STEPS + 1)], 1)


def make_module(**options):
    chosen = {"hidden_dim": DIM, "num_layers": LAYERS, "num_heads": HEADS, "local_layer": "GatedGCN"} | options
    head = HeadConfig(num_layers=3, width="halving", activation="gelu")
    return BenchmarkModule(
        SPEC,
        lambda spec: GPS(spec, activation="gelu", positional_encoders=[RWSEEncoder(STEPS, POSITION)], **chosen),
        head,
        standardize_targets=False,
    )


@pytest.fixture(scope="module")
def reference():
    torch.manual_seed(0)
    made = Reference().double().eval()
    for norm in made.modules():
        if isinstance(norm, nn.BatchNorm1d):
            for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
                nn.init.uniform_(tensor, 0.5, 1.5)
    return made


@pytest.mark.parametrize("prefix", ["model.", ""])
def test_outputs_are_those_of_the_authors_network(reference, molecules, prefix):
    module = make_module().double().eval()
    state = {f"{prefix}{name}": value for name, value in reference.state_dict().items()}
    module.load_state_dict(gps({"model_state": state}, module.state_dict()))
    batch = encode(GraphTable.from_graphs(molecules), module.required_encodings()).batch(range(len(molecules)))
    exact = torch.cat([return_probabilities(graph) for graph in molecules])
    torch.testing.assert_close(batch.rwse.double(), exact, atol=1e-6, rtol=0)
    batch.rwse = exact  # the encoding is stored in single precision
    with torch.no_grad():
        expected = torch.stack([reference(graph) for graph in molecules])
        torch.testing.assert_close(module(batch), expected, atol=1e-10, rtol=1e-10)


def test_todays_tag_of_chirality_reads_the_last_of_then(reference):
    made = gps({"model_state": reference.state_dict()}, make_module().state_dict())
    table = made["architecture.node_encoder.features.table"]
    theirs = reference.encoder.node_encoder.encoder1.atom_embedding_list
    assert torch.equal(table[ATOMS[0] + 4], theirs[1].weight[3])
    assert torch.equal(table[ATOMS[0] + 5], theirs[2].weight[0])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: state.pop("layers.1.local_model.C.bias"), r"no tensor 'layers\.1\.local_model\.C\.bias'"),
        (lambda state: state.update(more=torch.ones(1)), "1 tensors of the file have no place in the model: more"),
        (lambda state: state.update({"norm_out.weight": torch.ones(1)}), "norm_out"),
    ],
)
def test_a_tensor_too_many_or_too_few_is_an_error(reference, spoil, message):
    state = dict(reference.state_dict())
    spoil(state)
    with pytest.raises(BadInput, match=message):
        gps({"model_state": state}, make_module().state_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [({"num_layers": 1}, r"have no place in the model: layers\.1"), ({"hidden_dim": 24}, "has shape")],
)
def test_another_model_is_an_error(reference, options, message):
    with pytest.raises(BadInput, match=message):
        gps({"model_state": reference.state_dict()}, make_module(**options).state_dict())


def test_a_file_of_another_program_is_an_error():
    with pytest.raises(BadInput, match="has 'model_state', this file state_dict"):
        gps({"state_dict": {}}, {})
