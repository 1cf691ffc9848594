"""Folders of tables: their graphs, and errors with file and line."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.benchmarks.graphs.raw import both_ways
from graphbench.benchmarks.graphs.readers.tables import is_table_folder, read_tables
from graphbench.errors import BadInput

GRAPHS = {"graph": ["a", "b", "c"], "energy": [0.5, 1.0, 1.5]}
NODES = {
    "graph": ["a", "b", "a", "c", "b", "a"],  # rows of a graph need not be adjacent
    "node": ["n1", "n1", "n2", "n1", "n2", "n9"],
    "element": ["C", "N", "O", "C", "C", "C"],
    "charge": [0.0, 0.1, 0.2, 0.3, 0.4, 0.5],
}
EDGES = {
    "graph": ["b", "a", "a"],
    "source": ["n1", "n9", "n1"],
    "target": ["n2", "n1", "n2"],
    "length": [0.1, 0.2, 0.3],
}


def write(folder, form="csv", **changed):
    folder.mkdir(exist_ok=True)
    for name, content in ({"graphs": GRAPHS, "nodes": NODES, "edges": EDGES} | changed).items():
        if content is not None:
            frame = pd.DataFrame(content)
            path = folder / f"{name}.{form}"
            frame.to_parquet(path, index=False) if form == "parquet" else frame.to_csv(path, index=False)
    return folder


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables_become_graphs(tmp_path, form):
    assert is_table_folder(write(tmp_path / "t", form))
    raw = read_tables(tmp_path / "t", directed=False)
    raw.check()
    assert raw.names == ["a", "b", "c"]
    assert raw.num_nodes.tolist() == [3, 2, 1]
    assert raw.num_edges.tolist() == [4, 2, 0]
    assert raw.edges.tolist() == [[2, 0], [0, 1], [0, 2], [1, 0], [0, 1], [1, 0]]
    assert raw.columns["edge"]["length"].tolist() == [0.2, 0.3, 0.2, 0.3, 0.1, 0.1]
    assert raw.columns["node"]["element"].tolist() == ["C", "O", "C", "N", "C", "C"]
    assert raw.columns["node"]["charge"].tolist() == [0.0, 0.2, 0.5, 0.1, 0.4, 0.3]
    assert raw.columns["graph"]["energy"].tolist() == [0.5, 1.0, 1.5]
    numbers = [values for named in raw.columns.values() for values in named.values() if values.dtype != object]
    assert all(values.flags.writeable for values in numbers)  # torch warns of others
    one_way = read_tables(tmp_path / "t", directed=True)
    assert one_way.edges.tolist() == [[2, 0], [0, 1], [0, 1]]


def test_text_becomes_categories_and_names_are_left_out(tmp_path):
    many = {"graph": [f"g{n}" for n in range(10)], "y": [float(n) for n in range(10)]}
    nodes = {"graph": many["graph"] * 3, "element": ["C", "N", "O"] * 10, "title": [f"t{n}" for n in range(30)]}
    edges = {"graph": many["graph"], "source": [0] * 10, "target": [1] * 10}
    folder = write(tmp_path / "t", graphs=many, nodes=nodes, edges=edges)
    benchmark = Graphs(str(folder), root=str(tmp_path / "data"))
    assert benchmark.spec.node.vocabularies == (3,)
    assert benchmark.spec.node.names == ("element",)
    assert ("  left out", "title", "30 different texts in 30 rows") in benchmark.summary()
    benchmark.setup()
    assert {name for split in ("train", "val", "test") for name in benchmark.ids(split)} == set(many["graph"])
    assert benchmark.value_words("element", 2) == "element O"


def test_no_table_of_nodes_or_none_of_graphs(tmp_path):
    numbers = {"graph": ["b", "a", "a"], "source": [0, 2, 0], "target": [1, 0, 1]}
    sized = GRAPHS | {"num_nodes": [3, 2, 1]}
    raw = read_tables(write(tmp_path / "a", graphs=sized, nodes=None, edges=numbers), directed=False)
    assert raw.num_nodes.tolist() == [3, 2, 1]
    assert list(raw.columns["graph"]) == ["energy"]
    raw = read_tables(write(tmp_path / "b", graphs=None), directed=False)
    assert (raw.names, raw.columns["graph"]) == (["a", "b", "c"], {})
    links = {"graph": ["c", "a"], "source": ["n1", "n1"], "target": ["n1", "n9"]}
    raw = read_tables(write(tmp_path / "c", links=links), directed=False)
    assert raw.pairs["link"].ends.tolist() == [[0, 2], [0, 0]]
    assert raw.pairs["link"].counts.tolist() == [1, 0, 1]


def test_names_that_look_like_numbers_or_gaps_stay_as_written(tmp_path):
    """As numbers, 1.1 and 1.10 would be one graph, and 1 and 01."""
    (tmp_path / "nodes.csv").write_text("graph,node,x\n1.1,NA,0\n1.10,007,0\n1.10,7,1\n1,NA,0\n01,1e3,1\n")
    (tmp_path / "edges.csv").write_text("graph,source,target\n1.10,007,7\n")
    raw = read_tables(tmp_path, directed=True)
    assert (raw.names, raw.num_edges.tolist()) == (["1.1", "1.10", "1", "01"], [0, 1, 0, 0])
    assert raw.node_names.tolist() == ["NA", "007", "7", "NA", "1e3"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"nodes": NODES | {"node": ["n1", "n2", None, *NODES["node"][3:]]}},
            r"nodes\.csv, line 4: the column node is",
        ),
        (
            {"edges": EDGES | {"target": [None, *EDGES["target"][1:]]}},
            r"edges\.csv, line 2: target is nan, which is not",
        ),
        ({"edges": EDGES | {"graph": ["b", "z", "a"]}}, r"edges\.csv, line 3: there is no graph z in the table graphs"),
        ({"edges": EDGES | {"source": ["n1", "n9", "n7"]}}, r"edges\.csv, line 4: source is n7, which is not a node"),
        ({"nodes": NODES | {"node": ["n1"] * 6}}, r"nodes\.csv, line 4: its graph has a node n1 already"),
        ({"graphs": GRAPHS | {"graph": ["a", "a", "c"]}}, r"graphs\.csv, line 3: the graph a was listed before"),
        ({"edges": {"graph": ["a"], "from": [0], "target": [1]}}, r"edges\.csv needs the column source; it has graph"),
        ({"nodes": None}, r"graphs\.csv needs the column num_nodes"),
        ({"nodes": {"graph": ["a", "b"], "node": ["n1", "n1"]}}, r"source is n9"),
    ],
)
def test_errors_name_file_and_line(tmp_path, changed, message):
    with pytest.raises(BadInput, match=message):
        read_tables(write(tmp_path / "t", **changed), directed=False)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (NODES | {"charge": [0.0, 0.1, 0.2, np.nan, 0.4, 0.5]}, r"nodes\.csv, line 5 \(graph c\): charge is nan"),
        (NODES | {"element": ["C", "N", None, "C", "C", "C"]}, r"nodes\.csv, line 4 \(graph a\): element is None"),
    ],
)
def test_bad_values_name_file_and_line(tmp_path, nodes, message):
    with pytest.raises(BadInput, match=message):
        Graphs(
            str(write(tmp_path / "t", nodes=nodes)), root=str(tmp_path / "data"), node_features=["element", "charge"]
        )


def test_a_graph_without_rows_and_a_damaged_file(tmp_path):
    folder = write(tmp_path / "t", graphs=GRAPHS | {"graph": ["a", "b", "d"]}, nodes=None)
    (folder / "nodes.csv").write_text("graph,node\na,n1\na,n9\na,n2\nb,n1\nb,n2\n")
    with pytest.raises(BadInput, match=r"graphs\.csv, line 4 \(graph d\) has no node"):
        read_tables(folder, directed=False).check()
    (folder / "nodes.csv").unlink()
    (folder / "nodes.parquet").write_bytes(b"none")
    with pytest.raises(BadInput, match=r"nodes\.parquet: not a Parquet file"):
        read_tables(folder, directed=False)


def test_reverse_edges_are_added_once():
    ends = np.array([[0, 1], [1, 0], [1, 2], [2, 2], [0, 1]])
    graph = np.array([0, 0, 0, 0, 1])
    every, counts, rows = both_ways(ends, graph, 3)
    assert every.tolist() == [[0, 1], [1, 0], [1, 2], [2, 2], [2, 1], [0, 1], [1, 0]]
    assert counts.tolist() == [5, 2, 0]
    assert rows.tolist() == [0, 1, 2, 3, 2, 4, 4]


def test_semicolons_decimal_commas_and_names_in_another_case(tmp_path, caplog):
    folder = write(tmp_path / "t")
    plain = read_tables(folder, directed=False)
    for name in ("graphs", "nodes", "edges"):
        path = folder / f"{name}.csv"
        header, *rows = path.read_text().splitlines()
        head = header.upper().replace(",", ";") if name == "edges" else header.replace(",", ";")
        path.write_text("\n".join([head, *(row.replace(",", ";").replace(".", ",") for row in rows)]))
    with caplog.at_level("INFO"):
        raw = read_tables(folder, directed=False)
    assert raw.edges.tolist() == plain.edges.tolist()
    assert raw.columns["edge"]["LENGTH"].tolist() == plain.columns["edge"]["length"].tolist()
    for level, name in (("node", "charge"), ("graph", "energy")):
        assert raw.columns[level][name].tolist() == plain.columns[level][name].tolist()
    assert raw.columns["node"]["element"].tolist() == plain.columns["node"]["element"].tolist()
    assert len(caplog.records) == 3
    told = caplog.records[-1].message
    for word in ("edges.csv", "semicolons", "'GRAPH'", "'graph'", "'SOURCE'", "'TARGET'", "decimal commas in LENGTH"):
        assert word in told


def test_near_name_of_a_missing_column(tmp_path):
    edges = {"graph": ["a"], "sources": ["n1"], "target": ["n2"]}
    with pytest.raises(BadInput, match=r"needs the column source; .*Did you mean 'sources'\?"):
        read_tables(write(tmp_path / "t", edges=edges), directed=False)


def test_workbooks_are_tables_too(tmp_path):
    pytest.importorskip("openpyxl")
    plain = read_tables(write(tmp_path / "t"), directed=False)
    folder = tmp_path / "x"
    folder.mkdir()
    for name, content in {"graphs": GRAPHS, "nodes": NODES, "edges": EDGES}.items():
        pd.DataFrame(content).to_excel(folder / f"{name}.xlsx", index=False)
    raw = read_tables(folder, directed=False)
    assert raw.edges.tolist() == plain.edges.tolist()
    assert raw.columns["node"]["charge"].tolist() == plain.columns["node"]["charge"].tolist()
    edges = {**EDGES, "target": ["n2", "n1", "nobody"]}
    pd.DataFrame(edges).to_excel(folder / "edges.xlsx", index=False)
    with pytest.raises(BadInput, match=r"edges\.xlsx, row 4: target is nobody"):
        read_tables(folder, directed=False)


def test_tables_without_a_column_of_graphs_are_one_graph(tmp_path):
    nodes, edges = {"node": ["u", "v", "w"], "age": [3, 5, 4]}, {"source": ["u", "w"], "target": ["v", "v"]}
    raw = read_tables(write(tmp_path / "t", graphs=None, nodes=nodes, edges=edges), directed=False)
    assert (raw.names, raw.num_nodes.tolist()) == (["0"], [3])
    assert raw.edges.tolist() == [[0, 1], [2, 1], [1, 0], [1, 2]]
    assert raw.columns["node"].keys() == {"age"}
    raw.check()
    with pytest.raises(BadInput, match=r"nodes\.csv needs the column graph"):
        read_tables(write(tmp_path / "s", graphs=None, nodes=nodes), directed=False)
