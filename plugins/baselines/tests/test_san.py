"""SAN: its attention pair by pair, added pairs, learned positions, and the published counts."""

from __future__ import annotations

import math

import pytest
import torch

from graphbench import GraphTable
from graphbench.diagnostics import record
from graphbench.errors import BadInput
from graphbench.testing import encode
from graphbench_baselines import SAN, TransformerLapPE

DIM, HEADS, GAMMA, K = 8, 2, 0.3, 4

#: Published counts, exact or in thousands, and the differences of this platform's: PATTERN and CLUSTER share a row for
#: edges, for which the authors' sparse model has an unused one; two classes have one logit; OGB's chirality table has
#: grown by a row.
COUNTS = {
    "zinc": (508_577, 0),
    "cluster": (519_186, 0),
    "pattern": (507_202, -17),
    "peptides-func": ("493k", 68),
    "peptides-struct": ("493k", 68),
    "pascalvoc-sp": ("531k", 0),
    "coco-sp": ("536k", 0),
    "pcqm-contact": ("499k", 68),
}
VARIANTS = {
    ("zinc", "zinc-sparse"): (494_865, 0),
    ("cluster", "cluster-sparse"): (530_036, -56),
    ("pattern", "pattern-sparse"): (493_340, -72 - 19),
    ("peptides-func", "peptides-func-random-walks"): ("500k", 80),
    ("peptides-struct", "peptides-struct-random-walks"): ("500k", 80),
    ("pascalvoc-sp", "pascalvoc-sp-random-walks"): ("468k", 0),
}


def agrees(parameters, published, differs):
    if isinstance(published, str):
        return f"{(parameters - differs) / 1000:.0f}k" == published
    return parameters - differs == published


@pytest.mark.parametrize("name", COUNTS)
def test_published_counts(recipe, name):
    found = recipe(f"san/{name}")
    assert found.config["expected"]["parameters"] == found.parameters
    assert agrees(found.parameters, *COUNTS[name])


@pytest.mark.parametrize(("name", "overlay"), VARIANTS)
def test_published_counts_of_variants(recipe, name, overlay):
    found = recipe(f"san/{name}", f"san/overlays/{overlay}")
    variant = found.config["expected"]["variant"]
    assert recipe(f"san/{name}").config["expected"]["variants"][variant]["parameters"] == found.parameters
    assert agrees(found.parameters, *VARIANTS[name, overlay])


def make(spec, **options):
    torch.manual_seed(0)
    return SAN(spec, DIM, 2, HEADS, norm="none", **options).double().eval()


def attend(layer, row, x, edges, gamma):
    """One graph, pair by pair: nodes `[n, DIM]` and `edges`, (j, i, vector) each."""
    width = DIM // HEADS
    q, k, v = (x @ weight.T for weight in layer.qkv_map.weight.chunk(3))
    real = {(j, i) for j, i, _ in edges}
    pairs = [(j, i, layer.edge_map.weight @ e, q, k, 1.0) for j, i, e in edges]
    if gamma is not None:
        q_2, k_2 = (x @ weight.T for weight in layer.added_qk_map.weight.chunk(2))
        others = [(j, i) for i in range(len(x)) for j in range(len(x)) if i != j and (j, i) not in real]
        pairs += [(j, i, layer.added_edge_map.weight @ row, q_2, k_2, gamma) for j, i in others]
    out = torch.zeros_like(x)
    for head in range(HEADS):
        part = slice(head * width, (head + 1) * width)
        for i in range(len(x)):
            top, bottom = torch.zeros(width).double(), 1e-6
            for j, target, steer, queries, keys, share in pairs:
                if target == i:
                    logit = (queries[i, part] * keys[j, part] * steer[part]).sum() / math.sqrt(width)
                    weight = share * logit.clamp(-5, 5).exp() / (1 + (gamma or 0.0))
                    top, bottom = top + weight * v[j, part], bottom + weight
            out[i, part] = top / bottom
    return layer.out_map(out)


@pytest.mark.parametrize("options", [{"full": False}, {}], ids=["sparse", "full"])
def test_san_agrees_with_its_equations_pair_by_pair(spec, graphs, batch, options):
    """Large logits, parallel edges, loops, graphs without edges and a single node are among the samples."""
    model = make(spec, gamma=GAMMA, **options)
    x, edge = 3 * model.node_encoder(batch), 3 * model.edge_encoder(batch)
    gamma, row = (GAMMA, model.added_row) if model.added_row is not None else (None, None)
    first, expected = 0, []
    for number, graph in enumerate(graphs):
        nodes = x[batch.ptr[number] : batch.ptr[number + 1]]
        ends = graph["edge_index"].T.tolist()
        edges = [(j, i, edge[first + number]) for number, (j, i) in enumerate(ends)]
        first += len(ends)
        for layer in model.layers:
            nodes = nodes + attend(layer.attention, row, nodes, edges, gamma)
            nodes = nodes + layer.feed_forward.contract(layer.feed_forward.expand(nodes).relu())
        expected.append(nodes)
    model.node_encoder.register_forward_hook(lambda module, args, out: 3 * out)
    model.edge_encoder.register_forward_hook(lambda module, args, out: 3 * out)
    torch.testing.assert_close(model(batch).node, torch.cat(expected), atol=1e-9, rtol=1e-9)


