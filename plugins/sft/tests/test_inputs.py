"""Inputs of the tokens, and of the scores instead."""

import math
from dataclasses import replace

import pytest
import torch

from graphbench import Features
from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench.testing import tiny_spec, tiny_table
from graphbench_sft.inputs import NORMALS, TokenEncoder, relative_information, sinusoid_width, sinusoids

POINTS = replace(tiny_spec(kind="coordinates"), node=Features((4,), dense=3, names=("category", *NORMALS)))
SEQUENCE = replace(tiny_spec(kind="categorical"), node=Features((9,), names=("token",)), edge=Features(), coordinates=1)


def encode(spec, relative, batch):
    torch.manual_seed(0)
    return TokenEncoder(spec, 16, relative)(batch)


def test_sinusoids_follow_equations_23_and_24():
    waves = sinusoids(torch.tensor([[0.0], [3.0], [1000.0]], dtype=torch.float64), 6)
    for row, i in enumerate((0, 3, 1000)):
        for j in range(3):
            assert waves[row, 2 * j] == pytest.approx(math.sin(i / 10000 ** (j / 6)))
            assert waves[row, 2 * j + 1] == pytest.approx(math.cos(i / 10000 ** (j / 6)))


def test_every_coordinate_gets_its_own_sinusoids():
    place = torch.tensor([[2.0, 5.0]])
    expected = torch.cat([sinusoids(place[:, :1], 4), sinusoids(place[:, 1:], 4)], dim=1)
    assert torch.equal(sinusoids(place, 4), expected)
    assert sinusoid_width(replace(SEQUENCE, coordinates=3), 16) == 4
    assert sinusoid_width(SEQUENCE, 3) == 2


def changed(batch, **columns):
    other = batch.clone()
    for name, value in columns.items():
        other[name] = value
    return other


def test_places_and_normals_enter_the_tokens_of_the_absolute_variant_alone():
    batch = tiny_table(POINTS).batch([0, 1])
    for moved in (changed(batch, pos=batch.pos + 1), changed(batch, x_dense=batch.x_dense + 1)):
        assert torch.equal(encode(POINTS, "distances", batch), encode(POINTS, "distances", moved))
        assert not torch.allclose(encode(POINTS, "none", batch), encode(POINTS, "none", moved))
    other = changed(batch, x=(batch.x + 1) % 4)
    assert not torch.allclose(encode(POINTS, "distances", batch), encode(POINTS, "distances", other))


def test_points_without_other_features_start_equal():
    spec = replace(POINTS, node=Features(dense=3, names=NORMALS))
    tokens = encode(spec, "distances", tiny_table(spec).batch([0, 1]))
    assert torch.equal(tokens, tokens[:1].expand_as(tokens))


def test_a_place_in_a_sequence_enters_as_sinusoids():
    batch = tiny_table(SEQUENCE).batch([0, 1])
    torch.manual_seed(0)
    encoder = TokenEncoder(SEQUENCE, 16, "none")
    linear = encoder.encoder.features.linear
    one_hot = torch.nn.functional.one_hot(batch.x[:, 0], 9).float()
    expected = linear(torch.cat([one_hot, sinusoids(batch.pos, 16)], dim=1))
    torch.testing.assert_close(encoder(batch), expected)


def test_columns_behind_the_named_ones_stay():
    """A positional encoding of the module appends dense columns to the specification, without names."""
    spec = replace(POINTS, node=replace(POINTS.node, dense=5))
    batch = tiny_table(spec).batch([0])
    appended = batch.x_dense.clone()
    appended[:, 3:] += 1
    assert not torch.allclose(
        encode(spec, "distances", batch), encode(spec, "distances", changed(batch, x_dense=appended))
    )


def test_distances_are_those_of_the_points():
    batch = tiny_table(POINTS, sizes=[5, 4]).batch([0, 1])
    information = relative_information(POINTS, "distances", 16, 2)
    (relation,) = information(batch, DenseLayout.from_batch(batch))
    assert information.dim == 2
    assert torch.equal(relation.position[1, :4], batch.pos[5:])
    assert torch.equal(relation.normal[0], batch.x_dense[:5])
    plain = replace(POINTS, node=Features(dense=3))
    assert relative_information(plain, "distances", 16, 2).dim == 1


def test_relative_information_needs_places():
    for relative in ("distances", "positions"):
        with pytest.raises(BadInput, match=f"relative: {relative} needs nodes with a position"):
            relative_information(tiny_spec(), relative, 16, 2)
    with pytest.raises(BadInput, match="relative must be one of edges, distances, positions, none, but got 'all'"):
        relative_information(POINTS, "all", 16, 2)
