from __future__ import annotations

import contextlib
import pickle
from unittest import mock

import pytest
import torch
from pytorch_lightning.utilities.combined_loader import CombinedLoader
from torch import nn

from graphbench.contracts import GraphBatch
from graphbench.data.loader import GraphLoader, PackedBatch
from graphbench.data.lost_memory import explain_memory
from graphbench.data.sampler import SizeBucketSampler
from graphbench.data.store import Store
from graphbench.data.tables import read_table, write_table
from graphbench.errors import BadInput


@pytest.fixture
def table(make_table):
    return make_table(50)


def loader_of(table, num_workers=0, shuffle=True, seed=0, **options):
    sampler = SizeBucketSampler(table.num_nodes, 8, shuffle=shuffle, seed=seed, pool=2)
    return GraphLoader(table, sampler, num_workers, **options)


def contents(batches):
    return [batch.to_dict() for batch in batches]


def assert_same(first, second):
    assert len(first) == len(second)
    for left, right in zip(contents(first), contents(second), strict=True):
        assert left.keys() == right.keys()
        for key, value in left.items():
            equal = torch.equal(value, right[key]) if isinstance(value, torch.Tensor) else value == right[key]
            assert equal, key


def test_batches_hold_the_graphs_of_the_sampler(table):
    loader = loader_of(table)
    rows = list(loader.batch_sampler)
    for expected, batch in zip(rows, loader, strict=True):
        assert batch.graph_id.tolist() == expected
        assert batch.y[:, 0].tolist() == [float(graph) for graph in expected]


def test_two_workers_equal_none(table):
    here, there = loader_of(table), loader_of(table, num_workers=2)
    for epoch in (0, 1):
        here.set_epoch(epoch)
        there.set_epoch(epoch)
        assert_same(list(here), list(there))
    there.close()


def test_a_worker_without_room_in_shared_memory_ends_the_epoch_in_words(table):
    """Shared memory obeys the limit on file size. PyTorch only prints the error in a worker thread, and waits."""
    resource = pytest.importorskip("resource")

    def cut(rows):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # in the worker
        return table.batch(rows)

    with pytest.raises(RuntimeError, match="in DataLoader worker") as raised:
        list(loader_of(table, num_workers=1, cut=cut))
    assert "--shm-size" in explain_memory(raised.value)


def drawn(batch, generator):
    """Add a random number for each graph to the batch if there is a generator."""
    if generator is not None:
        batch.drawn = torch.rand(batch.num_graphs, generator=generator)
    return batch


@pytest.mark.parametrize("num_workers", [0, 2])
def test_random_choices_follow_seed_and_epoch_and_survive_resuming(table, num_workers):
    loader = loader_of(table, num_workers, precompute=drawn, draws=True)
    epochs = []
    for epoch in (0, 1):
        loader.set_epoch(epoch)
        epochs.append(list(loader))
    loader.close()
    torch.rand(3)  # the global generator is not used
    repeated = loader_of(table, precompute=drawn, draws=True)
    repeated.set_epoch(1)
    ahead = iter(repeated)
    assert_same([next(ahead) for _ in range(3)], epochs[1][:3])
    resumed = loader_of(table, precompute=drawn, draws=True)
    resumed.load_state_dict(repeated.state_dict())
    assert_same(list(resumed), epochs[1][3:])
    other = loader_of(table, seed=1, precompute=drawn, draws=True)
    numbers = torch.cat([batch.drawn for batches in (*epochs, list(other)) for batch in batches])
    assert len(numbers) == 150
    assert len(numbers.unique()) == 150, "different numbers in each batch, epoch and seed"


def test_evaluation_draws_nothing(table):
    assert all("drawn" not in batch for batch in loader_of(table, shuffle=False, precompute=drawn))


@pytest.mark.parametrize("scatter_above", [0, 1 << 30])
def test_memory_mapped_equals_in_memory(table, tmp_path, monkeypatch, scatter_above):
    monkeypatch.setattr("graphbench.data.mapped.SCATTER_ABOVE", scatter_above)
    monkeypatch.setattr("graphbench.data.mapped.RESIDENT_LIMIT", 0)
    store = Store(tmp_path, map_above=0)
    entry = store.open_or_build({"kind": "table"}, lambda writer: write_table(writer, "train", table), "table")
    mapped = read_table(entry, "train")
    assert_same(list(loader_of(table)), list(loader_of(mapped)))
    workers = loader_of(mapped, num_workers=2)
    assert_same(list(loader_of(table)), list(workers))
    workers.close()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_global_generator_stays_untouched(table, num_workers):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    loader = loader_of(table, num_workers)
    list(loader)
    list(loader)
    loader.close()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("done", [1, 4])
