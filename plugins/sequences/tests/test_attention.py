"""Softmax attention against torch's own on each document, and Linformer against both."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_sequences.attention import LinformerAttention, ProjectedAttention, SoftmaxAttention

graph_of = torch.tensor([0] * 5 + [1] + [2] * 9)
LAYOUT = DenseLayout.from_batch(graph_of)


def test_it_is_the_attention_of_torch(made):
    attention = made(lambda: SoftmaxAttention(8, num_heads=2))
    theirs = nn.MultiheadAttention(8, 2, bias=False, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(attention.qkv_map.weight)
        theirs.out_proj.weight.copy_(attention.out_map.weight)
    x = torch.randn(15, 8, dtype=torch.float64)
    found = attention(x, DenseLayout.from_batch(graph_of))
    for graph in range(3):
        own = x[graph_of == graph].unsqueeze(0)
        torch.testing.assert_close(found[graph_of == graph], theirs(own, own, own)[0][0], rtol=1e-12, atol=1e-12)


def test_width_of_heads_is_free(made):
    attention = made(lambda: SoftmaxAttention(8, num_heads=2, qkv_dim=6))
    assert sum(parameter.numel() for parameter in attention.parameters()) == 4 * 8 * 6
    x = torch.randn(15, 8, dtype=torch.float64)
    q, k, v = (attention.qkv_map.weight[i : i + 6] @ x[:5].T for i in (0, 6, 12))
    heads = [(q[h : h + 3].T @ k[h : h + 3] / 3**0.5).softmax(-1) @ v[h : h + 3].T for h in (0, 3)]
    expected = torch.cat(heads, dim=1) @ attention.out_map.weight.T
    torch.testing.assert_close(attention(x, DenseLayout.from_batch(graph_of))[:5], expected, rtol=1e-12, atol=1e-12)


def test_weights_are_dropped_in_training_alone():
    attention, x = SoftmaxAttention(8, num_heads=2, dropout=0.5), torch.randn(15, 8)
    layout = DenseLayout.from_batch(graph_of)
    assert not torch.equal(attention(x, layout), attention(x, layout))
    attention.eval()
    assert torch.equal(attention(x, layout), attention(x, layout))


def test_each_of_the_three_maps_is_drawn_for_itself():
    torch.manual_seed(0)
    weight = ProjectedAttention(64, 4).qkv_map.weight
    bound = (6 / (64 + 64)) ** 0.5
    for part in weight.chunk(3):
        assert bound * 0.98 < part.abs().max() <= bound


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 3}, "num_heads must divide qkv_dim, but got num_heads=3 and qkv_dim=8"),
        ({"num_heads": 0}, "num_heads must be an integer of at least 1"),
        ({"num_heads": 2, "qkv_dim": 0}, "qkv_dim must be an integer of at least 1"),
        ({"num_heads": 2, "dropout": 1.0}, "attention_dropout must be"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        SoftmaxAttention(8, **options)


def test_linformer_agrees_with_its_equation(made):
    attention = made(lambda: LinformerAttention(8, num_heads=2, max_length=9, rank=3))
    x = torch.randn(15, 8, dtype=torch.float64)
    found = attention(x, LAYOUT)
    for graph in range(3):
        own = x[graph_of == graph]
        q, k, v = (own @ weight.T for weight in attention.qkv_map.weight.chunk(3))
        mixture = attention.mixture[: len(own)]
        heads = [
            (q[:, h] @ (mixture.T @ k[:, h]).T / 2).softmax(-1) @ (mixture.T @ v[:, h])
            for h in (slice(0, 4), slice(4, 8))
        ]
        expected = torch.cat(heads, dim=1) @ attention.out_map.weight.T
        torch.testing.assert_close(found[graph_of == graph], expected, rtol=1e-12, atol=1e-12)


def test_linformer_without_mixing_is_full_attention(made):
    """E is the identity, on one document of maximum length."""
    attention, full = (
        made(lambda: LinformerAttention(8, num_heads=2, max_length=6, rank=6)),
        SoftmaxAttention(8, 2).double().eval(),
    )
    full.load_state_dict({name: value for name, value in attention.state_dict().items() if name != "mixture"})
    with torch.no_grad():
        attention.mixture.copy_(torch.eye(6))
    x, layout = torch.randn(6, 8, dtype=torch.float64), DenseLayout.from_batch(torch.zeros(6, dtype=torch.long))
    torch.testing.assert_close(attention(x, layout), full(x, layout), rtol=1e-12, atol=1e-12)
