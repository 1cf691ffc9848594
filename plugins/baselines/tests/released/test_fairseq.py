"""Graphormer in the authors' names, restated from the paper's equations, against the model here with their weights."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graphbench import GraphTable, registry
from graphbench.errors import BadInput
from graphbench.nn import HeadConfig
from graphbench.testing import encode
from graphbench.training.module import BenchmarkModule
from graphbench_baselines import Graphormer
from graphbench_baselines.released.fairseq import graphormer

DIM, FFN, LAYERS, HEADS, HOPS = 12, 20, 2, 3, 5
SPEC = registry.load("benchmarks", "PCQM4Mv2").spec
#: Distance of two atoms in different parts.
APART = 510


class Layer(nn.Module):
    """`y = LN(x + Attention(x))`, `LN(y + W2 GELU(W1 y))`."""

    def __init__(self, dim, ffn, heads):
        super().__init__()
        self.heads = heads
        self.self_attn = nn.Module()
        for name in ("k_proj", "v_proj", "q_proj", "out_proj"):
            self.self_attn.add_module(name, nn.Linear(dim, dim))
        self.self_attn_layer_norm, self.final_layer_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, ffn), nn.Linear(ffn, dim)

    def forward(self, x, bias):
        maps = self.self_attn
        q, k, v = (part(x).unflatten(1, (self.heads, -1)) for part in (maps.q_proj, maps.k_proj, maps.v_proj))
        logits = torch.einsum("ihd,jhd->hij", q, k) * q.shape[-1] ** -0.5 + bias
        mixed = torch.einsum("hij,jhd->ihd", logits.softmax(-1), v).flatten(1)
        y = self.self_attn_layer_norm(x + maps.out_proj(mixed))
        return self.final_layer_norm(y + self.fc2(F.gelu(self.fc1(y))))


class Reference(nn.Module):
    """The network on one graph, its parameters called and its tables as large as in the authors' code."""

    def __init__(self, dim=DIM, ffn=FFN, layers=LAYERS, heads=HEADS):
        super().__init__()
        self.encoder = encoder = nn.Module()
        encoder.graph_encoder = graph = nn.Module()
        graph.graph_node_feature, graph.graph_attn_bias = features, biases = nn.Module(), nn.Module()
        features.atom_encoder = nn.Embedding(512 * 9 + 1, dim, padding_idx=0)
        features.in_degree_encoder = nn.Embedding(512, dim, padding_idx=0)
        features.out_degree_encoder = nn.Embedding(512, dim, padding_idx=0)
        features.graph_token = nn.Embedding(1, dim)
        biases.edge_encoder = nn.Embedding(512 * 3 + 1, heads, padding_idx=0)
        biases.edge_dis_encoder = nn.Embedding(128 * heads * heads, 1)
        biases.spatial_pos_encoder = nn.Embedding(512, heads, padding_idx=0)
        biases.graph_token_virtual_distance = nn.Embedding(1, heads)
        graph.emb_layer_norm = nn.LayerNorm(dim)
        graph.layers = nn.ModuleList(Layer(dim, ffn, heads) for _ in range(layers))
        encoder.masked_lm_pooler = nn.Linear(dim, dim)
        encoder.lm_head_transform_weight = nn.Linear(dim, dim)
        encoder.layer_norm = nn.LayerNorm(dim)
        encoder.embed_out = nn.Linear(dim, 1, bias=False)
        encoder.lm_output_learned_bias = nn.Parameter(torch.zeros(1))

    def forward(self, graph):
        encoder, parts = self.encoder, self.encoder.graph_encoder
        features = parts.graph_node_feature
        atoms = graph["x"] + 2 + 512 * torch.arange(9)
        degree = torch.bincount(graph["edge_index"][0], minlength=graph["num_nodes"]) + 1
        nodes = features.atom_encoder(atoms).sum(1)
        nodes = nodes + features.in_degree_encoder(degree) + features.out_degree_encoder(degree)
        x = parts.emb_layer_norm(torch.cat([features.graph_token.weight, nodes]))
        bias = self.bias(graph)
        for layer in parts.layers:
            x = layer(x, bias)
        token = encoder.layer_norm(F.gelu(encoder.lm_head_transform_weight(x[0])))
        return encoder.embed_out(token) + encoder.lm_output_learned_bias

    def bias(self, graph):
        """Bias `[heads, 1 + n, 1 + n]`; the graph's token comes first."""
        biases, n = self.encoder.graph_encoder.graph_attn_bias, graph["num_nodes"]
        distance, paths = shortest_paths(n, graph["edge_index"].t().tolist())
        bonds = {tuple(pair): number for number, pair in enumerate(graph["edge_index"].t().tolist())}
        edges = biases.edge_encoder(graph["edge_attr"] + 3 + 512 * torch.arange(3)).mean(1)
        maps = biases.edge_dis_encoder.weight.view(128, HEADS, HEADS)
        bias = biases.graph_token_virtual_distance.weight[0, :, None, None].repeat(1, n + 1, n + 1)
        for i in range(n):
            for j in range(n):
                pair = biases.spatial_pos_encoder.weight[distance[i][j] + 1]
                path = paths.get((i, j), [])[: HOPS + 1]
                hops = list(pairwise(path))
                for hop, ends in enumerate(hops):
                    pair = pair + edges[bonds[ends]] @ maps[hop] / len(hops)
                bias[:, i + 1, j + 1] = pair
        return bias


