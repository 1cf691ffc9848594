"""The arena's transformer, against torch's encoder layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_sequences import SequenceTransformer
from graphbench_sequences.attention import SoftmaxAttention
from graphbench_sequences.tokens import Documents, sinusoids
from graphbench_sequences.transformer import TransformerLayer

graph_of = torch.tensor([0] * 5 + [1] + [2] * 9)


def layer_of_torch(layer):
    """Create torch's encoder layer with the weights of ours, whose attention has no biases."""
    dim, ffn_dim = layer.ffn.expand.in_features, layer.ffn.expand.out_features
    theirs = nn.TransformerEncoderLayer(
        dim, layer.attention.num_heads, ffn_dim, 0.0, "gelu", 1e-6, batch_first=True, norm_first=True
    ).double()
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(layer.attention.qkv_map.weight)
        theirs.self_attn.out_proj.weight.copy_(layer.attention.out_map.weight)
        for bias in (theirs.self_attn.in_proj_bias, theirs.self_attn.out_proj.bias):
            bias.zero_()
        pairs = (
            (theirs.linear1, layer.ffn.expand),
            (theirs.linear2, layer.ffn.contract),
            (theirs.norm1, layer.attention_norm),
            (theirs.norm2, layer.ffn_norm),
        )
        for mine, ours in pairs:
            mine.load_state_dict(ours.state_dict())
    return theirs


def test_layer_is_that_of_torch(made):
    layer = made(lambda: TransformerLayer(8, SoftmaxAttention(8, num_heads=2), ffn_dim=12))
    theirs, x = layer_of_torch(layer), torch.randn(15, 8, dtype=torch.float64)
    found = layer(x, DenseLayout.from_batch(graph_of))
    for graph in range(3):
        own = x[graph_of == graph].unsqueeze(0)
        torch.testing.assert_close(found[graph_of == graph], theirs(own)[0], rtol=1e-11, atol=1e-11)


def test_model_is_a_stack_of_torchs_layers(made, spec, batch_of):
    model = made(lambda: SequenceTransformer(spec, hidden_dim=8, num_layers=2, num_heads=2, ffn_dim=12))
    batch, table = batch_of(spec), model.token_encoder.encoder.features.table
    found, documents = model(batch), Documents.of(batch_of(spec), None)
    theirs = [layer_of_torch(layer) for layer in model.layers]
    for graph in range(batch.num_graphs):
        rows = documents.order[documents.document == graph]
        x = torch.cat([model.cls, table[batch.x[rows, 0]]])
        x = (x + sinusoids(torch.arange(len(x)), 8)).unsqueeze(0)
        for layer in theirs:
            x = layer(x)
        x = model.final_norm(x[0])
        torch.testing.assert_close(found.graph[graph], x[0], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(found.node[rows], x[1:], rtol=1e-10, atol=1e-10)


def test_parameters_are_those_of_the_formula(spec):
    """Tokens, the learned token, L layers with two norms, a last norm."""
    d, q, f = 16, 8, 24
    model = SequenceTransformer(spec, hidden_dim=d, num_layers=3, num_heads=4, qkv_dim=q, ffn_dim=f)
    layer = 4 * d * q + 2 * d * f + f + d + 4 * d
    assert sum(parameter.numel() for parameter in model.parameters()) == 5 * d + d + 3 * layer + 2 * d
    linformer = SequenceTransformer(spec, hidden_dim=d, num_layers=3, num_heads=4, qkv_dim=q, ffn_dim=f, rank=7,
                                    attention="linformer")  # fmt: skip
    more = sum(p.numel() for p in linformer.parameters()) - sum(p.numel() for p in model.parameters())
    assert more == 3 * 7 * (spec.max_nodes + 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "full"}, "attention must be one of softmax, linformer, performer, bigbird, reformer"),
        ({"num_heads": 3}, "num_heads must divide qkv_dim"),
        ({"kernel": "exp"}, "kernel must be one of relu, softmax, but got 'exp'"),
        ({"rank": 0}, "rank must be an integer of at least 1, but got 0"),
        ({"num_features": 0}, "num_features must be"),
        ({"num_features": None, "kernel": "softmax"}, "num_features must be a number for kernel: softmax"),
        ({"num_random": -1}, "num_random must be an integer of at least 0"),
        ({"attention": "reformer", "num_buckets": 3}, "num_buckets must be 1 or even, .* but got 3"),
        ({"max_length": 0}, "max_length must be"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        SequenceTransformer(spec, **options)
