"""Tables in chunks against the whole table that pandas reads: equal values, types, names and errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbench.errors import BadInput, CorruptData
from graphbench.tables import frame_chunks
from graphbench.tables.frame_chunks import SEES_TORN_ROWS, ReadWhole, in_chunks, read_head
from graphbench.tables.frames import read_frame

pytestmark = pytest.mark.skipif(not SEES_TORN_ROWS, reason="this release of pandas has tables read whole")
#: Columns whose type shows late: what stands in the first, the second and the third chunk of two rows.
LATE = {
    "int": ["1", "2", "3", "4", "5", "6"],
    "gaps": ["1", "2", "", "4", "", ""],
    "float": ["1", "2", "3.5", "4", "1e3", "6"],
    "text": ["01", "2.50", "", "nan", "x", "True"],
    "flags": ["True", "False", "true", "False", "True", "TRUE"],
    "flags with gaps": ["True", "False", "", "", "True", "FALSE"],
    "flags and numbers": ["True", "False", "1", "0", "2", ""],
    "nothing": [""] * 6,
    "late text": ["", "", "", "", "", "x"],
    "large": ["9007199254740993", "2", "3", "4", "", "6"],
    "too large": ["99999999999999999999999"] * 6,
    "unsigned": ["18446744073709551610"] * 6,
}
#: What a column is in the end: integers, floats, truth values, unsigned integers, or objects such as texts.
KINDS = {
    "int": "i", "gaps": "f", "float": "f", "text": "O", "flags": "b", "flags with gaps": "O", "flags and numbers": "O",
    "nothing": "f", "late text": "O", "large": "f", "unsigned": "u",
}  # fmt: skip


def written(path, columns, separator=","):
    rows = [separator.join(columns), *(separator.join(cells) for cells in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def same(path, rows, needed=("graph",)):
    """Chunks of so many rows, joined, are the whole; returns them."""
    whole = read_frame(path, needed)
    frames = list(in_chunks(read_head(path, needed), rows).frames())
    assert all(len(frame) <= rows for frame in frames)
    joined = pd.concat(frames)
    assert joined.index.tolist() == list(range(len(whole)))
    assert list(joined) == list(whole)
    for name in whole:
        for frame in frames:
            assert frame[name].dtype == whole[name].dtype, name
        pd.testing.assert_series_equal(joined[name], whole[name], check_index_type=False)
    return joined


@pytest.mark.parametrize("rows", [1, 2, 4, 6, 100])
def test_types_are_those_of_the_whole(tmp_path, rows):
    columns = {name: cells for name, cells in LATE.items() if name != "too large"}
    found = same(written(tmp_path / "nodes.csv", columns), rows)
    assert {name: found[name].dtype.kind for name in columns} == KINDS
    assert found["large"].isna().tolist() == [False] * 4 + [True, False]
    assert found["text"].tolist()[:2] == ["01", "2.50"]
    assert same(written(tmp_path / "nodes.tsv", columns, "\t"), rows).equals(found)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_decimal_commas_of_later_chunks(tmp_path, rows):
    columns = {
        "Graph": ["a", "a", "b", "b", "c"],
        "number": ["1", "2", "3", "4,5", ""],  # numbers alone at first
        "text": ["1,5", "2,5", "3", "4", "C,N"],  # text at last
        "version": ["1,5", "2,5", "3", "4", "1.5"],  # a point at last, so it is text
        "whole": ["1", "2", "3", "4", "5"],
    }
    found = same(written(tmp_path / "nodes.csv", columns, ";"), rows)
    assert found["number"].tolist()[:4] == [1.0, 2.0, 3.0, 4.5]
    assert found["text"].tolist()[0] == "1,5"
    points = columns | {"real": ["1", "2", "3", "4", "5.5"]}
    assert same(written(tmp_path / "nodes.csv", points, ";"), rows)["number"].tolist()[3] == "4,5"


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_parquet(tmp_path, rows):
    frame = pd.DataFrame(
        {
            "GRAPH": list("aabbc"),
            "int": [1, 2, 3, 4, 5],
            "gaps": pd.array([1, 2, None, 4, None], dtype="Int64").to_numpy(dtype=float, na_value=np.nan),
            "small": np.arange(5, dtype=np.int8),
            "text": ["x", None, None, "y", "z"],
            "flags": [True, False, None, None, True],
        }
    )
    frame.to_parquet(tmp_path / "nodes.parquet", row_group_size=3)
    found = same(tmp_path / "nodes.parquet", rows)
    assert found["graph"].tolist() == list("aabbc")
    assert found["flags"].tolist() == [True, False, None, None, True]
    table = pa.table({"graph": list("aabbc"), "gaps": pa.array([1, 2, None, 4, 5], pa.int32())})
    pq.write_table(table, tmp_path / "nodes.parquet")
    np.testing.assert_array_equal(same(tmp_path / "nodes.parquet", rows)["gaps"], [1.0, 2.0, np.nan, 4.0, 5.0])


def test_one_column_alone(tmp_path):
    path = written(tmp_path / "nodes.csv", {"x": ["1", "2", "3"], "GRAPH": ["7", "8", "x"]})
    frames = list(in_chunks(read_head(path, ("graph",)), 2).frames("graph"))
    assert [frame["graph"].tolist() for frame in frames] == [["7", "8"], ["x"]]


def test_a_table_without_rows(tmp_path):
    path = written(tmp_path / "nodes.csv", {"graph": [], "x": []})
    (frame,) = in_chunks(read_head(path, ("graph",)), 2).frames()
    assert (list(frame), len(frame)) == (["graph", "x"], 0)
    pd.DataFrame({"graph": ["a"], "x": [1.0]}).iloc[:0].to_parquet(tmp_path / "edges.parquet")
    (frame,) = in_chunks(read_head(tmp_path / "edges.parquet", ("graph",)), 2).frames()
    assert (list(frame), len(frame)) == (["graph", "x"], 0)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"a": ["1", "2", "-1"], "n": ["1", "2", "18446744073709551610"]}, "nodes.csv: n holds int and large int"),
        ({"n": LATE["too large"]}, r"nodes.csv: n holds integer"),
    ],
)
def test_what_only_the_whole_tells(tmp_path, columns, reason):
    with pytest.raises(ReadWhole, match=reason):
        in_chunks(read_head(written(tmp_path / "nodes.csv", columns), ()), 2)


def test_heads_that_only_the_whole_explains(tmp_path):
    (tmp_path / "nodes.csv").write_text("graph,x\na,1,2\n")
    with pytest.raises(ReadWhole, match=r"nodes\.csv: rows have more cells than its header"):
        read_head(tmp_path / "nodes.csv", ())
    with pytest.raises(ReadWhole, match=r"nodes\.xlsx is a workbook"):
        read_head(tmp_path / "nodes.xlsx", ())
    pd.DataFrame({"graph": ["a"], "when": [pd.Timestamp(2020, 1, 1)]}).to_parquet(tmp_path / "n.parquet")
    with pytest.raises(ReadWhole, match=r"n\.parquet: when holds datetime"):
        in_chunks(read_head(tmp_path / "n.parquet", ()))


def test_text_is_read_whole_where_pandas_overlooks_torn_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(frame_chunks, "SEES_TORN_ROWS", False)
    path = written(tmp_path / "nodes.csv", {"graph": ["a"], "x": ["1"]})
    with pytest.raises(ReadWhole, match=r"pandas .* overlooks torn rows of nodes\.csv"):
        read_head(path, ("graph",))
    pd.DataFrame({"graph": ["a"], "x": [1.0]}).to_parquet(tmp_path / "nodes.parquet")
    assert read_head(tmp_path / "nodes.parquet", ("graph",)).header == ("graph", "x")


@pytest.mark.parametrize("bad", range(1, 7))
def test_a_torn_row_is_told_as_by_the_whole(tmp_path, bad):
    rows = ["1,2"] * 7
    rows[bad] = "1,2,3"  # at any place in a chunk
    (tmp_path / "nodes.csv").write_text("graph,x\n" + "\n".join(rows))
    with pytest.raises(CorruptData) as whole:
        read_frame(tmp_path / "nodes.csv")
    with pytest.raises(CorruptData) as chunks:
        in_chunks(read_head(tmp_path / "nodes.csv", ()), 3)
    assert str(chunks.value) == str(whole.value)


def test_what_is_no_table(tmp_path):
    for name, content in (("a.csv", b""), ("b.csv", b'"\n'), ("c.parquet", b"none")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CorruptData, match=rf"{name} cannot be read as a table"):
            read_head(tmp_path / name, ())
    with pytest.raises(BadInput, match="may be 'Graph'"):
        read_head(written(tmp_path / "d.csv", {"Graph": ["1"], "GRAPH": ["1"]}), ("graph",))