def shortest_paths(n, edges):
    """Compute distances and paths with Floyd-Warshall; each path is joined at the last atom that shortened it."""
    distance = [[0 if i == j else 1 if [i, j] in edges else APART for j in range(n)] for i in range(n)]
    middle = {}
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if distance[i][j] > distance[i][k] + distance[k][j]:
                    distance[i][j], middle[i, j] = distance[i][k] + distance[k][j], k

    def inner(i, j):
        k = middle.get((i, j))
        return [] if k is None else [*inner(i, k), k, *inner(k, j)]

    joined = [(i, j) for i in range(n) for j in range(n) if 0 < distance[i][j] < APART]
    return distance, {(i, j): [i, *inner(i, j), j] for i, j in joined}


def make_module(**options):
    chosen = {"hidden_dim": DIM, "ffn_dim": FFN, "num_layers": LAYERS, "num_heads": HEADS, "ties": "one"} | options
    return BenchmarkModule(
        SPEC,
        lambda spec: Graphormer(spec, version="fairseq", max_hops=HOPS, max_distance=30, **chosen),
        HeadConfig(num_layers=1),
        standardize_targets=False,
    )


@pytest.fixture(scope="module")
def reference():
    torch.manual_seed(0)
    return Reference().double().eval()


def answers(module, molecules):
    batch = encode(GraphTable.from_graphs(molecules), module.required_encodings()).batch(range(len(molecules)))
    with torch.no_grad():
        return module(batch)


def test_outputs_are_those_of_the_authors_network(reference, molecules):
    module = make_module().double().eval()
    module.load_state_dict(graphormer({"model": reference.state_dict()}, module.state_dict()))
    with torch.no_grad():
        expected = torch.stack([reference(graph) for graph in molecules])
    torch.testing.assert_close(answers(module, molecules), expected, atol=1e-10, rtol=1e-10)


def test_the_mean_over_all_shortest_paths_is_another_model(reference, molecules):
    """Otherwise the option `ties` would not be needed."""
    module = make_module(ties="all").double().eval()
    module.load_state_dict(graphormer({"model": reference.state_dict()}, module.state_dict()))
    with torch.no_grad():
        expected = torch.stack([reference(graph) for graph in molecules])
    differences = (answers(module, molecules) - expected).abs().flatten()
    assert differences.max() > 1e-4
    assert differences[1] < 1e-10  # two atoms have one path


def test_the_authors_network_has_the_published_size():
    with torch.device("meta"):
        full = Reference(768, 768, 12, 32)
    assert round(sum(p.numel() for p in full.parameters()) / 1e6, 1) == 48.3


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: state.pop("encoder.graph_encoder.layers.1.fc2.bias"), r"no tensor .*layers\.1\.fc2\.bias"),
        (lambda state: state.update({"encoder.graph_encoder.final_layer_norm.bias": torch.ones(DIM)}), "no place"),
        (lambda state: state["encoder.graph_encoder.graph_attn_bias.edge_encoder.weight"][0].fill_(1), "not zero"),
    ],
)
def test_a_file_that_does_not_fit_is_an_error(reference, spoil, message):
    """A norm after the last layer belongs to networks with norms before the branches, a different model."""
    state = {name: value.clone() for name, value in reference.state_dict().items()}
    spoil(state)
    with pytest.raises(BadInput, match=message):
        graphormer({"model": state}, make_module().state_dict())


def test_half_precision_is_not_rounded_once_more(reference):
    state = {name: value.half() for name, value in reference.state_dict().items()}
    made = graphormer({"model": state}, make_module().state_dict())["architecture.bias.edge_term.features.table"]
    rows = state["encoder.graph_encoder.graph_attn_bias.edge_encoder.weight"].float()[3:8]
    assert torch.equal(made[:5], rows / 3)


def test_a_file_of_another_program_is_an_error():
    with pytest.raises(BadInput, match="has 'model', this file model_state"):
        graphormer({"model_state": {}}, {})
