"""BigBird against the dense form of its pattern, and the pattern itself."""

from __future__ import annotations

import pytest
import torch

from graphbench.nn import DenseLayout
from graphbench_sequences import SequenceTransformer
from graphbench_sequences.attention import SoftmaxAttention
from graphbench_sequences.bigbird import BigBirdAttention, block_table

graph_of = torch.tensor([0] * 20 + [1] + [2] * 9 + [3] * 2)


def pattern(length, size, num_heads, num_random, seed):
    """Return the mask of the pairs of tokens that a head sees `[H, n, n]`, block by block."""
    blocks = -(-length // size)
    table = block_table(blocks, blocks, num_heads, num_random, seed)
    seen = torch.zeros(num_heads, length, length, dtype=torch.bool)
    for head in range(num_heads):
        for row in range(blocks):
            own = slice(row * size, (row + 1) * size)
            for block in table[head, row].tolist():
                if block >= 0:
                    seen[head, own, block * size : (block + 1) * size] = True
            if row in (0, blocks - 1):
                seen[head, own] = True
    return seen


@pytest.mark.parametrize(("size", "num_random", "seed"), [(2, 1, 0), (2, 1, 3), (3, 2, 0), (1, 0, 1), (64, 3, 0)])
def test_it_is_softmax_over_the_pairs_of_its_pattern(made, size, num_random, seed):
    attention = made(lambda: BigBirdAttention(8, num_heads=2, block_size=size, num_random=num_random, seed=seed))
    x = torch.randn(len(graph_of), 8, dtype=torch.float64)
    found = attention(x, DenseLayout.from_batch(graph_of))
    for graph in range(4):
        own = x[graph_of == graph]
        q, k, v = (own @ weight.T for weight in attention.qkv_map.weight.chunk(3))
        seen = pattern(len(own), size, 2, num_random, seed)
        heads = [
            (q[:, h] @ k[:, h].T / 2).masked_fill(~seen[number], -torch.inf).softmax(-1) @ v[:, h]
            for number, h in enumerate((slice(0, 4), slice(4, 8)))
        ]
        expected = torch.cat(heads, dim=1) @ attention.out_map.weight.T
        torch.testing.assert_close(found[graph_of == graph], expected, rtol=1e-11, atol=1e-12)


def test_gradients_are_those_of_the_dense_form():
    """Also if the first block is also the last one."""
    torch.manual_seed(0)
    attention, full = BigBirdAttention(8, 2, block_size=64).double(), SoftmaxAttention(8, 2).double()
    full.load_state_dict(attention.state_dict())
    x, layout = torch.randn(len(graph_of), 8, dtype=torch.float64), DenseLayout.from_batch(graph_of)
    attention(x, layout).square().sum().backward()
    full(x, layout).square().sum().backward()
    for mine, theirs in zip(attention.parameters(), full.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("seed", [0, 1])
def test_every_block_sees_what_the_paper_says(seed):
    table = block_table(blocks=12, count=14, num_heads=3, num_random=2, seed=seed)
    assert (table[:, 12:] == -1).all()
    for head in range(3):
        for row in range(12):
            seen = [block for block in table[head, row].tolist() if block >= 0]
            assert len(seen) == len(set(seen)), "no block counts twice"
            assert {0, 11, row} <= set(seen)
            assert {near for near in (row - 1, row + 1) if 0 <= near < 12} <= set(seen)
            window = {0, 11, row - 1, row, row + 1} & set(range(12))
            assert len(seen) == len(window) + 2
    assert not torch.equal(table[0], table[1]), "heads have random blocks of their own"


def test_layers_of_a_model_have_random_blocks_of_their_own(spec):
    """The arena's code seeds them with the number of the layer; with equal weights, layers differ by their blocks."""
    torch.manual_seed(0)
    options = {"hidden_dim": 8, "num_layers": 3, "num_heads": 2, "ffn_dim": 8, "block_size": 1, "num_random": 1}
    model = SequenceTransformer(spec, attention="bigbird", **options).double().eval()
    layers = [layer.attention for layer in model.layers]
    x, layout = torch.randn(20, 8, dtype=torch.float64), DenseLayout.from_batch(torch.zeros(20, dtype=torch.long))
    for layer in layers[1:]:
        layer.load_state_dict(layers[0].state_dict())
    answers = [layer(x, layout) for layer in layers]
    assert (answers[0] - answers[1]).abs().max() > 1e-3
    assert (answers[1] - answers[2]).abs().max() > 1e-3
    assert torch.equal(layers[2](x, layout), answers[2])


def test_all_others_are_drawn_alike_over_layers():
    """Of 12 blocks, block 5 does not see 7 otherwise; random ones of the layers reach all of them."""
    drawn = [block_table(12, 12, 1, 1, seed)[0, 5, 5].item() for seed in range(700)]
    assert set(drawn) == {1, 2, 3, 7, 8, 9, 10}
    assert all(60 <= drawn.count(block) <= 140 for block in set(drawn))


def test_random_blocks_depend_on_the_number_of_blocks_and_the_seed_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    block_table.cache_clear()
    first = block_table(9, 9, 2, 3)
    assert torch.equal(torch.get_rng_state(), before)
    block_table.cache_clear()
    torch.manual_seed(2)
    assert torch.equal(block_table(9, 12, 2, 3)[:, :9], first)
