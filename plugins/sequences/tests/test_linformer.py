"""Linformer against matrices of single documents, and against full attention where nothing is mixed."""

from __future__ import annotations

import torch

from graphbench.nn import DenseLayout
from graphbench_sequences.attention import SoftmaxAttention
from graphbench_sequences.linformer import LinformerAttention

graph_of = torch.tensor([0] * 5 + [1] + [2] * 9)
LAYOUT = DenseLayout.from_batch(graph_of)


def test_it_agrees_with_its_equation(made):
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


def test_without_mixing_it_is_full_attention(made):
    """E the identity, on one document as long as there is room for."""
    attention, full = (
        made(lambda: LinformerAttention(8, num_heads=2, max_length=6, rank=6)),
        SoftmaxAttention(8, 2).double().eval(),
    )
    full.load_state_dict({name: value for name, value in attention.state_dict().items() if name != "mixture"})
    with torch.no_grad():
        attention.mixture.copy_(torch.eye(6))
    x, layout = torch.randn(6, 8, dtype=torch.float64), DenseLayout.from_batch(torch.zeros(6, dtype=torch.long))
    torch.testing.assert_close(attention(x, layout), full(x, layout), rtol=1e-12, atol=1e-12)
