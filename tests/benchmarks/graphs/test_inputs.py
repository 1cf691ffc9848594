"""New graphs of a source: JSON lines in parts, names of nodes, and rows that cannot be used."""

from __future__ import annotations

import json
import tracemalloc
from itertools import pairwise

import networkx as nx
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

from graphbench.benchmarks import Graphs
from graphbench.benchmarks.graphs import inputs
from graphbench.benchmarks.graphs.raw import parts_of_raw
from graphbench.benchmarks.graphs.readers import json_lines
from graphbench.benchmarks.graphs.readers.objects import raw_from_objects
from graphbench.errors import BadInput, MissingData, UnknownName


def line(number, **changed):
    size = 3 + number % 4
    graph = {
        "id": f"g{number}",
        "nodes": {"element": ["C", "N", "O", "C", "N", "O"][:size], "charge": [0.1 * i - 0.2 for i in range(size)]},
        "edges": [[i, i + 1] for i in range(size - 1)],
        "edge_features": {"order": [1 + i % 2 for i in range(size - 1)]},
        "energy": float(number),
    }
    return json.dumps(graph | changed)


@pytest.fixture
def benchmark(tmp_path):
    (tmp_path / "known.jsonl").write_text("\n".join(map(line, range(20))))
    return Graphs(str(tmp_path / "known.jsonl"), target="energy", root=str(tmp_path / "data"))


@pytest.fixture
def write(tmp_path):
    def lines(*content):
        (tmp_path / "new.jsonl").write_text("\n\n".join(content))
        return str(tmp_path / "new.jsonl")

    return lines


def test_parts_are_those_of_the_whole_file(benchmark, write):
    source = write(*map(line, range(30, 41)))
    (whole,) = benchmark.read_input(source)
    parts = list(benchmark.read_input(source, size=4))
    assert [len(part.table) for part in parts] == [4, 4, 3]
    assert [name for part in parts for name in part.frame["id"]] == [f"g{number}" for number in range(30, 41)]
    assert len(whole.table) == 11
    for name, column in whole.table.columns.items():
        assert torch.equal(torch.cat([part.table.columns[name] for part in parts]), column), name


def test_graphs_of_parts_that_nobody_wants_are_not_built(benchmark, write, monkeypatch):
    source = write(*map(line, range(30, 41)))
    monkeypatch.setattr(inputs, "PART_ROWS", 4)
    parts, built = list(benchmark.read_input(source, size=4)), []
    build = inputs._build_part
    monkeypatch.setattr(inputs, "_build_part", lambda part, table: built.append(part.size) or build(part, table))
    chosen = list(benchmark.read_chosen(source, None, lambda row: row == 8))
    assert [len(part.frame) for part in chosen] == [4, 4, 3]
    assert [len(part.table) for part in chosen] == [0, 0, 3]
    assert built == [3]
    for name, column in parts[2].table.columns.items():
        assert torch.equal(chosen[2].table.columns[name], column), name


def test_no_more_than_a_part_is_parsed_at_once(benchmark, write, monkeypatch):
    read = []
    parse = json_lines.graph_of_line
    monkeypatch.setattr(json_lines, "graph_of_line", lambda *words: read.append(words[1]) or parse(*words))
    parts = benchmark.read_input(write(*map(line, range(12))), size=5)
    read.clear()  # the first line was read for its columns
    next(parts)
    assert len(read) == 5
    next(parts)
    assert len(read) == 10


def test_a_line_that_cannot_be_used_is_a_problem_of_its_row(benchmark, write):
    content = [
        "{", line(1), line(2, edges=[[0, 9], [0, 1]], edge_features={"order": [1, 1]}),
        line(3, nodes={"element": ["Xx"] * 6, "charge": [0.0] * 6}, edges=[], edge_features={"order": []}),
        line(4, nodes={"element": ["C"]}, edges=[], edge_features={"order": []}), line(5),
    ]  # fmt: skip
    (part,) = benchmark.read_input(write(*content))
    assert part.frame["id"].tolist() == ["0", "g1", "g2", "g3", "g4", "g5"]
    assert part.rows == [1, 5]
    assert len(part.table) == 2
    assert "line 1 is not JSON" in part.problems[0]
    assert "line 5, edge 0: joins the nodes 0 and 9" in part.problems[2]
    assert "element is Xx, which is none of the known categories" in part.problems[3]
    assert "'charge'" in part.problems[4]


def test_an_invalid_graph_is_found_by_halves(benchmark, write, monkeypatch):
    calls = []
    build = inputs._build_rows
    monkeypatch.setattr(inputs, "_build_rows", lambda *words: calls.append(words[1]) or build(*words))
    (part,) = benchmark.read_input(write(*map(line, range(77)), line(77, edges=[[0, 9]]), *map(line, range(78, 128))))
    assert list(part.problems) == [77]
    assert len(part.table) == 127
    assert len(calls) < 3 * 7  # 128 is 2^7


@pytest.mark.parametrize("edge_features", [{}, {"order": []}])
def test_graphs_without_edges_need_no_columns_of_edges_wherever_they_are(benchmark, write, edge_features):
    alone = line(0, nodes={"element": ["C"], "charge": [0.1]}, edges=[], edge_features=edge_features)
    invalid = line(1, edges=[[0, 9]])
    for lines, problems in (([alone], []), ([alone, line(2)], []), ([invalid, alone, invalid], [0, 2])):
        (part,) = benchmark.read_input(write(*lines))
        assert list(part.problems) == problems
        assert part.table.num_nodes.min() == 1
        assert part.table.columns["edge_attr"].shape[1] == 1


