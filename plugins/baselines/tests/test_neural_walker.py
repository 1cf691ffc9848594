"""NeuralWalker: walk encoder, layers and positions against their equations, and the shipped configurations."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graphbench import Features, GraphTable
from graphbench.errors import BadInput
from graphbench.nn import BatchNorm, DenseLayout
from graphbench.training.optim import Schedule
from graphbench_baselines import NeuralWalker
from graphbench_baselines.neural_walker import (
    BothWays,
    WalkConvolution,
    Walks,
    WalkTransformer,
    rotate,
)
from graphbench_baselines.random_walks import RandomWalks

NAMES = sorted(path.stem for path in (Path(__file__).parents[1] / "configs" / "neuralwalker").glob("*.yaml"))
SMALL = {"hidden_dim": 8, "num_layers": 2, "walk_length": 6, "window": 3}


def assert_close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


def unlike_fresh(module):
    """Return the module in float64 and evaluation mode, with nonzero biases and batch statistics unlike 0 and 1."""
    torch.manual_seed(0)
    for parameter in module.parameters():
        if parameter.dim() < 2:
            nn.init.normal_(parameter, std=0.5)
    for part in module.modules():
        if isinstance(part, BatchNorm):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
    return module.double().eval()


@pytest.fixture
def prepared(spec, graphs):
    """Create a model and a batch with its walks; nodes and edges have random vectors."""

    def make(**options):
        model = unlike_fresh(NeuralWalker(spec, **SMALL | options))
        batch = model.precomputed(GraphTable.from_graphs(graphs).batch(range(len(graphs))))
        walks = Walks.of(
            RandomWalks(batch.walk_node, batch.walk_edge, batch.walk_keys), batch.num_nodes, 3, torch.float64
        )
        generator = torch.Generator().manual_seed(1)
        x, edge = (
            torch.randn(rows, 8, dtype=torch.float64, generator=generator)
            for rows in (batch.num_nodes, batch.edge_index.shape[1])
        )
        return model, batch, walks, x, edge

    return make


@pytest.mark.parametrize("sequence_layer", ["mamba", "conv", "transformer"])
def test_the_walk_encoder_is_its_equation(prepared, sequence_layer):
    model, _, walks, x, edge = prepared(sequence_layer=sequence_layer)
    encoder, (num_nodes, num_edges) = model.layers[0].walk, (x.shape[0], edge.shape[0])
    visits_of_nodes = {number: [] for number in range(num_nodes)}
    visits_of_edges = {number: [] for number in range(num_edges)}
    for row, (nodes, edges) in enumerate(zip(walks.node.tolist(), walks.edge.tolist(), strict=True)):
        vectors = []
        for i, (node, number) in enumerate(zip(nodes, edges, strict=True)):
            vector = x[node] if node < num_nodes else torch.zeros(8, dtype=torch.float64)
            behind = edge[number] if number < num_edges else torch.zeros(8, dtype=torch.float64)
            vectors.append(vector + encoder.edge_map(behind) + encoder.seen_map(walks.seen[row, i]))
        visited = torch.tensor([node < num_nodes for node in nodes])
        mixed = encoder.sequence(encoder.norm(torch.stack(vectors))[None], visited[None])[0]
        for node, number, vector in zip(nodes, edges, mixed, strict=True):
            if node < num_nodes:
                visits_of_nodes[node].append(vector)
            if number < num_edges:
                visits_of_edges[number].append(vector)

    def means(visits):
        return torch.stack([torch.stack(v).mean(0) if v else torch.zeros(8).double() for v in visits.values()])

    new_x, new_edge = encoder(x, edge, walks)
    assert_close(new_x, x + encoder.to_nodes(means(visits_of_nodes)))
    assert_close(new_edge, edge + encoder.to_edges(means(visits_of_edges)))


def messages(layer, x, edge, batch):
    """`x + MLP((1 + eps) x_i + sum_j ReLU(x_j + C e_ij + c))`, edge by edge."""
    total = (1 + layer.local.eps) * x
    for number, (source, target) in enumerate(batch.edge_index.t().tolist()):
        total[target] = total[target] + F.relu(x[source] + layer.local.lin(edge[number]))
    return x + layer.local.nn(total)


def test_a_layer_with_a_virtual_node_is_its_equation(prepared):
    model, batch, walks, x, edge = prepared()
    layer, virtual = model.layers[0], torch.randn(batch.num_graphs, 8, dtype=torch.float64)
    walked, new_edge = layer.walk(x, edge, walks)
    y = messages(layer, walked, new_edge, batch)
    expected = torch.stack(
        [layer.virtual((y[batch.batch == graph].sum(0) + virtual[graph])[None])[0] for graph in range(batch.num_graphs)]
    )
    found, found_edge, found_virtual = layer(x, edge, virtual, walks, batch, None)
    assert_close(found, y + expected[batch.batch])
    assert_close(found_edge, new_edge)
    assert_close(found_virtual, expected)
    assert model.layers[-1].virtual is None


def test_a_layer_with_attention_is_its_equation(prepared):
    model, batch, walks, x, edge = prepared(global_layer="transformer")
    layer = model.layers[0]
    reference = nn.MultiheadAttention(8, 4, batch_first=True).double()
    reference.load_state_dict(
        {
            "in_proj_weight": layer.attention.in_proj.weight, "in_proj_bias": layer.attention.in_proj.bias,
            "out_proj.weight": layer.attention.out_proj.weight, "out_proj.bias": layer.attention.out_proj.bias,
        }
    )  # fmt: skip
    walked, new_edge = layer.walk(x, edge, walks)
    y = layer.local_norm(messages(layer, walked, new_edge, batch))
    mixed = torch.cat([reference(*3 * (y[batch.batch == graph][None],))[0][0] for graph in range(batch.num_graphs)])
    z = layer.attention_norm(walked + mixed)
    expected = layer.norm(z + layer.feed_forward(z))
    found = layer(x, edge, torch.zeros(batch.num_graphs, 8), walks, batch, DenseLayout.from_batch(batch))
    assert_close(found[0], expected)
    assert isinstance(model.node_output, nn.Identity)


def test_rotated_coordinates_are_complex_products():
    x = torch.randn(2, 3, 7, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    angle = torch.arange(7.0)[:, None].double() * 10_000 ** (-torch.arange(4.0).double() / 4)
    turned = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angle), angle)
    assert_close(rotate(x), torch.cat([turned.real, turned.imag], dim=-1))


def test_the_transformer_on_walks_is_its_equation_and_sees_no_padding():
    layer = unlike_fresh(WalkTransformer(8, num_heads=2))
    walk = torch.randn(3, 5, 8, dtype=torch.float64)
    visited = torch.arange(5) < torch.tensor([[5], [1], [3]])
    found = layer(walk, visited)
    for row, length in enumerate((5, 1, 3)):
        x = walk[row, :length]
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(0, 1) for part in layer.qkv(x).chunk(3, dim=-1))
        weights = (rotate(q) @ rotate(k).mT / math.sqrt(4)).softmax(-1)
        y = layer.norm(x + layer.out((weights @ v).transpose(0, 1).flatten(1)))
        assert_close(found[row, :length], layer.feed_forward_norm(y + layer.feed_forward(y)))


def test_the_convolution_is_its_equation():
    layer = unlike_fresh(WalkConvolution(4))
    walk = torch.randn(2, 6, 4, dtype=torch.float64)
    norm = layer.norm
    expected = torch.zeros_like(walk)
    for row in range(2):
        for i in range(6):
            summed = layer.along.bias.clone()
            for offset in range(-4, 5):
                if 0 <= i + offset < 6:
                    summed = summed + layer.along.weight[:, 0, offset + 4] * walk[row, i + offset]
            scaled = (summed - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
            expected[row, i] = F.relu(layer.across(F.relu(scaled)))
    assert_close(layer(walk, torch.ones(2, 6, dtype=torch.bool)), expected)


def test_mamba_reads_walks_both_ways():
    layer = unlike_fresh(BothWays(8))
    walk = torch.randn(2, 5, 8, dtype=torch.float64)
    visited = torch.ones(2, 5, dtype=torch.bool)
    there = layer(walk, visited)
    layer.onward, layer.backward = layer.backward, layer.onward
    assert_close(layer(walk.flip(1), visited).flip(1), there)


def test_edges_without_features_come_from_the_first_walks(spec, graphs):
    model = NeuralWalker(replace(spec, edge=Features()), **SMALL)
    assert [layer.walk.edge_map is None for layer in model.layers] == [True, False]
    batch = GraphTable.from_graphs(graphs).batch(range(len(graphs)))
    assert model(batch).edge.shape == (batch.edge_index.shape[1], 8)


def test_training_draws_walks_anew_and_evaluation_walks_from_all_nodes(spec, batch):
    model = NeuralWalker(spec, **SMALL, sample_rate=0.4)
    generator = torch.Generator().manual_seed(0)
    first, second = (model.precompute(batch, generator)["walk_node"] for _ in range(2))
    assert not torch.equal(first[:, 0], second[:, 0])
    assert torch.equal(model.precompute(batch)["walk_node"][:, 0], torch.arange(batch.num_nodes))


def test_a_step_without_any_walk_works(spec, batch):
    for sequence_layer in ("mamba", "conv", "transformer"):
        model = NeuralWalker(spec, **SMALL, sample_rate=1e-9, sequence_layer=sequence_layer).train()
        model(batch).node.sum().backward()
        gradients = [part.grad for part in model.parameters() if part.grad is not None]
        assert gradients
        assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", NAMES)
def test_configurations_have_the_parameters_they_expect(recipe, name):
    found = recipe(f"neuralwalker/{name}")
    assert found.config["expected"]["parameters"] == found.parameters


@pytest.mark.parametrize("variant", ["conv", "transformer"])
def test_other_sequence_layers_are_as_large(recipe, variant):
    found = recipe("neuralwalker/zinc", f"neuralwalker/overlays/{variant}")
    assert found.config["expected"]["variants"][variant]["parameters"] == found.parameters


#: Parameters of the authors' code with each of their configurations, and differences here, in numbers of parameters.
RELEASED = {
    "zinc": (502_004, (28 - 21) * 80),
    "mnist": (474_813, 2 * 80),
    "cifar10": (474_973, 2 * 80),
    "pattern": (504_165, -(80 * 80 + 80) - (80 + 1)),
    "cluster": (525_782, -(32 * 32 + 32)),
    "pascalvoc-sp": (531_970, 2 * 56),
    "coco-sp": (492_327, 2 * 56),
    "peptides-func": (530_336, 0),
    "peptides-struct": (541_145, 0),
    "pcqm-contact": (505_763, 0),
}


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_those_of_the_released_code(recipe, name):
    released, difference = RELEASED[name]
    assert recipe(f"neuralwalker/{name}").parameters == released + difference


@pytest.mark.parametrize("name", NAMES)
def test_the_rate_is_the_published_one(recipe, name):
    """Linear from 1e-6 over the warm-up, then a cosine to 0, step by step."""
    found = recipe(f"neuralwalker/{name}")
    config = found.config
    schedule, epochs = Schedule(**config["model"]["schedule"]), config["trainer"]["max_epochs"]
    steps = -(-found.spec.split_sizes[0] // config["data"]["init_args"]["batch_size"])
    warmup, total = {500: 50, 100: 5}.get(epochs, 10) * steps, epochs * steps
    for step in range(0, total, 997):
        rising = max(1e-6, step / warmup)
        falling = 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))
        assert schedule.factor_at(step, total) == pytest.approx(rising if step < warmup else falling, abs=1e-9)


@pytest.mark.parametrize(("name", "types"), [("pattern", 3), ("cluster", 7)])
def test_node_types_of_block_models_enter_a_map_without_bias(recipe, name, types):
    found = recipe(f"neuralwalker/{name}")
    linear = NeuralWalker(found.spec, **found.options | {"num_layers": 1}).node_encoder.features.linear
    assert linear.bias is None
    assert linear.in_features == types


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sequence_layer": "rnn"}, "sequence_layer"),
        ({"local_layer": "GCN"}, "local_layer"),
        ({"global_layer": "vn"}, "global_layer"),
        ({"node_output": "linear"}, "node_output"),
        ({"sample_rate": 1.5}, "sample_rate"),
        ({"sequence_layer": "transformer", "hidden_dim": 12}, "num_heads"),
    ],
)
def test_options_out_of_range_are_refused_by_name(spec, options, named):
    with pytest.raises(BadInput, match=named):
        NeuralWalker(spec, **SMALL | options)