def test_state_counts_batches_handed_out_and_resumes_after_them(table, num_workers, done):
    loader = loader_of(table, num_workers)
    loader.set_epoch(3)
    expected = list(loader)
    loader.set_epoch(3)
    iterator = iter(loader)
    for _ in range(done):
        next(iterator)
    state = loader.state_dict()
    assert state["batches_done"] == done
    resumed = loader_of(table, num_workers)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    resumed.set_epoch(3)
    assert_same(list(resumed), expected[done:])
    for each in (loader, resumed):
        each.close()


def test_state_after_an_epoch_starts_the_next_from_its_beginning(table):
    loader = loader_of(table)
    list(loader)
    state = loader.state_dict()
    assert state["batches_done"] == len(loader)
    loader.set_epoch(1)
    assert loader.state_dict()["batches_done"] == 0
    resumed = loader_of(table)
    resumed.load_state_dict(state)
    resumed.set_epoch(1)
    assert_same(list(resumed), list(loader))


def test_iterations_of_a_loop_of_ones_own_are_the_epochs(table):
    told, alone = loader_of(table), loader_of(table)
    for epoch in (0, 1, 2):
        told.set_epoch(epoch)
        assert_same(list(alone), list(told))
    assert next(iter(alone)).graph_id.tolist() != next(iter(alone)).graph_id.tolist(), "also if one stops early"


def test_an_iterator_follows_the_epoch_set_before_its_first_batch(table):
    early, late = loader_of(table), loader_of(table)
    iterator = iter(early)
    early.set_epoch(2)
    late.set_epoch(2)
    assert_same(list(iterator), list(late))


def test_lightning_combines_loaders_and_their_states(table):
    combined = CombinedLoader(loader_of(table), "max_size_cycle")
    iter(combined)
    next(combined)
    next(combined)
    (state,) = combined._state_dicts()
    assert state["batches_done"] == 2


def test_workers_must_not_be_negative(table):
    with pytest.raises(BadInput, match="num_workers"):
        loader_of(table, num_workers=-1)


def test_batches_fit_a_module(table):
    layer = nn.Embedding(5, 4)
    rows = layer(table.columns["x"][:, 0].long()).split(table.num_nodes.tolist())
    for batch in loader_of(table):
        assert torch.equal(layer(batch.x[:, 0]), torch.cat([rows[graph] for graph in batch.graph_id]))


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
@pytest.mark.parametrize("beside", [False, True])
def test_a_batch_moves_to_a_gpu_at_once(batch, beside):
    packed = PackedBatch.pack(batch, pin_memory=True)
    assert packed.buffer.is_pinned()
    found = packed.to(torch.device("cuda", 0), torch.cuda.Stream() if beside else None).unpack()
    for name, expected in EVERY_KIND.items():
        assert found[name].is_cuda
        assert torch.equal(found[name].cpu(), expected), name


def test_every_tensor_starts_where_fused_kernels_read(batch):
    for start, dtype, _ in PackedBatch.pack(batch).parts.values():
        assert start % 64 == 0
        assert start % dtype.itemsize == 0


def test_a_copy_beside_the_step_is_waited_for_and_its_memory_kept(batch, monkeypatch):
    """With mocked streams: the copy runs on its stream, the current stream waits, and the memory is recorded for it."""
    events, current = [], mock.Mock()
    current.wait_stream = lambda stream: events.append(("wait", stream))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: events.append(("keep", stream)))

    @contextlib.contextmanager
    def on(stream):
        events.append(("on", stream))
        yield
        events.append(("off", stream))

    monkeypatch.setattr(torch.cuda, "stream", on)
    found = PackedBatch.pack(batch).to(torch.device("meta"), "own").unpack()
    assert found.half.device.type == "meta"
    assert events == [("on", "own"), ("off", "own"), ("wait", "own"), ("keep", current)]
