"""Which tables can be read side by side, told from their columns `graph` alone."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest

from graphbench.benchmarks.graphs import table_order
from graphbench.benchmarks.graphs.table_order import check_order
from graphbench.errors import BadInput
from graphbench.tables.frame_chunks import SEES_TORN_ROWS, ReadWhole, in_chunks, read_head

pytestmark = pytest.mark.skipif(not SEES_TORN_ROWS, reason="this release of pandas has tables read whole")


def tables(folder, rows, form="csv", **graphs):
    found = {}
    for name, content in graphs.items():
        path, frame = folder / f"{name}.{form}", pd.DataFrame({"graph": list(content), "x": 0})
        frame.to_parquet(path) if form == "parquet" else frame.to_csv(path, index=False)
        found[name] = in_chunks(read_head(path, ("graph",)), rows)
    return found


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_grouped_tables(tmp_path, rows, form):
    check_order(tables(tmp_path, rows, form, graphs="abcd", nodes="aaabbcccccd", edges="aad", links="c"))
    check_order(tables(tmp_path, rows, form, nodes="aaabbcccccd", edges="cc"))
    check_order(tables(tmp_path, rows, nodes="11123", edges="13"))
    check_order(tables(tmp_path, rows, graphs="", nodes="", edges=""))


@pytest.mark.parametrize("rows", [1, 2, 100])
@pytest.mark.parametrize(
    ("graphs", "reason"),
    [
        ({"nodes": "aabba", "edges": "a"}, r"^nodes\.csv: rows of graph a stand apart \(lines 2 and 6\)$"),
        ({"nodes": "aabb", "edges": "aba"}, r"^edges\.csv: rows of graph a stand apart \(lines 2 and 4\)$"),
        ({"graphs": "abc", "nodes": "aabcb"}, r"^nodes\.csv: rows of graph b stand apart \(lines 4 and 6\)$"),
        (
            {"graphs": "abc", "nodes": "abc", "edges": "acb"},
            r"^edges\.csv: graph b \(line 4\) stands in another order than in graphs\.csv$",
        ),
        ({"nodes": "abc", "edges": "ba"}, r"^edges\.csv: graph a \(line 3\) stands in another order than in nodes"),
    ],
)
def test_others_are_read_whole(tmp_path, rows, graphs, reason):
    with pytest.raises(ReadWhole, match=reason):
        check_order(tables(tmp_path, rows, **graphs))


@pytest.mark.parametrize("rows", [1, 2, 100])
@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        ({"graphs": "abcb", "nodes": "abc"}, r"graphs\.csv, line 5: the graph b was listed before"),
        ({"graphs": "abb", "nodes": "ab"}, r"graphs\.csv, line 4: the graph b was listed before"),
        ({"graphs": ["a", None], "nodes": "a"}, r"graphs\.csv, line 3: the column graph is empty"),
        ({"nodes": ["a", "a", None], "edges": "a"}, r"nodes\.csv, line 4: the column graph is empty"),
        ({"graphs": "ab", "nodes": "aabbz"}, r"nodes\.csv, line 6: there is no graph z in the table graphs"),
        ({"nodes": "ab", "edges": "azb"}, r"edges\.csv, line 3: there is no graph z in the table nodes"),
        ({"nodes": "ab", "edges": ["a", None]}, r"edges\.csv, line 3: there is no graph nan in the table nodes"),
    ],
)
def test_rows_that_name_no_graph(tmp_path, rows, graphs, message):
    with pytest.raises(BadInput, match=message):
        check_order(tables(tmp_path, rows, **graphs))


def test_equal_hashes_are_no_equal_names(tmp_path, monkeypatch):
    grouped = tables(tmp_path, 2, nodes="aabbc", edges="ac")
    (tmp_path / "torn").mkdir()
    torn = tables(tmp_path / "torn", 2, graphs="aba", nodes="a")
    monkeypatch.setattr(table_order.pd.util, "hash_array", lambda names, **_: 0 * names.astype(bool).astype("uint64"))
    check_order(grouped)
    with pytest.raises(BadInput, match="line 4: the graph a was listed before"):
        check_order(torn)


def test_every_order_of_a_few_rows(tmp_path):
    """Side by side exactly where the rows are sorted as the first table is."""
    for rows in itertools.product("ab", repeat=3):
        try:
            check_order(tables(tmp_path, 2, graphs="ab", nodes=rows))
            found = True
        except ReadWhole:
            found = False
        assert found == (sorted(rows) == list(rows)), rows
