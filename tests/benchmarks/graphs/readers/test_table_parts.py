"""Tables read in parts give the graphs of the whole tables."""

from __future__ import annotations

import itertools
import json
import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import SMALL_MODEL

from graphbench.benchmarks import Graphs
from graphbench.benchmarks.graphs.readers import sources, table_parts
from graphbench.benchmarks.graphs.readers.table_parts import ReadWhole, check_order, parts_of_tables
from graphbench.benchmarks.graphs.readers.tables import read_tables
from graphbench.cli import main
from graphbench.errors import BadInput, UnknownName
from graphbench.tables import frames as typed_frames
from graphbench.tables.frames import typed_table

COUNT = 13
FORMS = {
    "comma": ("csv", {"index": False}),
    "semicolon": ("csv", {"index": False, "sep": ";", "decimal": ","}),
    "tab": ("tsv", {"index": False, "sep": "\t"}),
    "parquet": ("parquet", {"index": False}),
}


def graph(number):
    """Return nodes and edges of a graph; every fourth graph has no edge, every fifth a single node."""
    size = 1 if number % 5 == 4 else 3 + number % 3
    nodes = [
        {"node": f"n{at}", "element": "CNO"[(number + at) % 3], "charge": 0.25 * at - 0.5 + number}
        for at in range(size)
    ]
    edges = [] if number % 4 == 3 else [(at, at + 1) for at in range(size - 1)]
    edges = [{"source": f"n{a}", "target": f"n{b}", "order": 1 + b % 2, "length": 0.5 * a + 0.25} for a, b in edges]
    return nodes, edges


def frames(count=COUNT):
    """Return all four tables; the last graphs determine the types of some columns."""
    graphs = [{"graph": f"g{number}", "energy": number / 4} for number in range(count)]
    nodes = [{"graph": f"g{number}", **node} for number in range(count) for node in graph(number)[0]]
    edges = [{"graph": f"g{number}", **edge} for number in range(count) for edge in graph(number)[1]]
    links = [{"graph": f"g{number}", "source": "n0", "target": "n0"} for number in range(0, count, 3)]
    found = {"graphs": graphs, "nodes": nodes, "edges": edges, "links": links}
    found = {name: pd.DataFrame(rows) for name, rows in found.items()}
    found["nodes"]["late"] = [1.0] * (len(nodes) - 1) + [np.nan]
    found["nodes"]["mixed"] = ["01"] * (len(nodes) - 2) + ["x", "2"]
    return found


def write(folder, tables, form="comma"):
    folder.mkdir(exist_ok=True)
    suffix, options = FORMS[form]
    for name, frame in tables.items():
        path = folder / f"{name}.{suffix}"
        frame.to_parquet(path, **options) if suffix == "parquet" else frame.to_csv(path, **options)
    return folder


def assert_same(part, whole):
    assert part.names == whole.names
    for name in ("num_nodes", "num_edges", "edges"):
        assert np.array_equal(getattr(part, name), getattr(whole, name)), name
    assert part.pairs.keys() == whole.pairs.keys()
    for kind, pairs in whole.pairs.items():
        assert all(map(np.array_equal, part.pairs[kind], pairs)), kind
    for level, columns in whole.columns.items():
        assert list(part.columns[level]) == list(columns)
        for name, values in columns.items():
            assert part.columns[level][name].dtype == values.dtype, name
            assert pd.Series(part.columns[level][name]).equals(pd.Series(values)), name
    levels = {"graph": len(whole), "edge": whole.num_edges.sum()}
    levels |= {"node": whole.num_nodes.sum()} if whole.columns["node"] else {}
    for level, rows in levels.items():
        assert [part.place(level, row) for row in range(rows)] == [whole.place(level, row) for row in range(rows)]


def assert_parts_are_the_whole(folder, rows, size=3, directed=False):
    whole, start = read_tables(folder, directed), 0
    for part in parts_of_tables(folder, directed, size, rows):
        chosen = list(range(start, start + part.size))
        assert list(map(part.name_of, range(part.size))) == [whole.names[row] for row in chosen]
        assert_same(part.join(range(len(chosen))), whole.select(chosen))
        assert_same(part.join([len(chosen) - 1]), whole.select(chosen[-1:]))
        start += len(chosen)
    assert start == len(whole)


