"""Learned positions of SAN: their transformer by hand, filling, signs."""

from __future__ import annotations

import pytest
import torch

from graphbench import GraphTable
from graphbench.errors import BadInput
from graphbench.testing import encode
from graphbench_baselines import TransformerLapPE

K, DIM, HEADS = 4, 8, 2


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
    with torch.no_grad():  # where PyTorch has another kernel
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
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        TransformerLapPE(**options)
