"""Trees against loops over their nodes."""

from __future__ import annotations

import math

import pytest
import torch

from graphbench_sequences.tree import Relatives, Tree

LENGTHS = (9, 1, 5, 8, 2)


def sizes_of(length, num_children):
    """Nodes of the levels of a document, tokens first."""
    sizes = [length]
    while sizes[-1] > 1:
        sizes.append(math.ceil(sizes[-1] / num_children))
    return sizes


@pytest.fixture(params=[2, 3, 8])
def num_children(request):
    return request.param


@pytest.fixture
def tree(num_children):
    return Tree.over(torch.tensor(LENGTHS), max(LENGTHS), num_children)


def test_levels_have_the_nodes_of_each_document(tree, num_children):
    for document, length in enumerate(LENGTHS):
        sizes = sizes_of(length, num_children)
        assert tree.depth[document] == len(sizes)
        for level in range(tree.num_levels):
            expected = sizes[level] if level < len(sizes) else 0
            assert tree.counts[level][document] == expected
            exists = tree.exists[level][document].flatten()
            assert exists.tolist() == [slot < expected for slot in range(len(exists))]


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 63, 64, 65, 511, 512, 513, 4096])
def test_powers_are_no_special_case(length):
    """A quotient of logarithms might be rounded up here."""
    tree = Tree.over(torch.tensor([length]), length, 8)
    assert [int(count) for count in tree.counts] == sizes_of(length, 8)


def test_groups_have_the_ancestors_of_their_nodes(tree, num_children):
    """Node i of a level is below node `i // k^s` of the level s above, if the document has it."""
    for level, (places, relatives) in enumerate(zip(tree.places, tree.ancestors, strict=True)):
        assert len(places) == tree.num_levels - 1 - level
        for document, length in enumerate(LENGTHS):
            sizes = sizes_of(length, num_children)
            for node in range(sizes[level] if level < len(sizes) else 0):
                group = node // num_children
                found = {
                    (level + 1 + step, int(place[group]))
                    for step, place in enumerate(places)
                    if relatives.bias[document, 0, group, 0, step] == 0 and relatives.has_some[document, 0, group]
                }
                above = range(level + 1, len(sizes))
                assert found == {(upper, node // num_children ** (upper - level)) for upper in above}


def test_groups_without_keys_hide_nothing_and_count_nothing():
    relatives = Relatives.of(torch.tensor([[[True, False], [False, False]]]))
    assert relatives.bias.shape == (1, 1, 2, 1, 2)
    assert relatives.bias.flatten().tolist() == [0, -math.inf, 0, 0]
    assert relatives.has_some.flatten().tolist() == [1, 0]


def test_nodes_begin_as_means_with_places(tree, num_children):
    """Means of means, without places; then sines and cosines of the middle of the tokens below a node, and a zero."""
    dim = 6
    x = torch.randn(len(LENGTHS), max(LENGTHS), dim, dtype=torch.float64)
    levels = tree.split(tree.grow(x), 1)
    for document, length in enumerate(LENGTHS):
        sizes, means = sizes_of(length, num_children), list(x[document, :length])
        torch.testing.assert_close(levels[0][document].flatten(0, 1)[:length], x[document, :length])
        for level in range(1, len(sizes)):
            groups = [means[first : first + num_children] for first in range(0, len(means), num_children)]
            means = [sum(group) / len(group) for group in groups]
            found = levels[level][document].flatten(0, 1)
            for node, mean in enumerate(means):
                middle = (node + 0.5) * length / sizes[level]
                angles = [middle / 10_000 ** (2 * pair / dim) for pair in range(dim // 2)]
                place = [function(angle) for angle in angles for function in (math.sin, math.cos)]
                expected = mean + torch.tensor(place, dtype=torch.float64)
                expected[dim - level] = 0
                torch.testing.assert_close(found[node], expected, rtol=1e-12, atol=1e-12)


def test_more_levels_than_entries_are_no_error():
    tree = Tree.over(torch.tensor([9]), 9, 2)
    assert tree.num_levels == 5
    assert tree.grow(torch.randn(1, 9, 2)).isfinite().all()


def test_splitting_keeps_every_slot(tree):
    width = sum(part[0].numel() for part in tree.exists)
    x = torch.arange(2 * width).view(2, width)
    parts = tree.split(x, 1)
    assert [part.shape[1:] for part in parts] == [part.shape[1:] for part in tree.exists]
    assert torch.equal(torch.cat([part.flatten(1) for part in parts], dim=1), x)