@pytest.mark.parametrize("rows", [3, 1000])
@pytest.mark.parametrize("form", FORMS)
def test_parts_are_those_of_the_whole(tmp_path, caplog, form, rows):
    folder = write(tmp_path / "t", frames(), form)
    with caplog.at_level("INFO"):
        assert_parts_are_the_whole(folder, rows)
    assert "read whole" not in caplog.text
    if form == "semicolon":
        told = [record.message for record in caplog.records if "decimal commas" in record.message]
        assert told[:3] == told[3:], "parts and whole log the same messages"
        assert len({*told}) == 3


@pytest.mark.parametrize("missing", ["nodes", "graphs", "links"])
def test_without_one_of_the_tables(tmp_path, caplog, missing):
    tables = frames()
    if missing == "nodes":
        tables["graphs"]["num_nodes"] = tables["nodes"].groupby("graph", sort=False).size().to_numpy()
        for name in ("edges", "links"):
            for end in ("source", "target"):
                tables[name][end] = tables[name][end].str[1:].astype(int)
    del tables[missing]
    with caplog.at_level("INFO"):
        for directed in (False, True):
            assert_parts_are_the_whole(write(tmp_path / "t", tables), 5, size=2, directed=directed)
    assert "read whole" not in caplog.text


def backwards(frame):
    return frame.iloc[::-1].reset_index(drop=True)


def torn(frame):
    return pd.concat([frame.iloc[1:], frame.iloc[:1]], ignore_index=True)


@pytest.mark.parametrize(
    ("changed", "change", "reason"),
    [
        ("nodes", torn, r"nodes\.csv: rows of graph g0 are apart \(lines 2 and {last}\)"),
        ("edges", torn, r"edges\.csv: rows of graph g0 are apart \(lines 2 and {last}\)"),
        ("edges", backwards, r"edges\.csv: graph g10 \(line \d+\) is in another order than in graphs\.csv"),
        ("links", backwards, r"links\.csv: graph g9 \(line 3\) is in another order than in graphs\.csv"),
    ],
)
def test_tables_in_another_order_are_read_whole(tmp_path, caplog, changed, change, reason):
    tables = frames()
    folder = write(tmp_path / "t", tables | {changed: change(tables[changed])})
    with caplog.at_level("INFO"):
        assert_parts_are_the_whole(folder, 5)
    (message,) = [record.message for record in caplog.records]
    reason = reason.replace("{last}", str(len(tables[changed]) + 1))
    assert re.fullmatch(f"{reason}, so the tables are read whole\\.", message)


def test_one_graph_is_read_whole_and_workbooks_are_not(tmp_path, caplog):
    pytest.importorskip("openpyxl")
    one = {"nodes": pd.DataFrame({"node": ["a", "b"]}), "edges": pd.DataFrame({"source": ["a"], "target": ["b"]})}
    tables = frames(4)
    del tables["links"]
    folder = write(tmp_path / "x", {name: frame for name, frame in tables.items() if name != "nodes"})
    tables["nodes"].to_excel(folder / "nodes.xlsx", index=False)
    with caplog.at_level("INFO"):
        assert_parts_are_the_whole(write(tmp_path / "one", one), 5)
        assert_parts_are_the_whole(folder, 5)
    (message,) = [record.message for record in caplog.records]
    assert message == f"{tmp_path / 'one'}: no table has a column graph, so the tables are read whole."


def test_no_more_is_read_than_a_part_needs(tmp_path, monkeypatch):
    folder = write(tmp_path / "t", frames())
    parts = parts_of_tables(folder, False, size=2, rows=4)
    read = []
    convert = typed_frames._convert
    monkeypatch.setattr(typed_frames, "_convert", lambda *words: read.append(len(words[0])) or convert(*words))
    next(parts)
    assert sum(read) < 4 * 8 * 6, "a few chunks of at most six columns"
    before = sum(read)
    list(parts)
    assert sum(read) > 2 * before


