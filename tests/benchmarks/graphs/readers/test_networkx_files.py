"""Files that networkx reads, against PyG's conversion of networkx graphs."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.utils import from_networkx

from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.benchmarks.graphs.readers import networkx_files
from graphbench.benchmarks.graphs.readers.networkx_files import convert, graph_files, read_networkx
from graphbench.benchmarks.graphs.readers.objects import raw_from_objects
from graphbench.errors import BadInput, CorruptData

WRITERS = {
    "graphml": nx.write_graphml,
    "gexf": nx.write_gexf,
    "gml": nx.write_gml,
    "adjlist": nx.write_adjlist,
    "edgelist": nx.write_edgelist,
}
READERS = {
    "graphml": nx.read_graphml,
    "gexf": nx.read_gexf,
    "gml": lambda path: nx.read_gml(path, label=None),
    "adjlist": nx.read_adjlist,
    "edgelist": nx.read_edgelist,
}


def weighted(seed, directed=False):
    graph = nx.gnp_random_graph(7, 0.5, seed=seed, directed=directed)
    nx.set_node_attributes(graph, {node: node / 4 for node in graph}, "charge")
    nx.set_edge_attributes(graph, {edge: float(sum(edge)) for edge in graph.edges}, "length")
    return graph


@pytest.mark.parametrize("directed", [False, True])
def test_conversion_is_that_of_pyg(directed):
    for seed in range(5):
        graph = weighted(seed, directed)
        mine, theirs = convert(graph, "place", "name"), from_networkx(graph)
        assert np.array_equal(mine.edges, theirs.edge_index.numpy())
        assert np.allclose(mine.node["charge"], theirs.charge.numpy())
        assert np.allclose(mine.edge["length"], theirs.length.numpy())


@pytest.mark.parametrize("suffix", WRITERS)
def test_files_of_every_kind(tmp_path, suffix):
    for seed in range(3):
        WRITERS[suffix](weighted(seed), tmp_path / f"g{seed}.{suffix}")
    pd.DataFrame({"graph": ["g2", "g0", "g1"], "y": [2.0, 0.0, 1.0]}).to_csv(tmp_path / "targets.csv", index=False)
    raw = read_networkx(graph_files(tmp_path), tmp_path, directed=False, origin="mine")
    raw.check()
    assert raw.names == [f"g{seed}.{suffix}" for seed in range(3)]
    assert raw.columns["graph"]["y"].tolist() == [0.0, 1.0, 2.0]
    first = from_networkx(READERS[suffix](tmp_path / f"g0.{suffix}"))
    assert np.array_equal(raw.edges[: int(raw.num_edges[0])].T, first.edge_index.numpy())
    if suffix in ("graphml", "gexf", "gml"):
        assert list(raw.columns["node"]) == ["charge"]
        assert "length" in raw.columns["edge"]


LABELLED = {
    "gml": "graph [\n{}]\n",
    "gexf": '<gexf xmlns="http://www.gexf.net/1.2draft" version="1.2"><graph><nodes>{}</nodes><edges/></graph></gexf>',
}
NODES = {"gml": 'node [ id {} label "{}" ]\n', "gexf": '<node id="{}" label="{}"/>'}


def write_labels(suffix, folder, graphs):
    folder.mkdir()
    for number, labels in enumerate(graphs):
        nodes = "".join(NODES[suffix].format(node, label) for node, label in enumerate(labels))
        (folder / f"g{number}.{suffix}").write_text(LABELLED[suffix].format(nodes))
    return read_networkx(graph_files(folder), folder, directed=False, origin="mine")


@pytest.mark.parametrize("suffix", LABELLED)
def test_labels_are_a_column_unless_they_name_the_nodes(tmp_path, suffix):
    kinds = write_labels(suffix, tmp_path / "kinds", ["CCO", "CN"])
    assert kinds.columns["node"]["label"].tolist() == list("CCOCN")
    assert not write_labels(suffix, tmp_path / "names", ["abc", "ab"]).columns["node"]


def test_labels_of_new_graphs_are_read_as_in_training(tmp_path):
    write_labels("gml", tmp_path / "known", ["CCO", "CN", "CCN", "OO", "NN", "CC"] * 4)
    (tmp_path / "known" / "targets.csv").write_text("graph,y\n" + "".join(f"g{n}.gml,{n}.5\n" for n in range(24)))
    benchmark = Graphs(str(tmp_path / "known"), target="y", root=str(tmp_path / "data"))
    assert benchmark.spec.node.names == ("label",)
    write_labels("gml", tmp_path / "new", ["CO"])  # all labels differ here
    (part,) = benchmark.read_input(str(tmp_path / "new"))
    assert not part.problems
    assert part.table.columns["x"].tolist() == [[0], [2]]


def test_graphs_of_networkx_in_python(tmp_path):
    graphs = [nx.ego_graph(nx.les_miserables_graph(), name, radius=1) for name in nx.les_miserables_graph()]
    for graph in graphs:
        graph.graph["friends"] = graph.number_of_nodes() - 1
    benchmark = Graphs(graphs, target="friends", task="graph-regression", store=str(tmp_path))
    benchmark.setup()
    for split in ("train", "val", "test"):
        batch = benchmark.tables[split].batch(range(len(benchmark.tables[split])))
        assert torch.equal(batch.y[:, 0], batch.ptr.diff() - 1.0)
    theirs = from_networkx(graphs[0])
    raw = raw_from_objects(graphs, "mine")
    assert np.array_equal(raw.edges[: int(raw.num_edges[0])].T, theirs.edge_index.numpy())
    assert np.array_equal(raw.columns["edge"]["weight"][: int(raw.num_edges[0])], theirs.weight.numpy())


def test_errors_name_the_file(tmp_path):
    nx.write_graphml(weighted(0), tmp_path / "g0.graphml")
    pd.DataFrame({"graph": ["g1"], "y": [1]}).to_csv(tmp_path / "targets.csv", index=False)
    with pytest.raises(BadInput, match=r"targets\.csv has no row for g0\.graphml"):
        read_networkx(graph_files(tmp_path), tmp_path, directed=False, origin="mine")
    (tmp_path / "g1.graphml").write_text("<graphml")
    with pytest.raises(CorruptData, match=r"g1\.graphml cannot be read by networkx"):
        read_networkx(graph_files(tmp_path), None, directed=False, origin="mine")
    uneven = nx.path_graph(3)
    uneven.nodes[1]["charge"] = 1.0
    with pytest.raises(BadInput, match="place: the node 0 has no charge, but others have"):
        convert(uneven, "place", "name")


@pytest.fixture
def benchmark(tmp_path):
    known = tmp_path / "known"
    known.mkdir()
    for seed in range(20):
        nx.write_graphml(weighted(seed), known / f"g{seed}.graphml")
    pd.DataFrame({"graph": [f"g{seed}" for seed in range(20)], "y": np.arange(20) / 4}).to_csv(known / "targets.csv")
    return Graphs(str(known), target="y", root=str(tmp_path / "data"))


def test_new_inputs_are_read_file_by_file(benchmark, tmp_path, monkeypatch):
    folder = tmp_path / "new"
    folder.mkdir()
    for seed in range(30, 37):
        nx.write_graphml(weighted(seed), folder / f"g{seed}.graphml")
    pd.DataFrame({"graph": ["g30"], "y": [1.0]}).to_csv(folder / "targets.csv", index=False)  # not needed
    whole = read_networkx(graph_files(folder), None, directed=False, origin="new")
    opened = []
    read = networkx_files.READERS[".graphml"]
    counted = lambda path, directed: opened.append(path) or read(path, directed)  # noqa: E731
    monkeypatch.setitem(networkx_files.READERS, ".graphml", counted)
    parts = benchmark.read_input(str(folder), size=3)
    opened.clear()  # the first file was read for its columns
    first = next(parts)
    assert len(opened) == 3
    tables = [first.table, *(part.table for part in parts)]
    assert [len(table) for table in tables] == [3, 3, 1]
    assert np.array_equal(torch.cat([table.columns["edge_index"] for table in tables]), whole.edges)
    for name, values in (("x_dense", whole.columns["node"]["charge"]), ("edge_dense", whole.columns["edge"]["length"])):
        assert np.array_equal(torch.cat([table.columns[name] for table in tables])[:, 0], values.astype(np.float32))


@pytest.mark.parametrize("damaged", [0, 2])
def test_a_damaged_file_is_a_problem_of_its_row(benchmark, tmp_path, damaged):
    folder = tmp_path / "new"
    folder.mkdir()
    for seed in range(4):
        nx.write_graphml(weighted(seed), folder / f"g{seed}.graphml")
    path = folder / f"g{damaged}.graphml"
    path.write_text(path.read_text()[:400])
    (part,) = benchmark.read_input(str(folder))
    assert part.frame["id"].tolist() == [f"g{seed}.graphml" for seed in range(4)]
    assert part.rows == [row for row in range(4) if row != damaged]
    assert len(part.table) == 3
    assert f"g{damaged}.graphml cannot be read by networkx" in part.problems[damaged]


@pytest.mark.parametrize(
    ("lines", "lost"),
    [
        (["a b", "b c", "b a"], 0),
        (["# a comment", "a b {'w': 1}", "", "b a {'w': 1}"], 0),
        (["a b {'w': 1}", "b a {'w': 2}"], 1),
        (["a b", "a b", "b c", "a b"], 2),
        (["a b {'w': 1}", "a b {'w': 2}"], 1),
    ],
)
def test_edges_that_a_list_says_again_are_counted(tmp_path, caplog, lines, lost):
    (tmp_path / "g.edgelist").write_text("\n".join(lines))
    raw = read_networkx([tmp_path / "g.edgelist"], None, directed=False, origin="mine")
    assert len(raw.edges) == 2 * len({frozenset(line.split()[:2]) for line in lines if line and line[0] != "#"})
    assert ([f"{lost} of {len(lines)} lines" in record.getMessage() for record in caplog.records] == [True]) == bool(
        lost
    )


def test_a_node_alone_in_a_list_of_edges_is_refused(tmp_path):
    (tmp_path / "g.edgelist").write_text("# nodes\na b\nc\n")
    with pytest.raises(BadInput, match=r"g\.edgelist, line 3"):
        read_networkx([tmp_path / "g.edgelist"], None, directed=False, origin="mine")
