"""Sequences in the store: positions and towers are computed for batches, and not stored."""

import numpy as np
import pytest
import torch

from graphbench.benchmarks.sequences.base import Sequences, SequenceTable, places, to_table

DOCUMENTS = [(b"abc", b"de"), (b"f", b""), (b"", b"ghij")]


@pytest.fixture
def pairs():
    whole = [first + second for first, second in DOCUMENTS]
    tokens = np.frombuffer(b"".join(whole), dtype=np.uint8).copy()
    lengths = np.array([len(text) for text in whole])
    second = np.array([len(first) for first, _ in DOCUMENTS], dtype=np.int32)
    return SequenceTable.of(to_table(Sequences(tokens, lengths, np.array([1, 0, 1], dtype=np.uint8), second)))


@pytest.fixture
def single():
    tokens = np.array([5, 6, 7, 8, 9], dtype=np.uint8)
    return SequenceTable.of(to_table(Sequences(tokens, np.array([2, 3]), np.array([0, 1], dtype=np.uint8))))


def test_positions_count_within_each_sequence(single):
    batch = single.batch([1, 0])
    assert batch.x.tolist() == [[7], [8], [9], [5], [6]]
    assert batch.pos.tolist() == [[0], [1], [2], [0], [1]]
    assert batch.pos.dtype == torch.float32
    assert batch.y.tolist() == [[1], [0]]
    assert batch.edge_index.shape == (2, 0)


@pytest.mark.parametrize("rows", [[0, 1, 2], [2, 0], [1]])
def test_towers_and_positions_of_pairs(pairs, rows):
    batch = pairs.batch(rows)
    expected = [
        [token, tower, place]
        for row in rows
        for tower, text in enumerate(DOCUMENTS[row])
        for place, token in enumerate(text)
    ]
    assert torch.cat([batch.x, batch.pos.long()], dim=1).tolist() == expected
    assert "second" not in batch


def test_parts_of_a_table_have_positions_too(pairs):
    for part in (pairs.slice(1, 3), pairs.select(torch.tensor([1, 2])), pairs.select(torch.tensor([1, 2])).slice(0, 2)):
        assert torch.equal(part.batch([0, 1]).pos, pairs.batch([1, 2]).pos)
        assert part.batch([0, 1]).graph_id.tolist() == [1, 2]
    more = pairs.with_columns({"extra": torch.zeros(3, 1)}, {"extra": pairs.layout["y"]})
    assert torch.equal(more.batch([0]).x, pairs.batch([0]).x)


def test_a_token_takes_a_byte(single):
    assert single.columns["x"].dtype == torch.uint8
    assert set(single.columns) == {"x", "y", "edge_index"}


def test_places_of_no_sequence_are_empty():
    pos, tower = places(torch.zeros(1, dtype=torch.int64), None)
    assert pos.shape == (0, 1)
    assert tower is None


def test_positions_of_long_sequences_are_exact():
    pos, _ = places(torch.tensor([0, 70_000]), None)
    assert torch.equal(pos[:, 0].long(), torch.arange(70_000))
