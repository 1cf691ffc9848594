"""Reading order and documents, against sorting token by token."""

from __future__ import annotations

import torch

from graphbench.testing import tiny_spec
from graphbench_sequences.documents import Documents, tower_column


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