# -- new inputs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def benchmark(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "parts_of_tables", partial(parts_of_tables, rows=5))
    tables = frames(20)
    tables["nodes"] = tables["nodes"].drop(columns=["late", "mixed"])
    del tables["links"]
    folder = write(tmp_path / "known", tables)
    return Graphs(str(folder), target="energy", root=str(tmp_path / "data"))


def changed(folder, table, row, column, value):
    """Write the tables of new graphs with another value in one cell."""
    tables = frames()
    tables["nodes"]["charge"] = tables["nodes"]["charge"].astype(object)
    tables[table].loc[row, column] = value
    return str(write(folder, tables))


def test_inputs_are_those_of_json_lines(benchmark, tmp_path):
    tables = {name: frame for name, frame in frames().items() if name != "graphs"}
    parts = list(benchmark.read_input(str(write(tmp_path / "new", tables)), size=4))
    (tmp_path / "new.jsonl").write_text("\n".join(line(number) for number in range(COUNT)))
    lines = list(benchmark.read_input(str(tmp_path / "new.jsonl"), size=4))
    assert [len(part.table) for part in parts] == [4, 4, 4, 1]
    for ours, theirs in zip(parts, lines, strict=True):
        assert ours.frame.equals(theirs.frame)
        for name, column in theirs.table.columns.items():
            assert torch.equal(ours.table.columns[name], column), name


def line(number):
    """Return the same graph as a line of JSON."""
    nodes, edges = graph(number)
    ends = [[int(edge[end][1:]) for end in ("source", "target")] for edge in edges]
    columns = {name: [node[name] for node in nodes] for name in ("element", "charge")}
    features = {name: [edge[name] for edge in edges] for name in ("order", "length")}
    return json.dumps({"id": f"g{number}", "nodes": columns, "edges": ends, "edge_features": features})


@pytest.mark.parametrize(
    ("table", "column", "value", "message"),
    [
        ("edges", "source", "n8", r"edges\.csv, line {line}: source is n8, which is not a node of its graph"),
        ("nodes", "element", "Xx", r"nodes\.csv, line {line} \(graph g12\): element is Xx, which is none of the known"),
        ("nodes", "charge", np.nan, r"nodes\.csv, line {line} \(graph g12\): charge is nan, which is not finite"),
        ("nodes", "node", "n0", r"nodes\.csv, line {line}: its graph has a node n0 already"),
        ("edges", "order", 9, r"edges\.csv, line {line} \(graph g12\): order is 9, which is none of the known"),
        ("links", "target", "n9", r"links\.csv, line {line}: target is n9, which is not a node of its graph"),
    ],
)
def test_a_bad_row_of_the_last_chunk_is_a_problem_of_its_graph(benchmark, tmp_path, table, column, value, message):
    row = len(frames()[table]) - 1
    parts = list(benchmark.read_input(changed(tmp_path / "new", table, row, column, value), size=5))
    assert [name for part in parts for name in part.frame["id"]] == [f"g{number}" for number in range(COUNT)]
    assert [len(part.table) for part in parts] == [5, 5, 2]
    assert [part.problems for part in parts[:2]] == [{}, {}]
    assert parts[2].rows == [0, 1]
    assert re.search(message.format(line=row + 2), parts[2].problems[2])


def test_a_graph_without_nodes(benchmark, tmp_path):
    tables = frames()
    tables["nodes"] = tables["nodes"][tables["nodes"]["graph"] != "g7"]
    (part,) = benchmark.read_input(str(write(tmp_path / "new", tables)))
    assert list(part.problems) == [7]
    assert re.search(r"graphs\.csv, line 9 \(graph g7\) has no node", part.problems[7])


