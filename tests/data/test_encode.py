from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from waits import wait_until

from graphbench.contracts import Encoded
from graphbench.data import encode as module
from graphbench.data import progress
from graphbench.data.encode import chunk_spans, compute_chunks, encode, encode_share, encoded_here, with_encoding
from graphbench.data.parts.shares import Share
from graphbench.data.store import Store
from graphbench.errors import BadInput, GraphbenchError


def columns_of(chunks):
    chunks = list(chunks)
    return {name: torch.cat([chunk.columns[name] for chunk in chunks]) for name in chunks[0].columns}


def stored(store, table, encoding):
    """Encode and return the bytes of every array, by name."""
    encode(table, encoding, store, "content", workers=1)
    (folder,) = store.root.glob("encoding-*")
    return {path.name: path.read_bytes() for path in folder.glob("*.npy")}


@pytest.fixture
def small_chunks(monkeypatch):
    """Make several chunks for few graphs, and use processes on any machine."""
    monkeypatch.setattr(module, "CHUNK_GRAPHS", 6)
    monkeypatch.setattr(module, "POOL_FROM", -1.0)


def test_encoding_equals_one_call_on_the_whole_table(store, make_table, self_sums, small_chunks):
    table, encoding = make_table(), self_sums(3)
    expected = encoding.compute(table)
    encoded = encode(table, encoding, store, "content", workers=1)
    assert encoded.columns.keys() == expected.columns.keys()
    for name, values in expected.columns.items():
        assert torch.equal(encoded.columns[name], values)
    assert torch.equal(encoded.ptr["half"], expected.ptr["half"])


def test_shares_give_the_bits_of_one_process(store, tmp_path, make_table, self_sums, small_chunks, monkeypatch):
    monkeypatch.setattr(module, "PART_ROWS", 12)
    table, encoding, elsewhere = make_table(), self_sums(), Store(tmp_path / "whole")
    spans, computed, compute = module.part_spans(table), [], type(encoding).compute
    assert len(spans) > 2
    monkeypatch.setattr(type(encoding), "compute", lambda self, part: computed.append(len(part)) or compute(self, part))
    assert encode_share(table, encoding, store, "content", Share(2, 2), workers=1) == len(spans[::2])
    assert encode_share(table, encoding, store, "content", Share(1, 2), workers=1) == 0
    assert sum(computed) == len(table)
    joined = stored(store, table, encoding)
    assert sum(computed) == len(table), "joined, not computed again"
    assert joined == stored(elsewhere, table, encoding)
    assert encode_share(table, encoding, store, "content", Share(1, 3), workers=1) == 0
    assert sum(computed) == 2 * len(table), "computed only by the other store"


def test_missing_parts_are_computed_in_place(store, tmp_path, make_table, self_sums, small_chunks, monkeypatch):
    monkeypatch.setattr(module, "PART_ROWS", 12)
    table, encoding = make_table(), self_sums()
    assert encode_share(table, encoding, store, "content", Share(1, 2), workers=1)
    assert stored(store, table, encoding) == stored(Store(tmp_path / "whole"), table, encoding)
    assert not list((store.root / "parts").iterdir())


def test_processes_give_what_one_process_gives(make_table, self_sums, small_chunks):
    table, encoding = make_table(), self_sums()
    alone = columns_of(compute_chunks(table, encoding, workers=1))
    shared = columns_of(compute_chunks(table, encoding, workers=3))
    assert all(torch.equal(alone[name], shared[name]) for name in alone)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="its options are set in this process")
def test_a_process_without_children_encodes_by_itself(make_table, self_sums, small_chunks):
    """Such as a worker of `multiprocessing.Pool`, which is a daemon."""
    context, table, encoding = multiprocessing.get_context("fork"), make_table(), self_sums()
    results = context.SimpleQueue()

    def work():
        results.put(columns_of(compute_chunks(table, encoding, workers=3))["total"].tolist())

    process = context.Process(target=work, daemon=True)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert results.get() == encoding.compute(table).columns["total"].tolist()


