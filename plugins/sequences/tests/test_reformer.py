"""Reformer against loops over pairs, and against full attention if all tokens are in one bucket."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_sequences.reformer import ReformerAttention

graph_of = torch.tensor([0] * 11 + [1] + [2] * 6)
LAYOUT = DenseLayout.from_batch(graph_of)


def expected(attention, x):
    """One document, pair by pair: a softmax over all others that a token meets in any round."""
    size, buckets, rounds = attention.chunk_length, attention.num_buckets, attention.num_hashes
    q, v = (x @ weight.T for weight in attention.qkv_map.weight.chunk(2))
    heads = []
    for h in (slice(0, 4), slice(4, 8)):
        own, keys = q[:, h], F.normalize(q[:, h], dim=-1)
        meets = torch.zeros(len(x), len(x), dtype=torch.bool)
        for number in range(rounds):
            rotated = own @ attention.rotations[number].double()
            bucket = torch.cat([rotated, -rotated], dim=1).argmax(1).tolist() if buckets > 1 else [0] * len(x)
            ranked = sorted(range(len(x)), key=lambda token: (bucket[token], token))
            chunk = {token: place // size for place, token in enumerate(ranked)}
            for i in range(len(x)):
                for j in range(len(x)):
                    meets[i, j] |= bucket[i] == bucket[j] and chunk[i] - chunk[j] in (0, 1)
        logits = (own @ keys.T / 2).masked_fill(~meets, -torch.inf)
        others = meets.sum(1) > 1
        logits[others] = logits[others].masked_fill(torch.eye(len(x), dtype=torch.bool)[others], -torch.inf)
        heads.append(logits.softmax(-1) @ v[:, h])
    return torch.cat(heads, dim=1) @ attention.out_map.weight.T


@pytest.mark.parametrize(
    ("buckets", "rounds", "size"), [(4, 1, 3), (2, 1, 4), (4, 3, 3), (2, 2, 2), (1, 1, 4), (6, 1, 64)]
)
def test_it_is_a_softmax_over_those_a_token_meets(made, buckets, rounds, size):
    attention = made(lambda: ReformerAttention(8, 2, num_buckets=buckets, num_hashes=rounds, chunk_length=size))
    x = torch.randn(len(graph_of), 8, dtype=torch.float64)
    found = attention(x, LAYOUT)
    for graph in range(3):
        own = x[graph_of == graph]
        torch.testing.assert_close(found[graph_of == graph], expected(attention, own), rtol=1e-9, atol=1e-10)


def test_with_one_bucket_it_is_attention_to_all_others(made):
    """Keys are queries scaled to length 1; a single token attends to itself."""
    attention = made(lambda: ReformerAttention(8, 2, num_buckets=1, chunk_length=64))
    x = torch.randn(len(graph_of), 8, dtype=torch.float64)
    found = attention(x, LAYOUT)
    for graph in range(3):
        q, v = (
            (x[graph_of == graph] @ w.T).unflatten(1, (2, 4)).transpose(0, 1) for w in attention.qkv_map.weight.chunk(2)
        )
        itself = torch.eye(q.shape[1], dtype=torch.bool) & (q.shape[1] > 1)
        mixed = F.scaled_dot_product_attention(q[None], F.normalize(q, dim=-1)[None], v[None], ~itself)[0]
        own = mixed.transpose(0, 1).flatten(1) @ attention.out_map.weight.T
        torch.testing.assert_close(found[graph_of == graph], own, rtol=1e-10, atol=1e-11)


def test_queries_are_keys():
    attention = ReformerAttention(8, 2, qkv_dim=6)
    assert sum(parameter.numel() for parameter in attention.parameters()) == 3 * 8 * 6


def test_an_odd_number_of_buckets_is_refused():
    with pytest.raises(BadInput, match="num_buckets must be 1 or even, for a direction and its opposite, but got 3"):
        ReformerAttention(8, 2, num_buckets=3)
