from __future__ import annotations

import pytest
import torch

from graphbench.contracts import Column, GraphTable
from graphbench.data.parts import kept
from graphbench.data.store import Store
from graphbench.data.tables import Selection, content_key, narrow, read_table, widen, write_table
from graphbench.errors import BadInput


def stored(store, chunks, key=None):
    return store.open_or_build({"kind": "table", "key": key}, lambda w: write_table(w, "train", chunks), "table")


def assert_equal(left, right):
    assert left.layout == right.layout
    for name in left.layout:
        assert torch.equal(left.columns[name].double(), right.columns[name].double()), name
    assert left.ptr.keys() == right.ptr.keys()
    for axis in left.ptr:
        assert torch.equal(left.ptr[axis], right.ptr[axis])


def test_table_comes_back_with_small_integers(store, make_table):
    table = make_table()
    back = read_table(stored(store, table), "train")
    assert_equal(table, back)
    assert {back.columns[name].dtype for name in ("edge_index", "x", "edge_attr")} == {torch.uint8}
    assert back.columns["x_dense"].dtype == torch.float32


def test_parts_give_the_same_table_as_the_whole(store, make_table):
    table = make_table()
    parts = (table.slice(start, start + 7) for start in range(0, 35, 7))
    joined = read_table(stored(store, [*parts, table.slice(35, 40)]), "train")
    assert_equal(table, joined)


@pytest.mark.parametrize("map_above", [0, 1 << 30])
def test_batches_of_a_stored_table_equal_those_of_the_original(tmp_path, make_table, map_above):
    table = make_table()
    back = read_table(stored(Store(tmp_path, map_above=map_above), table), "train")
    first, second = table.batch([3, 0, 17]).to_dict(), back.batch([3, 0, 17]).to_dict()
    for key, value in first.items():
        assert torch.equal(value, second[key]) if isinstance(value, torch.Tensor) else value == second[key]
        assert getattr(value, "dtype", None) == getattr(second[key], "dtype", None)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([0, 255], torch.uint8),
        ([-1, 255], torch.int16),
        ([0, 256], torch.int16),
        ([0, 40000], torch.int32),
        ([0, 1 << 40], torch.int64),
    ],
)
def test_narrow_takes_the_smallest_dtype_that_holds_all(values, dtype):
    result = narrow(torch.tensor(values))
    assert result.dtype == dtype
    assert result.tolist() == values


def test_narrow_leaves_floats_and_booleans_alone():
    assert narrow(torch.tensor([1.0])).dtype == torch.float32
    assert narrow(torch.tensor([True])).dtype == torch.bool


def test_widen_undoes_narrow(make_table):
    table = make_table()
    small = GraphTable({k: narrow(v) for k, v in table.columns.items()}, table.layout, table.ptr)
    small.columns["x_dense"] = small.columns["x_dense"].half()
    wide = widen(small)
    assert torch.equal(wide.columns["edge_index"], table.columns["edge_index"])
    assert wide.columns["x_dense"].dtype == torch.float32


def test_content_key_follows_content_and_nothing_else(store, make_table):
    table, other = make_table(), make_table(seed=1)
    keys = [content_key(stored(store, t, key), "train") for key, t in enumerate((table, table, other))]
    assert keys[0] == keys[1] != keys[2]


def test_parts_with_other_columns_are_refused(store, make_table):
    table = make_table()
    other = GraphTable(
        {"edge_index": table.columns["edge_index"]}, {"edge_index": table.layout["edge_index"]}, table.ptr
    )
    with pytest.raises(BadInput, match="differ in their columns"):
        stored(store, [table, other])


def test_a_split_without_graphs_is_refused(store):
    with pytest.raises(BadInput, match="holds no graph"):
        stored(store, [])


def test_a_selection_in_parts_has_the_numbers_and_types_of_the_whole(make_table, monkeypatch):
    """The parts have three, three and one graphs; only one of them contains a number that needs 16 bits."""
    monkeypatch.setattr(kept, "PART_ROWS", 3)
    table = make_table()
    large = torch.zeros(len(table), dtype=torch.int64)
    large[5] = 300
    table = table.with_columns({"large": large}, {"large": Column("graph")})
    rows = torch.tensor([4, 0, 2, 5, 1, 3, 6])
    whole = table.select(rows)
    parts = list(Selection(table, rows))
    assert [len(part) for part in parts] == [3, 3, 1]
    for name, values in whole.columns.items():
        joined = torch.cat([part.columns[name] for part in parts])
        assert torch.equal(joined, narrow(values))
        assert {part.columns[name].dtype for part in parts} == {narrow(values).dtype}