def test_faults_that_are_no_graphs_are_refused_at_once(benchmark, tmp_path):
    edges = len(frames()["edges"]) - 1
    with pytest.raises(BadInput, match=rf"edges\.csv, line {edges + 2}: there is no graph g99 in the table graphs"):
        benchmark.read_input(changed(tmp_path / "a", "edges", edges, "graph", "g99"))
    tables = frames()
    with pytest.raises(UnknownName, match=r"No column of nodes in .* is called 'charge'"):
        benchmark.read_input(str(write(tmp_path / "b", tables | {"nodes": tables["nodes"].drop(columns="charge")})))
    with pytest.raises(BadInput, match=r"edges\.csv needs the column target"):
        benchmark.read_input(str(write(tmp_path / "c", tables | {"edges": tables["edges"].drop(columns="target")})))
    del tables["nodes"]
    with pytest.raises(BadInput, match=r"graphs\.csv needs the column num_nodes"):
        benchmark.read_input(str(write(tmp_path / "d", tables)))
    empty = {name: frame.iloc[:0] for name, frame in frames().items()}
    with pytest.raises(BadInput, match="holds no graph"):
        benchmark.read_input(str(write(tmp_path / "e", empty)))


@pytest.mark.slow
def test_the_command_line_predicts_what_it_does_for_json_lines(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(sources, "parts_of_tables", partial(parts_of_tables, rows=6))
    monkeypatch.chdir(tmp_path)
    tables = frames(30)
    tables["nodes"] = tables["nodes"].drop(columns=["late", "mixed"])
    del tables["links"]
    write(tmp_path / "known", tables, "parquet")
    data = ["--data", "Graphs", "--data.source", "known", "--data.target", "energy"]
    assert main(["fit", *data, *SMALL_MODEL, "--trainer.max_epochs", "1", "--run", "run"]) == 0
    new = frames()
    new["nodes"].loc[0, "element"] = "Xx"
    write(tmp_path / "new", new)
    lines = [line(number) for number in range(COUNT)]
    (tmp_path / "new.jsonl").write_text("\n".join([lines[0].replace('"C"', '"Xx"', 1), *lines[1:]]))
    for source, output in (("new", "tables.csv"), ("new.jsonl", "lines.csv")):
        assert main(["predict", "--run", "run", "--input", source, "--output", output]) == 0
    ours, theirs = pd.read_csv("tables.csv"), pd.read_csv("lines.csv")
    assert "read whole" not in caplog.text
    problems = [table.pop("problem") for table in (ours, theirs)]
    assert ours.equals(theirs)
    assert ours["prediction_energy"].isna().tolist() == [True] + [False] * (COUNT - 1)
    for found, place in zip(problems, (r"nodes\.csv, line 2 \(graph g0\)", r"new\.jsonl, line 1, node 0"), strict=True):
        assert found.notna().tolist() == [True] + [False] * (COUNT - 1)
        assert re.search(f"{place}: element is Xx", found[0])


def tables(folder, rows, form="csv", **graphs):
    found = {}
    for name, content in graphs.items():
        path, frame = folder / f"{name}.{form}", pd.DataFrame({"graph": list(content), "x": 0})
        frame.to_parquet(path) if form == "parquet" else frame.to_csv(path, index=False)
        found[name] = typed_table(path, ("graph",), rows)
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
        ({"nodes": "aabba", "edges": "a"}, r"^nodes\.csv: rows of graph a are apart \(lines 2 and 6\)$"),
        ({"nodes": "aabb", "edges": "aba"}, r"^edges\.csv: rows of graph a are apart \(lines 2 and 4\)$"),
        ({"graphs": "abc", "nodes": "aabcb"}, r"^nodes\.csv: rows of graph b are apart \(lines 4 and 6\)$"),
        (
            {"graphs": "abc", "nodes": "abc", "edges": "acb"},
            r"^edges\.csv: graph b \(line 4\) is in another order than in graphs\.csv$",
        ),
        ({"nodes": "abc", "edges": "ba"}, r"^edges\.csv: graph a \(line 3\) is in another order than in nodes"),
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
    monkeypatch.setattr(table_parts.pd.util, "hash_array", lambda names, **_: 0 * names.astype(bool).astype("uint64"))
    check_order(grouped)
    with pytest.raises(BadInput, match="line 4: the graph a was listed before"):
        check_order(torn)


def test_every_order_of_a_few_rows(tmp_path):
    """An order is accepted if and only if the rows are sorted like the first table."""
    for rows in itertools.product("ab", repeat=3):
        try:
            check_order(tables(tmp_path, 2, graphs="ab", nodes=rows))
            found = True
        except ReadWhole:
            found = False
        assert found == (sorted(rows) == list(rows)), rows
