"""Table columns have the type that pandas infers from the whole file, whatever the chunk size."""

from __future__ import annotations

import gzip
import io
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbench.benchmarks.graphs.readers.networkx_files import frame_column
from graphbench.errors import BadInput, GraphbenchError
from graphbench.tables.frames import read_frame, typed_table

#: Columns whose type may show only in later rows: six cells each, or three chunks of two rows.
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
    "infinite": ["inf", "2", "-inf", "4", "5", "6"],
}
#: NumPy kind of each column: integers, floats, booleans, or objects such as texts.
KINDS = {
    "int": "i", "gaps": "f", "float": "f", "text": "O", "flags": "b", "flags with gaps": "O", "flags and numbers": "O",
    "nothing": "f", "late text": "O", "large": "f", "infinite": "f",
}  # fmt: skip


def written(path, columns, separator=","):
    rows = [separator.join(columns), *(separator.join(cells) for cells in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def in_chunks(path, rows, needed=("graph",)):
    """Return the joined chunks of a table; they have the types and values of the whole table."""
    frames, whole = list(typed_table(path, needed, rows, needed).frames()), read_frame(path, needed, needed)
    assert all(len(frame) <= rows for frame in frames)
    for frame in frames:
        assert frame.dtypes.equals(whole.dtypes)
    joined = pd.concat(frames)
    pd.testing.assert_frame_equal(joined, whole)
    return joined


@pytest.mark.parametrize("rows", [1, 2, 4, 6, 100])
def test_types_are_those_that_pandas_finds(tmp_path, rows):
    path = written(tmp_path / "nodes.csv", LATE)
    found, pandas = in_chunks(path, rows), pd.read_csv(path)
    assert {name: found[name].dtype.kind for name in LATE} == KINDS
    assert found.index.tolist() == [2, 3, 4, 5, 6, 7], "the index is the line in the file"
    for name in LATE:
        assert pandas[name].dtype.kind == found[name].dtype.kind, name
        assert found[name].tolist() == pandas[name].tolist() or found[name].equals(pandas[name].set_axis(found.index))
    assert in_chunks(written(tmp_path / "nodes.tsv", LATE, "\t"), rows).equals(found)


def test_integers_that_no_float_holds_are_text(tmp_path):
    numbers = {"a": ["18446744073709551610", "2"], "b": ["99999999999999999999999", "-1"], "c": ["9" * 23, "0.5"]}
    found = in_chunks(written(tmp_path / "nodes.csv", numbers), 1)
    assert found["a"].tolist() == numbers["a"]
    assert found["b"].tolist() == numbers["b"]
    assert found["c"].tolist() == [1e23, 0.5]


def test_a_long_column_is_not_numbers_above_and_text_below(tmp_path):
    (tmp_path / "nodes.csv").write_text("graph,x\n" + "001,1.50\n" * 30_000 + "a,b\n")
    frame = read_frame(tmp_path / "nodes.csv")
    assert frame["graph"].unique().tolist() == ["001", "a"]
    assert frame["x"].unique().tolist() == ["1.50", "b"]


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_decimal_commas_of_later_chunks(tmp_path, rows):
    columns = {
        "Graph": ["a", "a", "b", "b", "c"],
        "number": ["1", "2", "3", "4,5", ""],  # only integers at first
        "text": ["1,5", "2,5", "3", "4", "C,N"],  # text in the last row
        "version": ["1,5", "2,5", "3", "4", "1.5"],  # a decimal point in the last row, so it is text
        "whole": ["1", "2", "3", "4", "5"],
    }
    found = in_chunks(written(tmp_path / "nodes.csv", columns, ";"), rows)
    assert found["number"].tolist()[:4] == [1.0, 2.0, 3.0, 4.5]
    assert found["text"].tolist() == columns["text"]
    assert found["version"].tolist() == columns["version"]
    assert found["whole"].dtype.kind == "i"
    points = columns | {"real": ["1", "2", "3", "4", "5.5"]}
    assert in_chunks(written(tmp_path / "nodes.csv", points, ";"), rows)["number"].tolist()[3] == "4,5"


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_words_for_missing_numbers(tmp_path, rows):
    """They become NaN in numeric columns; identifiers and text keep them."""
    (tmp_path / "nodes.csv").write_text("graph;x;y;z\n-;1;1,5;ND\n1;-;ND;dry\n2;ND;?;-\n3;7;2;wet\n")
    frame = in_chunks(tmp_path / "nodes.csv", rows)
    assert frame["graph"].tolist() == ["-", "1", "2", "3"]
    np.testing.assert_array_equal(frame["x"], [1, np.nan, np.nan, 7])
    np.testing.assert_array_equal(frame["y"], [1.5, np.nan, np.nan, 2])
    assert frame["z"].tolist() == ["ND", "dry", "-", "wet"]


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_parquet_keeps_its_types(tmp_path, rows):
    frame = pd.DataFrame(
        {
            "GRAPH": list("aabbc"),
            "int": [1, 2, 3, 4, 5],
            "gaps": [1.0, 2.0, None, 4.0, None],
            "small": np.arange(5, dtype=np.int8),
            "text": ["1", None, None, "2", "3"],
            "words": ["1", "ND", None, "2", "3"],
            "flags": [True, False, None, None, True],
            "when": pd.to_datetime(["2020-01-01", None, None, "2021-01-01", None]),
        }
    )
    frame.to_parquet(tmp_path / "nodes.parquet", row_group_size=3)
    found = in_chunks(tmp_path / "nodes.parquet", rows)
    assert found["graph"].tolist() == list("aabbc")
    assert found["small"].dtype == np.int8
    assert frame_column(found["text"].to_numpy()).tolist() == ["1", None, None, "2", "3"]
    np.testing.assert_array_equal(found["words"], [1, np.nan, np.nan, 2, 3])
    assert found["flags"].tolist() == [True, False, None, None, True]
    assert found["when"].equals(frame["when"].set_axis(found.index).astype(found["when"].dtype))
    table = pa.table({"graph": list("aabbc"), "gaps": pa.array([1, 2, None, 4, 5], pa.int32())})
    pq.write_table(table, tmp_path / "nodes.parquet")
    np.testing.assert_array_equal(in_chunks(tmp_path / "nodes.parquet", rows)["gaps"], [1.0, 2.0, np.nan, 4.0, 5.0])


def test_nullable_columns_of_parquet_are_read_as_those_of_text(tmp_path):
    """`DataFrame.convert_dtypes` gives pandas' nullable integers, floats and texts, with `NA` for missing values."""
    plain = pd.DataFrame({"whole": [1, 2], "gaps": [1.0, None], "real": [0.5, None], "text": ["C", None]})
    plain.to_csv(tmp_path / "a.csv", index=False)
    plain.convert_dtypes().to_parquet(tmp_path / "b.parquet")
    text, table = read_frame(tmp_path / "a.csv"), read_frame(tmp_path / "b.parquet")
    for name in plain:
        assert table[name].dtype.kind == text[name].dtype.kind
        np.testing.assert_array_equal(*(frame_column(frame[name].to_numpy()) for frame in (text, table)))


def test_one_column_alone(tmp_path):
    path = written(tmp_path / "nodes.csv", {"x": ["1", "2", "3"], "GRAPH": ["7", "8", "x"]})
    frames = list(typed_table(path, ("graph",), 2).frames("graph"))
    assert [frame["graph"].tolist() for frame in frames] == [["7", "8"], ["x"]]


def test_a_table_without_rows(tmp_path):
    path = written(tmp_path / "nodes.csv", {"graph": [], "x": []})
    (frame,) = typed_table(path, ("graph",)).frames()
    assert (list(frame), len(frame)) == (["graph", "x"], 0)
    pd.DataFrame({"graph": ["a"], "x": [1.0]}).iloc[:0].to_parquet(tmp_path / "edges.parquet")
    (frame,) = typed_table(tmp_path / "edges.parquet", ("graph",)).frames()
    assert (list(frame), len(frame)) == (["graph", "x"], 0)


PLAIN = "graph,x,name\n7,1.5,a\n7,-2,\n8,0.25,NA\n9,4,d\n"
FRAME = pd.read_csv(io.StringIO(PLAIN))


def write_book(path):
    """Write a workbook like programs without integers: 7, which is only in the first chunk, is stored as 7.0."""
    FRAME.to_excel(path, index=False)
    with zipfile.ZipFile(path) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    with zipfile.ZipFile(path, "w") as book:
        for name, content in parts.items():
            book.writestr(name, content.replace(b"<v>7</v>", b"<v>7.0</v>"))


#: One table written in several ways; the hostile tables of graphs cover every format.
WAYS = {
    "semicolons.csv": PLAIN.replace(",", ";").replace("1.5", "1,5").replace("0.25", "0,25"),
    "blank_columns.csv": PLAIN.replace("\n", ",,\n"),
    "case.csv": PLAIN.replace("graph", "Graph"),
    "book.xlsx": write_book,
}


@pytest.mark.parametrize("name", WAYS)
def test_columns_of_one_table_in_every_way(tmp_path, name):
    if name.endswith(".xlsx"):
        pytest.importorskip("openpyxl")
    path, content = tmp_path / name, WAYS[name]
    if callable(content):
        content(path)
    else:
        path.write_text(content)
    found = in_chunks(path, 2)
    assert list(found) == ["graph", "x", "name"]
    assert found["graph"].dtype.kind == "i"
    assert found["graph"].tolist() == [7, 7, 8, 9]
    assert found["x"].tolist() == [1.5, -2, 0.25, 4]
    assert [None if pd.isna(cell) else cell for cell in found["name"]] == ["a", None, None, "d"]


def test_leading_zeros_of_a_workbook_are_kept(tmp_path):
    """A workbook keeps 007 only if it was typed as text; in a CSV file, where every cell is text, it is a number."""
    pytest.importorskip("openpyxl")
    frame = pd.DataFrame({"code": ["007", "010", "12"], "size": [7, 10, 12]})
    frame.to_excel(tmp_path / "nodes.xlsx", index=False)
    frame.to_csv(tmp_path / "nodes.csv", index=False)
    book, text = in_chunks(tmp_path / "nodes.xlsx", 2), in_chunks(tmp_path / "nodes.csv", 2)
    assert book["code"].tolist() == ["007", "010", "12"]
    assert text["code"].tolist() == [7, 10, 12] == pd.read_csv(tmp_path / "nodes.csv")["code"].tolist()
    assert book["size"].tolist() == text["size"].tolist() == [7, 10, 12]


@pytest.mark.parametrize("bad", range(1, 7))
def test_a_torn_row_is_named(tmp_path, bad):
    rows = ["1,2"] * 7
    rows[bad] = "1,2,3"  # at any position in a chunk
    (tmp_path / "nodes.csv").write_text("graph,x\n" + "\n".join(rows))
    for size in (3, 100):
        with pytest.raises(BadInput, match=rf"nodes\.csv, line {bad + 2}: .*3 instead of 2"):
            typed_table(tmp_path / "nodes.csv", (), size)


def test_what_is_no_table(tmp_path):
    for name, content in (("a.csv", b""), ("b.csv", b'"\n'), ("c.parquet", b"none"), ("d.csv.gz", gzip.compress(b""))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(GraphbenchError, match=name):
            read_frame(tmp_path / name)
    with pytest.raises(BadInput, match="may be 'Graph'"):
        read_frame(written(tmp_path / "d.csv", {"Graph": ["1"], "GRAPH": ["1"]}), ("graph",))
