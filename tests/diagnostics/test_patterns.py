"""Patterns of substructures: dense, ragged, and their spectral norm."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphbench.diagnostics import Patterns, pattern_matrix
from graphbench.encodings.substructures import Substructures
from graphbench.errors import BadInput
from graphbench.testing.tiny import tiny_spec, tiny_table


def test_pattern_matrix_is_uniform_on_the_members() -> None:
    matrix = pattern_matrix(torch.tensor([0, 2, 1, 3, 0, 2]), torch.tensor([0, 0, 1, 2, 2, 2]), 3, 4)
    third = 1 / 3
    torch.testing.assert_close(matrix, torch.tensor([[0.5, 0, 0.5, 0], [0, 1, 0, 0], [third, 0, third, third]]))


def test_ragged_patterns_apply_like_the_block_matrix(tokens: Tensor, batch: Tensor, patterns: Patterns) -> None:
    dense = pattern_matrix(patterns.node, patterns.pattern, len(patterns.batch), len(batch))
    torch.testing.assert_close(patterns.apply(tokens), dense @ tokens)
    heads = torch.stack((tokens, -tokens), 1)
    torch.testing.assert_close(patterns.apply(heads)[:, 1], -(dense @ tokens))
    assert (dense * (patterns.batch.unsqueeze(1) != batch)).sum() == 0  # block-diagonal
    assert patterns.counts.tolist() == [4, 40, 1, 0, 7, 21]


def test_order_of_members_does_not_matter(patterns: Patterns, tokens: Tensor) -> None:
    order = torch.randperm(len(patterns.node), generator=torch.Generator().manual_seed(0))
    mixed = Patterns.uniform(patterns.node[order], patterns.pattern[order], patterns.batch, patterns.num_nodes)
    torch.testing.assert_close(mixed.apply(tokens), patterns.apply(tokens))


def test_centred_norm_is_the_spectral_norm(batch: Tensor, patterns: Patterns) -> None:
    dense = pattern_matrix(patterns.node, patterns.pattern, len(patterns.batch), len(batch)).double()
    for graph in range(6):
        own = dense[patterns.batch == graph][:, batch == graph]
        expected = torch.linalg.matrix_norm(own - own.mean(0), 2).item() if len(own) else 0.0
        assert patterns.centred_norm[graph].item() == pytest.approx(expected, abs=1e-6)


def test_patterns_of_a_batch_with_substructures() -> None:
    table = tiny_table(tiny_spec(), num_graphs=5)
    encoding = Substructures(cycles=(3, 4), paths=(4,), stars=(2,), hops=(1,))
    encoded = encoding.compute(table)
    batch = table.with_columns(encoded.columns, encoding.layout, encoded.ptr).batch([4, 0, 2])
    patterns = Patterns.uniform(
        batch.member_node, batch.member_substructure, batch.substructure_batch, batch.ptr.diff()
    )
    position = torch.arange(batch.num_nodes, dtype=torch.float64).unsqueeze(1)
    means = patterns.apply(position)[:, 0]
    assert len(means) == len(batch.substructure_size)
    for number in (0, 7, len(means) - 1):
        members = batch.member_node[batch.member_substructure == number].double()
        assert len(members) == batch.substructure_size[number]
        assert means[number].item() == pytest.approx(members.mean().item())


def test_members_that_do_not_fit_are_refused(patterns: Patterns) -> None:
    one, two = torch.tensor([0, 1]), torch.tensor([2, 2])
    with pytest.raises(BadInput, match="number 1 has none"):
        pattern_matrix(torch.tensor([0, 1]), torch.tensor([0, 0]), 2, 2)
    with pytest.raises(BadInput, match="nodes 0 to 5, but there are 4"):
        pattern_matrix(torch.tensor([0, 5]), torch.tensor([0, 0]), 1, 4)
    with pytest.raises(BadInput, match="one length"):
        pattern_matrix(torch.tensor([0, 1, 2]), torch.tensor([0]), 1, 4)
    with pytest.raises(BadInput, match="nodes of another graph"):
        Patterns.uniform(one, torch.tensor([0, 1]), torch.tensor([0, 0]), torch.tensor([1, 1]))
    with pytest.raises(BadInput, match="sorted by pattern"):
        Patterns(one, torch.tensor([1, 0]), torch.ones(2), torch.zeros(2, dtype=torch.int64), two[:1])
    with pytest.raises(BadInput, match="sum to one"):
        Patterns(one, torch.tensor([0, 0]), torch.ones(2), torch.zeros(1, dtype=torch.int64), two[:1])
    for absent in (3, -1):
        with pytest.raises(BadInput, match=f"name graphs {min(absent, 0)} to {max(absent, 0)}"):
            Patterns(one, torch.tensor([0, 1]), torch.ones(2), torch.tensor([0, absent]), two)
