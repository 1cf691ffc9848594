"""Tables as one frame: one type for a column, whatever its length."""

from __future__ import annotations

import contextlib
import gzip
import io

import numpy as np
import pandas as pd
import pytest

from graphbench.benchmarks.graphs.readers.networkx_files import frame_column
from graphbench.errors import GraphbenchError
from graphbench.tables.frame_chunks import ReadWhole, in_chunks, read_head
from graphbench.tables.frames import read_frame


def test_a_long_column_is_not_numbers_above_and_text_below(tmp_path):
    (tmp_path / "nodes.csv").write_text("graph,x\n" + "001,1.50\n" * 60_000 + "a,b\n")
    frame = read_frame(tmp_path / "nodes.csv")
    assert frame["graph"].unique().tolist() == ["001", "a"]
    assert frame["x"].unique().tolist() == ["1.50", "b"]


def test_nullable_columns_of_parquet_are_read_as_those_of_text(tmp_path):
    """What `DataFrame.convert_dtypes` leaves: pandas' own integers, floats and texts, with `NA` for what is missing."""
    plain = pd.DataFrame({"whole": [1, 2], "gaps": [1.0, None], "real": [0.5, None], "text": ["C", None]})
    plain.to_csv(tmp_path / "a.csv", index=False)
    plain.convert_dtypes().to_parquet(tmp_path / "b.parquet")
    text, table = read_frame(tmp_path / "a.csv"), read_frame(tmp_path / "b.parquet")
    for name in plain:
        assert table[name].dtype.kind == text[name].dtype.kind
        np.testing.assert_array_equal(*(frame_column(frame[name].to_numpy()) for frame in (text, table)))


PLAIN = "graph,x,name\n7,1.5,a\n7,-2,\n8,0.25,NA\n9,4,d\n"
FRAME = pd.read_csv(io.StringIO(PLAIN))
#: The same table in every way in which it is written.
WAYS = {
    "nodes.csv": PLAIN,
    "nodes.tsv": PLAIN.replace(",", "\t"),
    "nodes.tab": PLAIN.replace(",", "\t").encode("utf-16"),
    "utf16.csv": PLAIN.encode("utf-16-le"),
    "mark.csv": "\ufeff" + PLAIN,
    "semicolons.csv": PLAIN.replace(",", ";").replace("1.5", "1,5").replace("0.25", "0,25"),
    "packed.csv.gz": gzip.compress(PLAIN.encode()),
    "packed.tab.gz": gzip.compress(PLAIN.replace(",", "\t").encode("utf-16")),
    "trailing.csv": PLAIN.replace("\n", ",\n").replace("name,", "name"),
    "blank_columns.csv": PLAIN.replace("\n", ",,\n"),
    "repeated.csv": PLAIN.replace("\n", ",a,b\n").replace("name,a,b", "name,note,note"),
    "case.csv": PLAIN.replace("graph", "Graph"),
    "plain.parquet": lambda path: FRAME.to_parquet(path),
    "index.parquet": lambda path: FRAME.set_index("graph").to_parquet(path),
    "unnamed_index.parquet": lambda path: FRAME.set_index(pd.Index([4, 3, 2, 9])).to_parquet(path),
    "book.xlsx": lambda path: FRAME.to_excel(path, index=False),
}


@pytest.mark.parametrize("name", WAYS)
def test_one_table_in_every_way_it_is_written(tmp_path, name):
    if name.endswith(".xlsx"):
        pytest.importorskip("openpyxl")
    path, content = tmp_path / name, WAYS[name]
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    frame = read_frame(path, ("graph",)).reset_index(drop=True)
    frames = [frame]
    with contextlib.suppress(ReadWhole):
        frames.append(pd.concat(in_chunks(read_head(path, ("graph",)), 2).frames()))
    for found in frames:
        assert found["graph"].tolist() == [7, 7, 8, 9]
        assert not [column for column in found if column.startswith("Unnamed")]
        assert found["x"].tolist() == [1.5, -2, 0.25, 4]
        assert [None if pd.isna(cell) else cell for cell in found["name"]] == ["a", None, None, "d"]


def test_text_that_nobody_can_read_is_refused_in_one_line(tmp_path):
    for name, content, said in (
        ("latin.csv", "graph,n\u00e4me\n1,2\n".encode("latin-1"), "not UTF-8 text .*iconv"),
        ("late.csv", ("graph,x\n" + "1,2\n" * 9_999).encode() + b"1,\xe4\n", "not UTF-8 text .*iconv"),
        ("cut.csv.gz", gzip.compress(PLAIN.encode())[:-9], "not a whole .gz file"),
        ("bomb.csv.gz", gzip.compress(bytes(100 << 20), 9), "makes 1.. MB out of 0 MB|makes 64"),
        ("twice.csv", b"graph,x,graph\n1,2,3\n", "duplicate columns: 'graph'"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(GraphbenchError, match=said) as whole:
            read_frame(tmp_path / name, ("graph",))
        with pytest.raises(GraphbenchError) as parts:
            in_chunks(read_head(tmp_path / name, ("graph",)), 2)
        assert str(parts.value) == str(whole.value)


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_words_for_missing_numbers(tmp_path, rows):
    """Columns that name things keep them, and so do those of text."""
    (tmp_path / "nodes.csv").write_text("graph;x;y;z\n-;1;1,5;ND\n1;-;ND;dry\n2;ND;?;-\n3;7;2;wet\n")
    whole = read_frame(tmp_path / "nodes.csv", ("graph",))
    chunks = pd.concat(in_chunks(read_head(tmp_path / "nodes.csv", ("graph",)), rows).frames())
    for frame in (whole, chunks):
        assert frame["graph"].tolist() == ["-", "1", "2", "3"]
        np.testing.assert_array_equal(frame["x"], [1, np.nan, np.nan, 7])
        np.testing.assert_array_equal(frame["y"], [1.5, np.nan, np.nan, 2])
        assert frame["z"].tolist() == ["ND", "dry", "-", "wet"]
