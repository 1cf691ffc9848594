"""A packed batch is the batch: values, types, shapes, and what is no tensor."""

from __future__ import annotations

import pickle

import pytest
import torch

from graphbench.contracts import GraphBatch
from graphbench.data.packing import PackedBatch

EVERY_KIND = {
    "half": torch.tensor([[0.5], [-2.0], [3.0]], dtype=torch.float16),
    "yes": torch.tensor([True, False, True]),
    "scalar": torch.tensor(2.5, dtype=torch.float64),
    "nothing": torch.zeros(0, 7),
    "edge_index": torch.arange(6).view(3, 2).t(),
    "small": torch.tensor([-1], dtype=torch.int8),
    "complex": torch.tensor([1 + 2j]),
}


@pytest.fixture
def batch():
    return GraphBatch(**EVERY_KIND, num_graphs=3, max_nodes=9)


def test_nothing_changes(batch):
    found = PackedBatch.pack(batch).unpack()
    assert isinstance(found, GraphBatch)
    assert (found.num_graphs, found.max_nodes) == (3, 9)
    assert set(found.keys()) == set(batch.keys())
    for name, expected in EVERY_KIND.items():
        assert found[name].dtype == expected.dtype
        assert torch.equal(found[name], expected), name


def test_a_batch_of_a_table_survives_the_way_through_a_pipe(make_table):
    batch = make_table(12).batch(range(12))
    found = pickle.loads(pickle.dumps(PackedBatch.pack(batch))).unpack()
    for name, expected in batch.to_dict().items():
        assert torch.equal(found[name], expected) if isinstance(expected, torch.Tensor) else found[name] == expected


def test_tensors_share_one_block_and_do_not_overlap(batch):
    packed = PackedBatch.pack(batch)
    found = packed.unpack()
    found.half.zero_()
    found.small.zero_()
    assert found.half.untyped_storage().data_ptr() == packed.buffer.untyped_storage().data_ptr()
    for name in ("yes", "scalar", "edge_index", "complex"):
        assert torch.equal(found[name], EVERY_KIND[name]), name


def test_a_packed_batch_is_a_copy(batch):
    found = PackedBatch.pack(batch).unpack()
    found.small.zero_()
    assert batch.small.item() == -1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="page-locked memory needs a CUDA device")
def test_pinned(batch):
    found = PackedBatch.pack(batch).pin_memory().unpack()
    assert found.half.is_pinned()
    assert torch.equal(found.half, EVERY_KIND["half"])