@pytest.mark.parametrize("workers", [1, 3])
def test_progress_counts_every_graph(make_table, self_sums, small_chunks, monkeypatch, caplog, workers):
    monkeypatch.setattr(progress, "DELAY", -1.0)
    table = make_table()
    with caplog.at_level(logging.INFO):
        list(compute_chunks(table, self_sums(), "PATTERN train", workers=workers))
    begin, end = caplog.messages
    assert len(chunk_spans(table)) > 2
    assert begin.endswith(f" of PATTERN train: {chunk_spans(table)[1][1]} of {len(table)} graphs so far")
    assert f" of PATTERN train: {len(table)} graphs in " in end


def test_batches_carry_the_encoding(store, make_table, self_sums):
    table, encoding = make_table(), self_sums(2)
    joined = with_encoding(table, encoding, encode(table, encoding, store, "content"))
    batch = joined.batch([5, 2])
    assert torch.equal(batch.scaled, 2 * batch.x[:, 0])
    first = table.num_nodes[5]
    assert torch.equal(batch.outer[: first**2], batch.scaled[:first].outer(batch.scaled[:first]).flatten())
    assert batch.member[batch.half_batch == 1].min() == first


def test_two_encodings_must_not_share_a_field(make_table, self_sums):
    table, encoding = make_table(), self_sums()
    joined = with_encoding(table, encoding, encoding.compute(table))
    with pytest.raises(BadInput, match="member, outer, scaled, total"):
        with_encoding(joined, encoding, encoding.compute(table))


def test_second_call_opens_and_other_parameters_compute(store, make_table, self_sums, monkeypatch):
    table = make_table()
    encode(table, self_sums(), store, "content")
    calls = []
    original = self_sums.compute
    monkeypatch.setattr(self_sums, "compute", lambda self, graphs: calls.append(self.factor) or original(self, graphs))
    encode(table, self_sums(), store, "content")
    assert calls == []
    encode(table, self_sums(2), store, "content")
    encode(table, self_sums(), store, "other content")
    monkeypatch.setattr(self_sums, "version", 2)
    encode(table, self_sums(), store, "content")
    assert calls == [2, 1, 1]


def test_chunks_cover_all_graphs_and_are_of_even_work(make_table, monkeypatch):
    table = make_table(100)
    monkeypatch.setattr(module, "CHUNK_WORK", 2000)
    spans = chunk_spans(table)
    assert [start for start, _ in spans[1:]] == [stop for _, stop in spans[:-1]]
    assert (spans[0][0], spans[-1][1]) == (0, 100)
    work = table.num_nodes**2 + table.num_edges
    assert max(int(work[a:b].sum()) for a, b in spans) <= 2000
    monkeypatch.setattr(module, "CHUNK_WORK", 1)
    assert chunk_spans(table) == [(graph, graph + 1) for graph in range(100)]


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_name_encoding_and_graph(store, make_table, self_sums, small_chunks, monkeypatch, workers):
    original = self_sums.compute

    def compute(self, graphs):
        if (graphs.columns["y"] == 23).any():
            raise ZeroDivisionError("no such root")
        return original(self, graphs)

    monkeypatch.setattr(self_sums, "compute", compute)
    with pytest.raises(GraphbenchError, match=r"SelfSums\(factor=1\).*graph 23 .*of toy train.*no such root"):
        encode(make_table(), self_sums(), store, "content", "toy train", workers)
    assert not list(store.root.glob("encoding-*"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, p: c.pop("total"), "its layout has"),
        (lambda c, p: c.update(scaled=c["scaled"][1:]), "'scaled' has .* rows"),
        (lambda c, p: p.update(half=p["half"][1:]), "pointers of axis 'half'"),
    ],
)
def test_results_that_do_not_fit_are_refused(make_table, self_sums, monkeypatch, change, message):
    original = self_sums.compute

    def compute(self, graphs):
        encoded = original(self, graphs)
        change(encoded.columns, encoded.ptr)
        return Encoded(encoded.columns, encoded.ptr)

    monkeypatch.setattr(self_sums, "compute", compute)
    with pytest.raises(GraphbenchError, match=message):
        list(compute_chunks(make_table(), self_sums()))


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_a_worker_that_dies_is_reported(make_table, self_sums, small_chunks, monkeypatch):
    original, parent = self_sums.compute, os.getpid()

    def compute(self, graphs):
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, graphs)

    monkeypatch.setattr(self_sums, "compute", compute)
    with pytest.raises(GraphbenchError, match="ended from outside"):
        list(compute_chunks(make_table(), self_sums(), workers=2))


