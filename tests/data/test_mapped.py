from __future__ import annotations

import mmap
import sys

import numpy as np
import pytest
import torch

from graphbench.data import mapped as module
from graphbench.data.mapped import Prefetcher, map_array, resident_file_bytes, trim_mapped
from graphbench.data.store import Store
from graphbench.data.tables import read_table, write_table


class Recorder:
    """A stand-in for a memory map that records the byte ranges given to `madvise`."""

    def __init__(self):
        self.ranges = []

    def madvise(self, advice, start, length):
        assert start % mmap.PAGESIZE == 0
        self.ranges.append((start, start + length))


@pytest.fixture
def entry(tmp_path, make_table):
    """Return a function that opens a stored table of 400 graphs, memory-mapped."""

    def open_entry():
        table, store = make_table(400), Store(tmp_path, map_above=0)
        return store.open_or_build({"kind": "table"}, lambda writer: write_table(writer, "train", table), "table")

    return open_entry


@pytest.mark.skipif(not hasattr(mmap, "MADV_RANDOM"), reason="this platform takes no such advice")
def test_rows_of_very_large_columns_are_asked_for(entry, monkeypatch):
    monkeypatch.setattr(module, "SCATTER_ABOVE", 0)
    table = read_table(entry(), "train")
    prefetcher = Prefetcher(table)
    assert len(prefetcher) == 4  # every column except `y`, which has one row per graph
    prefetcher([0, 399])
    recorder = Recorder()
    number = [name for name in table.layout if name != "y"].index("x_dense")
    prefetcher._columns[number] = (recorder, *prefetcher._columns[number][1:])
    prefetcher([3, 390])
    data = np.load(entry().folder / "train.column.x_dense.npy", mmap_mode="r")
    for (start, stop), graph in zip(recorder.ranges, [3, 390], strict=True):
        first, last = (data.offset + 12 * int(table.ptr["node"][graph + after]) for after in (0, 1))
        assert start <= first < start + mmap.PAGESIZE
        assert stop == last


def test_smaller_columns_are_left_to_the_kernel(entry):
    mapped_table = read_table(entry(), "train")
    assert len(Prefetcher(mapped_table)) == 0
    assert torch.equal(mapped_table.batch([7]).x, mapped_table.slice(7, 8).columns["x"].long())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells resident pages")
def test_pages_are_handed_back_and_read_again(tmp_path):
    path = tmp_path / "big.npy"
    np.save(path, np.arange(16 << 20, dtype=np.int32))  # 64 MiB
    array = map_array(path)
    before = resident_file_bytes()
    total = int(array.astype(np.int64).sum())
    read = resident_file_bytes()
    assert read - before > 48 << 20
    assert not trim_mapped(limit=read + (1 << 30))
    assert trim_mapped(limit=0)
    assert read - resident_file_bytes() > 48 << 20
    assert int(array.astype(np.int64).sum()) == total
