"""Sequoia against loops over the nodes of one tree at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_sequences import SequenceSequoia
from graphbench_sequences.sequoia import LevelOrder, SequoiaAttention, SequoiaLayer, SequoiaStack, visits
from graphbench_sequences.tree import Tree

SMALL = {"hidden_dim": 12, "num_layers": 2, "num_heads": 3, "head_dim": 5, "ffn_dim": 14, "num_children": 2}
ORDERS = get_args(LevelOrder)
LENGTHS = (5, 1, 9, 8)
DIM, HEADS, WIDTH = 8, 2, 3


def order_of(name, depth):
    """Return the levels of a tree of `depth` levels in the order of its turns."""
    up, down = list(range(depth)), list(range(depth))[::-1]
    pairs = [level for pair in zip(up, down, strict=True) for level in pair]
    return {"bottom_up": up, "top_down": down, "complete": up + down, "interleaved": pairs}[name]


def family(level, node, sizes, k):
    """Ancestors, siblings and children of a node, as numbers of level and place; a kind may be empty."""
    ancestors = [(upper, node // k ** (upper - level)) for upper in range(level + 1, len(sizes))]
    siblings = [(level, other) for other in range(sizes[level]) if other // k == node // k]
    children = [(level - 1, other) for other in range(sizes[level - 1]) if other // k == node] if level else []
    return ancestors, siblings, children


def attend_by_hand(attention, nodes, sizes, k):
    """New nodes by level and place: one query, one head and one kind of relatives at a time."""
    query, key, value = {}, {}, {}
    for name, x in nodes.items():
        parts = F.linear(x, attention.qkv_map.weight, attention.qkv_map.bias).view(3, HEADS, WIDTH)
        query[name], key[name], value[name] = parts
    for level in order_of(attention.level_order, len(sizes)):
        written = {}
        for node in range(sizes[level]):
            heads = []
            for head in range(HEADS):
                total = torch.zeros(WIDTH, dtype=torch.float64)
                for kind in family(level, node, sizes, k):
                    if kind:
                        logits = [query[level, node][head] @ key[other][head] / WIDTH**0.5 for other in kind]
                        weights = torch.stack(logits).softmax(0)
                        total += sum(weight * value[other][head] for weight, other in zip(weights, kind, strict=True))
                heads.append(total / 3)
            written[level, node] = torch.stack(heads)
        value |= written
    return {name: F.linear(x.flatten(), attention.out_map.weight, attention.out_map.bias) for name, x in value.items()}


def run_by_hand(stack, tokens, k):
    """Return the tokens of one document after all layers; the last one computes the other nodes as well."""
    tree = Tree.over(torch.tensor([len(tokens)]), len(tokens), k)
    sizes = [int(count) for count in tree.counts]
    grown = [part.flatten(1, 2)[0] for part in tree.split(tree.grow(tokens[None]), 1)]  # see test_tree.py
    nodes = {(level, node): grown[level][node] for level in range(len(sizes)) for node in range(sizes[level])}
    for layer in stack.layers:
        mixed = attend_by_hand(layer.attention, {name: layer.attention_norm(x) for name, x in nodes.items()}, sizes, k)
        nodes = {name: x + mixed[name] for name, x in nodes.items()}
        nodes = {name: x + layer.ffn(layer.ffn_norm(x)) for name, x in nodes.items()}
    return torch.stack([nodes[0, node] for node in range(sizes[0])])


@pytest.mark.parametrize("k", [2, 3, 8])
@pytest.mark.parametrize("order", ORDERS)
def test_stack_agrees_with_loops_over_nodes(made, order, k):
    """Documents of several depths in one batch, padded to the longest."""

    def build():
        attentions = [SequoiaAttention(DIM, HEADS, WIDTH, order, is_last=last) for last in (False, False, True)]
        return SequoiaStack([SequoiaLayer(DIM, attention, 10) for attention in attentions], k)

    stack = made(build)
    graph_of = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    x = torch.randn(len(graph_of), DIM, dtype=torch.float64)
    ptr = torch.tensor([0, *LENGTHS]).cumsum(0).tolist()
    whole = DenseLayout.from_batch(graph_of)
    one_block = DenseLayout(whole.index, whole.mask, whole.key_bias, whole.ptr)  # as on a GPU
    expected = torch.cat([run_by_hand(stack, x[a:b], k) for a, b in pairwise(ptr)])
    for layout in (whole, one_block):
        torch.testing.assert_close(stack(x, layout), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("order", ORDERS)
def test_trees_of_each_depth_have_their_own_order(order):
    """For any depth of the deepest tree; only their turns and their levels count."""
    for deepest in range(1, 6):
        turns = list(visits(order, deepest))
        for depth in range(1, deepest + 1):
            own = [level for level, only in turns if only in (None, depth) and level < depth]
            assert own == order_of(order, depth)


def test_a_token_alone_sees_itself_with_a_third(made):
    attention = made(lambda: SequoiaAttention(DIM, HEADS, WIDTH))
    x = torch.randn(1, 1, DIM, dtype=torch.float64)
    tree = Tree.over(torch.tensor([1]), 1, 8)
    value = attention.qkv_map(x[0, 0])[2 * HEADS * WIDTH :]
    torch.testing.assert_close(attention(tree.grow(x), tree)[0, 0], attention.out_map(value / 3))


def test_families_that_are_not_full_repeat_nobody(made):
    """Two tokens in one family and one alone, whose parent is its copy: neither padding nor a copy enters the means."""
    tree = Tree.over(torch.tensor([3]), 3, 2)
    x = torch.tensor([[[1.0], [2.0], [6.0]]], dtype=torch.float64).expand(1, 3, DIM)
    grown = tree.split(tree.grow(x) - tree.grow(torch.zeros_like(x)), 1)
    assert grown[1][0, 0, :, 0].tolist() == pytest.approx([1.5, 6.0])
    assert grown[2][0, 0, 0, 0].item() == pytest.approx(3.75)


def test_parameters_are_those_of_the_formula(spec):
    d, f, width = 12, 14, 15
    layer = 3 * (d * width + width) + width * d + d + 2 * d * f + f + d + 4 * d
    expected = 5 * d + spec.max_nodes * d + 2 * layer + 2 * d  # tokens, places, layers and the last norm
    assert sum(parameter.numel() for parameter in SequenceSequoia(spec, **SMALL).parameters()) == expected


def test_vectors_of_tokens_begin_as_in_the_released_code(pairs):
    torch.manual_seed(0)
    model = SequenceSequoia(pairs, hidden_dim=256, num_layers=1)
    assert model.token_encoder.encoder.features.table.std().item() == pytest.approx(0.02, rel=0.1)
    assert model.positions.table.std().item() == pytest.approx(0.02, rel=0.1)
    assert isinstance(model.final_norm, nn.LayerNorm)


def test_orders_differ(spec, batch_of):
    """Same weights, other answers."""
    torch.manual_seed(0)
    state, found = SequenceSequoia(spec, **SMALL).double().state_dict(), []
    for order in ORDERS:
        model = SequenceSequoia(spec, **SMALL, level_order=order).double().eval()
        model.load_state_dict(state)
        found.append(model(batch_of(spec)).graph)
    assert all((a - b).abs().max() > 1e-6 for i, a in enumerate(found) for b in found[:i])


@pytest.mark.parametrize("name", ["dropout", "attention_dropout"])
def test_entries_are_dropped_in_training_alone(spec, batch_of, name):
    torch.manual_seed(0)
    options = SMALL | {"dropout": 0.0, "attention_dropout": 0.0} | {name: 0.5}
    model, batch = SequenceSequoia(spec, **options).double(), batch_of(spec)
    assert not torch.equal(model(batch).graph, model(batch).graph)
    model.eval()
    assert torch.equal(model(batch).graph, model(batch).graph)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_children": 1}, "num_children must be an integer of at least 2, but got 1"),
        ({"head_dim": 0}, "head_dim must be an integer of at least 1"),
        ({"level_order": "random"}, "level_order must be one of bottom_up, top_down, complete, interleaved, but got"),
        ({"max_length": 0}, "max_length must be"),
        ({"attention_dropout": 1.0}, "attention_dropout must be"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        SequenceSequoia(spec, **(SMALL | options))