def test_threads_are_given_back(make_table, self_sums):
    before = torch.get_num_threads()
    list(compute_chunks(make_table(), self_sums()))
    assert torch.get_num_threads() == before


ORPHANS = r"""
import os, sys, time, importlib.util
from graphbench.data import encode
from graphbench.data.store import Store
spec = importlib.util.spec_from_file_location("helpers", sys.argv[1])
helpers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(helpers)
encode.CHUNK_GRAPHS, encode.POOL_FROM = 4, -1.0
class SelfSums(helpers.SelfSums):
    def compute(self, graphs):
        if graphs.columns["y"][0] > 0:
            os.write(1, b"%d\n" % os.getpid())  # one write, so that two workers' lines cannot mix
            time.sleep(600)
        return super().compute(graphs)
encode.encode(helpers.random_table(), SelfSums(), Store(sys.argv[2]), "content", workers=2)
"""


def runs(process):
    """Return whether a process, given as its folder in /proc, exists and is not a zombie."""
    try:
        return process.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_a_killed_encode_leaves_no_worker_and_no_lock(store, make_table, self_sums):
    arguments = [sys.executable, "-c", ORPHANS, str(Path(__file__).with_name("conftest.py")), str(store.root)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        workers = [Path("/proc", process.stdout.readline().strip()) for _ in range(2)]
        process.kill()
    wait_until(lambda: not any(map(runs, workers)))
    encoded = encode(make_table(), self_sums(), store, "content")
    assert len(encoded.columns["total"]) == 40


@pytest.mark.parametrize("workers", [1, 3])
def test_graphs_of_an_input_are_encoded_as_those_of_the_store(store, make_table, self_sums, small_chunks, workers):
    table, encoding = make_table(), self_sums(3)
    stored = encode(table, encoding, store, "content", workers=1)
    encoded, kept, problems = encoded_here(table, [encoding], workers=workers)
    assert (kept, problems) == (list(range(len(table))), {})
    for name, values in stored.columns.items():
        assert torch.equal(encoded.columns[name], values)
    assert torch.equal(encoded.ptr["half"], stored.ptr["half"])


def test_graphs_that_cannot_be_encoded_are_left_out(make_table, self_sums):
    table, encoding = make_table(), self_sums(3)
    compute, size = encoding.compute, int(table.num_nodes[2])

    def fails(graphs):
        if bool((graphs.num_nodes == size).any()):
            raise ValueError("not of this size")
        return compute(graphs)

    encoding.compute = fails
    encoded, kept, problems = encoded_here(table, [encoding], workers=1)
    bad = (table.num_nodes == size).nonzero()[:, 0].tolist()
    assert problems == dict.fromkeys(bad, "not of this size")
    assert kept == [graph for graph in range(len(table)) if graph not in bad]
    part = table.select(torch.tensor(kept))
    for name, values in compute(part).columns.items():
        assert torch.equal(encoded.columns[name], values)


def test_no_graphs_need_no_encoding(make_table, self_sums):
    empty = make_table().slice(0, 0)
    assert encoded_here(empty, [self_sums(3)])[1:] == ([], {})