def test_pairs_without_an_edge_carry_a_change(spec, graphs):
    """A graph of three nodes without edges: only added pairs connect its nodes."""
    for full in (False, True):
        model = make(spec, gamma=GAMMA, full=full)
        batch = GraphTable.from_graphs(graphs).batch([5])
        before = model(batch).node
        batch.x_dense[0] += 1
        assert torch.equal(before[2], model(batch).node[2]) != full


def test_traces_explain_the_output(spec, batch):
    model = make(spec, gamma=GAMMA)
    with record(model) as traces:
        model(batch)
    layer = model.layers[0].attention
    for graph, weights in enumerate(traces[0].attention):
        rows = slice(int(batch.ptr[graph]), int(batch.ptr[graph + 1]))
        mixed = torch.einsum("hij,jho->io", weights, traces[0].values[rows]) + layer.out_map.bias
        torch.testing.assert_close(mixed, traces[0].tokens[rows], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"num_heads": 7}, "num_heads=7 and hidden_dim=64"), ({"gamma": 0}, "gamma")],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        SAN(spec, **options)


@pytest.fixture
def positions(graphs):
    """Function: options -> an encoder in float64 without dropout, and a batch; two graphs have fewer than K nodes."""

    def make(**options):
        torch.manual_seed(0)
        encoder = TransformerLapPE(K, DIM, num_layers=2, num_heads=HEADS, **options).double().eval()
        table = encode(GraphTable.from_graphs(graphs), encoder.encodings)
        return encoder, table.batch(range(len(graphs)))

    return make


def normalise(x, norm):
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt() * norm.weight + norm.bias


def transform(layer, tokens):
    """A transformer layer on the tokens `[k, DIM]` of one node: attention, norm, network, norm."""
    q, k, v = (tokens @ layer.self_attn.in_proj_weight.T + layer.self_attn.in_proj_bias).chunk(3, dim=-1)
    heads = []
    for part in torch.arange(DIM).chunk(HEADS):
        weights = (q[:, part] @ k[:, part].T / (DIM / HEADS) ** 0.5).softmax(-1)
        heads.append(weights @ v[:, part])
    x = normalise(tokens + layer.self_attn.out_proj(torch.cat(heads, dim=-1)), layer.norm1)
    return normalise(x + layer.linear2(layer.linear1(x).relu()), layer.norm2)


@pytest.mark.parametrize("unit_rows", [False, True])
def test_positions_are_sums_over_the_eigenpairs_of_the_graph(positions, graphs, unit_rows):
    """Node by node and token by token; in a graph with fewer nodes than K there are as many tokens as nodes."""
    encoder, batch = positions(unit_rows=unit_rows)
    expected = []
    for graph, parts in enumerate(graphs):
        count = min(K, parts["num_nodes"])
        values = batch.lap_pe_values[graph, :count].double()
        for node in range(int(batch.ptr[graph]), int(batch.ptr[graph + 1])):
            entries = batch.lap_pe_vectors[node, :count].double()
            entries = entries / entries.norm() if unit_rows else entries
            tokens = torch.stack([entries, values], dim=-1) @ encoder.token_map.weight.T + encoder.token_map.bias
            for layer in encoder.transformer.layers:
                tokens = transform(layer, tokens)
            expected.append(tokens.sum(0))
    torch.testing.assert_close(encoder(batch), torch.stack(expected), atol=1e-9, rtol=1e-9)
    with torch.no_grad():  # for which PyTorch has a different kernel
        torch.testing.assert_close(encoder(batch), torch.stack(expected), atol=1e-9, rtol=1e-9)


def test_signs_are_sampled_in_training_alone(positions):
    encoder, batch = positions(sign="flip_graph", dropout=0.0)
    before = encoder(batch)
    assert torch.equal(before, encoder(batch))
    torch.manual_seed(1)
    assert not torch.allclose(before, encoder.train()(batch))
    still, _ = positions(sign="none", dropout=0.0)
    torch.testing.assert_close(still.train()(batch), before, atol=1e-9, rtol=1e-9)


def test_parameters_are_those_of_the_formula():
    """206,304 of the 494,865 of the published sparse model on ZINC."""
    count = sum(p.numel() for p in TransformerLapPE(num_eigenvectors=30, dim=16, num_layers=3).parameters())
    assert count == 3 * (4 * 16**2 + 9 * 16 + 4096 * 16 + 2048) + 3 * 16 == 206_304


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 3}, "num_heads=3 and dim=16"),
        ({"num_layers": 0}, "num_layers"),
        ({"dropout": 1.0}, "dropout"),
        ({"sign": "random"}, "sign"),
        ({"normalization": "row"}, "normalization"),
    ],
)
def test_options_of_positions_that_do_not_fit_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        TransformerLapPE(**options)
