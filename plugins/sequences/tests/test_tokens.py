"""Features and places of tokens."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from graphbench import Features
from graphbench.contracts import devices
from graphbench.errors import BadInput
from graphbench.testing import tiny_spec
from graphbench_sequences.tokens import Documents, Positions, TokenEncoder, halved_sinusoids, sinusoids, tower_column


def test_categories_have_vectors_of_their_own_and_the_tower_has_none(pairs, batch_of):
    encoder, batch = TokenEncoder(pairs, 6).double(), batch_of(pairs)
    table = encoder.encoder.features.table
    assert table.shape == (9, 6)
    torch.testing.assert_close(encoder(batch), table[batch.x[:, 0]])


def test_values_run_from_minus_one_to_one(spec, batch_of):
    encoder, batch = TokenEncoder(spec, 6, "values").double(), batch_of(spec)
    linear = encoder.encoder.features.linear
    value = 2 * batch.x.double() / 4 - 1
    torch.testing.assert_close(encoder(batch), value @ linear.weight.T + linear.bias)
    assert batch.x.shape[1] == 1
    assert "x_dense" not in batch


@pytest.mark.parametrize("features", [Features((5, 3)), Features((5,), dense=1), Features((1,)), Features(dense=2)])
def test_values_need_one_categorical_column(spec, features):
    with pytest.raises(BadInput, match=r"tokens: values needs one categorical column .* tokens: categories\."):
        TokenEncoder(replace(spec, node=features), 6, "values")


@pytest.mark.parametrize("dim", [6, 5])
def test_sinusoids_agree_with_their_formula(dim):
    found = sinusoids(torch.arange(50), dim)
    for place in (0, 1, 49):
        for column in range(dim):
            angle = place / 10_000 ** (2 * (column // 2) / dim)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert found[place, column].item() == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("dim", [8, 5, 2, 1])
def test_halved_sinusoids_agree_with_their_formula(dim):
    """Sines in the first half, cosines in the second, 10,000 times slower in its last column than in its first."""
    found, half = halved_sinusoids(torch.arange(50), dim), dim // 2
    assert found.shape == (50, dim)
    for place in (0, 1, 49):
        for column in range(half):
            angle = place * 10_000 ** -(column / (half - 1) if half > 1 else 0)
            assert found[place, column].item() == pytest.approx(math.sin(angle), abs=1e-13)
            assert found[place, half + column].item() == pytest.approx(math.cos(angle), abs=1e-13)
    assert (found[:, 2 * half :] == 0).all()


@pytest.mark.parametrize(("length", "error"), [(1_000, 4e-5), (16_000, 6.1e-4)])
def test_on_an_apple_gpu_they_are_off_by_what_its_page_says(monkeypatch, length, error):
    """`docs/how-to/gpu.md`: the largest error of all columns, in float32."""
    place = torch.arange(length)
    wanted = sinusoids(place, 64)
    monkeypatch.setattr(devices, "_APPLE", {"cpu"})
    found = sinusoids(place, 64)
    assert found.dtype == torch.float32
    assert error / 2 < (found - wanted).abs().max() < error


def test_positions_are_added():
    x, place = torch.randn(4, 6), torch.tensor([2, 0, 1, 2])
    assert torch.equal(Positions("none", 6, 9)(x, place), x)
    torch.testing.assert_close(Positions("sinusoidal", 6, 9)(x, place), x + sinusoids(place, 6).float())
    learned = Positions("learned", 6, 9)
    assert learned.table.shape == (9, 6)
    assert torch.equal(learned(x, place), x + learned.table[place])
    assert [name for name in ("none", "sinusoidal") if list(Positions(name, 6, 9).parameters())] == []


def test_unknown_names_are_refused(spec):
    with pytest.raises(BadInput, match="tokens must be one of"):
        TokenEncoder(spec, 6, "bytes")
    with pytest.raises(BadInput, match="positions must be one of"):
        Positions("rotary", 6, 9)


def test_tokens_are_read_by_their_place(spec, batch_of):
    batch = batch_of(spec)
    documents = Documents.of(batch, None)
    expected = sorted(range(batch.num_nodes), key=lambda row: (int(batch.batch[row]), float(batch.pos[row, 0])))
    assert documents.order.tolist() == expected
    assert documents.document.tolist() == batch.batch.tolist()
    assert documents.ptr.tolist() == batch.ptr.tolist()
    assert documents.place.tolist() == [place for size in (5, 1, 9, 4) for place in range(size)]


def test_pairs_are_two_documents_after_each_other(pairs, batch_of):
    batch = batch_of(pairs)
    documents = Documents.of(batch, tower_column(pairs))
    number = (2 * batch.batch + batch.x[:, 1]).tolist()
    expected = sorted(range(batch.num_nodes), key=lambda row: (number[row], float(batch.pos[row, 0])))
    sizes = [number.count(document) for document in range(8)]
    assert 0 in sizes, "the single token leaves its other document empty"
    assert documents.order.tolist() == expected
    assert documents.ptr.diff().tolist() == sizes
    assert documents.max_length == max(sizes)
    assert documents.place.tolist() == [place for size in sizes for place in range(size)]


def test_tokens_go_back_to_their_nodes(spec, batch_of):
    batch = batch_of(spec)
    documents = Documents.of(batch, None)
    assert torch.equal(documents.to_nodes(batch.pos[documents.order]), batch.pos)


def test_equal_places_keep_the_order_of_nodes(spec, batch_of):
    batch = batch_of(spec)
    batch.pos.zero_()
    assert torch.equal(Documents.of(batch, None).order, torch.arange(batch.num_nodes))


def test_only_a_categorical_column_tells_documents_apart(pairs):
    assert tower_column(pairs) == 1
    assert tower_column(tiny_spec("graph-classification", "sequence")) is None
