"""One layer against a dense float64 reference, deepnorm's factors, and the trace of a layer."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise, product

import networkx as nx
import pytest
import torch
import torch.nn.functional as F

from graphbench.contracts import GraphTable
from graphbench.diagnostics import record
from graphbench.encodings.substructures import Substructures
from graphbench.errors import BadInput
from graphbench.testing import encode, tiny_batch, tiny_spec, tiny_table
from graphbench_deepgraph import DeepGraph, DeepGraphLayer
from graphbench_deepgraph.layer import MAX_HOPS, RelativeBias, deepnorm_factors
from graphbench_deepgraph.sampler import CoverageSampler
from graphbench_deepgraph.tokens import TokenLayout, sample_substructures, token_places


@pytest.mark.parametrize(
    ("layers", "alpha", "beta"),
    [(12, 2.2134, 0.3195), (16, 2.3784, 0.2973), (24, 2.6321, 0.2686), (32, 2.8284, 0.25), (48, 3.1302, 0.2259)],
)
def test_deepnorm_factors_are_those_of_the_paper(layers, alpha, beta):
    assert deepnorm_factors(layers) == pytest.approx((alpha, beta), abs=5e-5)


@pytest.mark.parametrize("beta", [1.0, 0.25])
def test_initial_weights_have_their_scale(beta):
    """Bounds of the uniform distributions: those of the library times the gain times beta."""
    torch.manual_seed(0)
    layer = DeepGraphLayer(64, 96, 4, beta=beta)
    xavier = (6 / 128) ** 0.5
    query, key, value = layer.attention.in_proj.weight.chunk(3)
    for weight, bound in (
        (query, xavier * 2**-0.5),
        (key, xavier * 2**-0.5),
        (value, xavier * 2**-0.5 * beta),
        (layer.attention.out_proj.weight, xavier * beta),
        (layer.ffn.expand.weight, 64**-0.5 * beta),
        (layer.ffn.contract.bias, 96**-0.5 * beta),
    ):
        assert bound * 0.9 < weight.abs().max() <= bound * (1 + 1e-6)
    assert not layer.attention.out_proj.bias.any()


@pytest.mark.parametrize("deepnorm", [True, False])
def test_normal_weights_replace_all_maps_before_deepnorm_scales_them(deepnorm):
    """N(0, 0.02^2) everywhere and no biases, times beta where deepnorm scales; the published default is xavier."""
    torch.manual_seed(0)
    sizes = {"hidden_dim": 64, "ffn_dim": 64, "num_layers": 2, "num_heads": 4}
    model = DeepGraph(tiny_spec(), **sizes, deepnorm=deepnorm, init="normal")
    beta = 16**-0.25 if deepnorm else 1.0
    attention, ffn = model.layers[1].attention, model.layers[1].ffn
    query, key, value = attention.in_proj.weight.chunk(3)
    scaled = [value, attention.out_proj.weight, ffn.expand.weight, ffn.contract.weight]
    plain = [query, key, model.readout.linear.weight, model.substructure_encoder.network[0].weight]
    for weights, std in ((scaled, 0.02 * beta), (plain, 0.02)):
        for weight in weights:
            assert float(weight.detach().std()) == pytest.approx(std, rel=0.06)
    assert not any(m.bias.any() for m in model.modules() if isinstance(m, torch.nn.Linear))
    torch.manual_seed(0)
    default = DeepGraph(tiny_spec(), **sizes, deepnorm=deepnorm)
    assert default.layers[0].attention.in_proj.weight.abs().max() > 0.9 * (3 / 128) ** 0.5


def model_and_batch(**options):
    torch.manual_seed(1)
    model = DeepGraph(tiny_spec(), hidden_dim=16, ffn_dim=24, num_layers=2, num_heads=2, **options).double().eval()
    batch = tiny_batch(model).apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    return model, batch


@torch.no_grad()
def test_layers_equal_the_formula():
    """Graph by graph, without padding, from the trace's input to the next layer's."""
    model, batch = model_and_batch()
    with record(model) as recording:
        model(batch)
    first, second = recording
    layer, alpha = model.layers[0], 4**0.25
    assert first.residual_weight == pytest.approx(alpha)
    for graph, weights in enumerate(first.attention):
        x = first.input[first.batch == graph]
        value = F.linear(x, layer.attention.in_proj.weight, layer.attention.in_proj.bias).chunk(3, -1)[2]
        heads = value.unflatten(-1, (2, -1)).transpose(0, 1)
        mixed = layer.attention.out_proj((weights @ heads).transpose(0, 1).flatten(1))
        y = layer.attention_norm(alpha * x + mixed)
        expected = layer.ffn_norm(alpha * y + layer.ffn.contract(F.gelu(layer.ffn.expand(y))))
        assert torch.allclose(second.input[second.batch == graph], expected, atol=1e-10)


@torch.no_grad()
def test_traces_name_nodes_first_and_mark_substructures():
    model, batch = model_and_batch()
    with record(model) as recording:
        output = model(batch)
    for number, trace in enumerate(recording):
        assert trace.layer == number
        marks = trace.substructure
        assert torch.equal(trace.batch[marks], output.tokens_batch)
        for graph, nodes in enumerate(trace.num_nodes.tolist()):
            own = marks[trace.batch == graph]
            assert not own[: nodes + 1].any(), "nodes and the graph token come first"
            assert own[nodes + 1 :].all()
            rows = trace.attention[graph]
            assert torch.allclose(rows.sum(-1), torch.ones(()).double())
            hidden = rows[:, nodes + 1 :, nodes + 1 :]
            assert not hidden.any(), "substructures see each other"
        value = model.layers[number].attention.in_proj.weight.chunk(3)[2]
        whole = trace.input @ value.T @ model.layers[number].attention.out_proj.weight.T
        assert torch.allclose(trace.values.sum(1), whole, atol=1e-10)


def test_heads_must_divide_the_width():
    with pytest.raises(BadInput, match="num_heads=3"):
        DeepGraphLayer(16, 16, 3)


ENCODING = Substructures(max_neighbourhood=8)
HEADS = 3


def prepared(spec, bias, table=None):
    table = tiny_table(spec, sizes=[5, 9, 1, 4]) if table is None else table
    table = encode(table, (ENCODING, *bias.encodings))
    batch = table.batch(range(len(table)))
    seeds = torch.arange(batch.num_graphs) + 5
    draw = sample_substructures(batch, ENCODING, ENCODING.kind_of_type, CoverageSampler(coverage=2), seeds)
    return batch, draw, TokenLayout.of(batch, token_places(batch, draw))


def reference(batch, draw, bias, graph, max_distance):
    """Bias of one graph `[H, t, t]` pair by pair, with shortest paths of networkx."""
    nodes = (batch.batch == graph).nonzero().squeeze(1).tolist()
    own = (draw.graph == graph).nonzero().squeeze(1).tolist()
    total, n = len(nodes) + 1 + len(own), len(nodes)
    expected = torch.full((total, total, HEADS), -torch.inf)
    first = nodes[0]
    net = nx.DiGraph()
    net.add_nodes_from(nodes)
    numbers = defaultdict(list)
    for number, (source, target) in enumerate(batch.edge_index.t().tolist()):
        if source in net and source != target:
            net.add_edge(source, target)
            numbers[source, target].append(number)
    edges = None if bias.edge_term is None else bias.edge_term.edges(batch)
    for i in nodes:
        paths = nx.single_source_shortest_path(net, i)
        for j in nodes:
            far = len(paths[j]) - 1 if j in paths else max_distance + 1
            value = bias.distance.weight[min(far, max_distance) if j in paths else max_distance + 1].clone()
            if edges is not None and j in paths and far:
                # All shortest paths have equal weight, and parallel edges give separate paths.
                walks = [
                    walk[:MAX_HOPS]
                    for nodes_of_path in nx.all_shortest_paths(net, i, j)
                    for walk in product(*(numbers[edge] for edge in pairwise(nodes_of_path)))
                ]
                terms = [edges[e] @ bias.edge_term.hops[h] for walk in walks for h, e in enumerate(walk)]
                value = value + sum(terms) / (len(walks) * len(walks[0]))
            expected[i - first, j - first] = value
    for place, index in enumerate(own):
        for node in draw.members[index][draw.members[index] >= 0].tolist():
            for a, b in ((n + 1 + place, node - first), (node - first, n + 1 + place)):
                expected[a, b] = bias.member[0]
    expected[n, :] = expected[:, n] = bias.graph[0]
    return expected.permute(2, 0, 1)


@pytest.mark.parametrize("kind", ["both", "categorical", "dense", "none"])
@torch.no_grad()
def test_bias_equals_the_loop_over_pairs(kind):
    spec = tiny_spec(kind=kind)
    bias = RelativeBias(spec, HEADS, max_distance=3)
    batch, draw, tokens = prepared(spec, bias)
    result = bias(batch, tokens)
    assert result.shape[:2] == (4, HEADS)
    for graph, size in enumerate(tokens.dense.ptr.diff().tolist()):
        expected = reference(batch, draw, bias, graph, 3)
        assert torch.allclose(result[graph, :, :size, :size], expected, atol=1e-6)
        assert (result[graph, :, :, size:] == -torch.inf)[:, :size].all(), "padding is visible"
    assert (result > -torch.inf).any(-1).all(), "a padded query sees nothing, so its softmax is not finite"


@torch.no_grad()
def test_awkward_graphs_have_the_bias_of_their_simple_paths():
    """Two components, a self-loop, an edge in one direction only and a repeated edge with other features."""
    spec = tiny_spec(kind="categorical")
    edges = torch.tensor([[0, 1, 1, 0, 1, 2, 2, 3, 3, 5], [1, 0, 0, 1, 2, 1, 2, 4, 4, 3]])
    graph = {
        "num_nodes": 7,
        "edge_index": edges,
        "x": torch.zeros(7, 1, dtype=torch.int64),
        "edge_attr": torch.arange(10).reshape(10, 1) % 4,
        "y": torch.zeros(1, 2),
    }
    bias = RelativeBias(spec, HEADS, max_distance=6)
    batch, draw, tokens = prepared(spec, bias, GraphTable.from_graphs([graph]))
    size = int(tokens.dense.ptr[-1])
    expected = reference(batch, draw, bias, 0, 6)
    assert torch.allclose(bias(batch, tokens)[0, :, :size, :size], expected, atol=1e-6)


@torch.no_grad()
def test_substructure_rows_have_their_nodes_and_the_graph_token():
    """Section 1.5 of the method: |N_S| + 1 finite entries, none of them itself; the mask is symmetric."""
    spec = tiny_spec()
    bias = RelativeBias(spec, HEADS, max_distance=5)
    batch, draw, tokens = prepared(spec, bias)
    dense = tokens.dense
    finite = bias(batch, tokens).isfinite().all(1)
    rows = finite.reshape(-1, dense.max_nodes)[dense.index[tokens.substructure]]
    assert torch.equal(rows.sum(1), draw.size + 1)
    real = dense.mask[:, :, None] & dense.mask[:, None, :]
    assert torch.equal(finite & real, finite.transpose(1, 2) & real)


@torch.no_grad()
def test_released_substructures_share_the_row_of_unreachable_pairs():
    spec = tiny_spec(kind="categorical")
    bias = RelativeBias(spec, HEADS, max_distance=5, released=True)
    assert bias.member is None
    assert bias.paths.unreachable == 510
    assert bias.distance.weight.shape == (512, HEADS)
    batch, _, tokens = prepared(spec, bias)
    substructure, node = tokens.dense.index[tokens.member_substructure], tokens.dense.index[tokens.member_node]
    padded = tokens.dense.max_nodes
    rows = bias(batch, tokens).permute(0, 2, 3, 1).reshape(-1, HEADS)[substructure * padded + node % padded]
    assert torch.equal(rows, bias.distance.weight[510].expand_as(rows))


def test_released_edge_table_refuses_dense_features():
    with pytest.raises(BadInput, match="dense"):
        RelativeBias(tiny_spec(kind="both"), HEADS, 5, released=True)