def test_parts_of_graphs_in_memory_copy_no_more_than_their_rows():
    edges = torch.tensor([[0], [1]])
    graphs = [Data(x=torch.randn(200, 1), edge_index=edges, y=torch.randn(1)) for _ in range(400)]
    raw = raw_from_objects(graphs, "graphs")
    parts = list(parts_of_raw(raw, 100))
    parts[2].join([0])
    tracemalloc.start()
    joined = parts[2].join([7, 9])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < raw.num_nodes.sum() / 2  # less than a byte for each node
    assert joined.names == ["207", "209"]
    assert joined.place("node", 201) == "graphs, graph 209, node 1"
    expected = torch.cat([graphs[207].x, graphs[209].x]).numpy()
    assert (joined.columns["node"]["x"] == expected).all()


def test_a_line_without_a_graph_keeps_its_id(benchmark, write):
    no_edges = json.dumps({"id": "bare", "nodes": {"element": ["C"]}})
    content = [line(0), no_edges, line(2, id=17, energy={"a": 1}), json.dumps({"nodes": {}}), '{"id": "torn",', "[1]"]
    (part,) = benchmark.read_input(write(*content))
    assert part.rows == [0]
    assert part.frame["id"].tolist() == ["g0", "bare", "17", "3", "4", "5"], "without an id, lines are numbered from 0"
    assert "line 3 has no edges" in part.problems[1]


def named_tables(folder, graphs):
    """Write path graphs as tables, given graph -> names of its nodes; the first node has weight 1, the others 0."""
    folder.mkdir()
    nodes = [(graph, name, float(not at)) for graph, names in graphs.items() for at, name in enumerate(names)]
    edges = [(graph, *pair) for graph, names in graphs.items() for pair in pairwise(names)]
    pd.DataFrame(nodes, columns=["graph", "node", "weight"]).assign(y=0.5).to_csv(folder / "nodes.csv", index=False)
    pd.DataFrame(edges, columns=["graph", "source", "target"]).to_csv(folder / "edges.csv", index=False)
    return str(folder)


def test_nodes_keep_the_names_that_tables_give_them(tmp_path):
    names = {f"g{n}": [f"n{n}-{k}" for k in "cab"[: 2 + n % 2]] for n in range(10)}
    known = Graphs(named_tables(tmp_path / "known", names), target="y", root=str(tmp_path / "data"))
    parts = list(known.read_input(named_tables(tmp_path / "new", names | {"g5": ["7", "5"]}), size=4))
    assert [len(part.table) for part in parts] == [4, 4, 2]
    found = [part.node_names[row] for part in parts for row in part.rows]
    assert found == list((names | {"g5": ["7", "5"]}).values())
    ones = [part.table.columns["x_dense"][:, 0] > part.table.columns["x_dense"].min() for part in parts]
    flat = [name for part in parts for row in part.rows for name in part.node_names[row]]
    first = [name for name, one in zip(flat, torch.cat(ones).tolist(), strict=True) if one]
    assert first == ["n0-c", "n1-c", "n2-c", "n3-c", "n4-c", "7", *(f"n{n}-c" for n in range(6, 10))], (
        "names match the features of their nodes"
    )


def test_nodes_keep_the_names_of_a_networkx_file(tmp_path):
    for folder in ("known", "new"):
        (tmp_path / folder).mkdir()
        for number in range(10 if folder == "known" else 4):
            graph = nx.path_graph(["late", f"b{number}", "a"])
            nx.set_node_attributes(graph, {"late": 1.0, f"b{number}": 2.0, "a": 3.0}, "weight")
            nx.set_node_attributes(graph, 0.5, "y")
            nx.write_graphml(graph, tmp_path / folder / f"{number}.graphml")
    (tmp_path / "new" / "2.graphml").write_text("<graphml")
    known = Graphs(str(tmp_path / "known"), target="y", root=str(tmp_path / "data"))
    parts = list(known.read_input(str(tmp_path / "new"), size=1))
    assert [part.node_names for part in parts] == [
        {0: ["late", "b0", "a"]}, {0: ["late", "b1", "a"]}, {}, {0: ["late", "b3", "a"]},
    ]  # fmt: skip
    assert list(parts[2].problems) == [0]


def test_numbered_nodes_have_no_names(benchmark, write):
    (part,) = benchmark.read_input(write(line(0)))
    assert part.node_names is None


def test_a_column_is_refused_where_graphs_are_in_none(benchmark, write):
    """Only tables of molecules have such a column; here it would be silently ignored."""
    for read in (benchmark.read_input, benchmark.read_labelled):
        with pytest.raises(BadInput, match="no column 'structure'"):
            read(write(line(0)), "structure")


def test_what_is_no_file_of_such_graphs_is_refused_at_once(benchmark, write, tmp_path):
    with pytest.raises(BadInput, match=r"new\.jsonl holds no graph"):
        benchmark.read_input(write(""))
    with pytest.raises(UnknownName, match=r"No column of nodes in .* is called 'charge'"):
        benchmark.read_input(write(line(0, nodes={"element": ["C"] * 3}), line(1)))
    with pytest.raises(MissingData, match=r"^--input .*none\.jsonl: there is no such file or folder"):
        benchmark.read_input(str(tmp_path / "none.jsonl"))
    (tmp_path / "new.jsonl").write_bytes(b"{\xe9")
    with pytest.raises(BadInput, match="not UTF-8 text"):
        benchmark.read_input(str(tmp_path / "new.jsonl"))
