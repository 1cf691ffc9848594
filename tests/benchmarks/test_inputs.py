"""New inputs: labels in the columns of tables, and graphs held in Python."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphbench.benchmarks import CSL, Graphs, ListOps, Molecules, Solids
from graphbench.benchmarks.inputs import is_graph, read_graphs
from graphbench.contracts import BenchmarkSpec, Features
from graphbench.errors import BadInput


def labels(data, file, text, column=None):
    file.write_text(text)
    (part,) = data.read_labelled(str(file), column)
    y = part.table.columns["y"].numpy()
    return [y[number].tolist() for number in range(len(y))], part.problems


def test_texts_have_classes_by_number(tmp_path):
    data = ListOps(root=str(tmp_path))
    text = "text,class\n[MAX 1 2 ],2\n[MIN 3 4 ],\n[MED 3 4 5 ],4.0\n[SM 1 ],12\n"
    y, problems = labels(data, tmp_path / "t.csv", text, "text")
    assert y[:3] == [[2], [-1], [4]]
    assert list(problems) == [3]
    assert "12" in problems[3]


def molecules(tmp_path, target, **options):
    (tmp_path / "own.csv").write_text("smiles\n")
    return Molecules(str(tmp_path / "own.csv"), target, root=str(tmp_path), **options)


@pytest.mark.parametrize("word", ["", "NaN", "n/a", "none", "NULL"])
def test_words_for_a_missing_number(tmp_path, word):
    y, problems = labels(molecules(tmp_path, "y"), tmp_path / "f.csv", f"smiles,Y\nCC,{word}\nCO,1e3\n")
    assert np.isnan(y[0][0])
    assert y[1] == [1000.0]
    assert not problems


def test_a_class_may_be_called_none(tmp_path):
    data = molecules(tmp_path, "y", task="classification", classes=["none", "some"])
    assert labels(data, tmp_path / "f.csv", "smiles,y\nCC,none\nCO,some\nCN,\n")[0] == [[0], [1], [-1]]


def test_some_of_several_labels(tmp_path):
    data = molecules(tmp_path, ["hot", "cold"], task="multilabel")
    y, problems = labels(data, tmp_path / "f.csv", "smiles,hot,cold\nCC,true,\nCO,0,2\nCN,,1\n")
    assert y[0][0] == 1
    assert np.isnan(y[0][1])
    assert y[2][1] == 1
    assert list(problems) == [1]


def test_a_row_that_is_no_molecule_keeps_its_own_reason(tmp_path):
    _, problems = labels(molecules(tmp_path, "y"), tmp_path / "f.csv", "smiles,y\nCC,1\nC(,x\n")
    assert "RDKit" in problems[1]


def test_a_computed_target_needs_no_column(tmp_path):
    from graphbench.benchmarks.molecules.chemistry.properties import combine_terms
    from graphbench.benchmarks.molecules.chemistry.reading import Recipe, read_molecules

    y, _ = labels(molecules(tmp_path, "penalized_logp"), tmp_path / "f.csv", "smiles\nCCO\nc1ccccc1C\n")
    expected = combine_terms(read_molecules(["CCO", "c1ccccc1C"], Recipe("ogb", "smallest_rings"), num_workers=0).terms)
    assert np.ravel(y) == pytest.approx(np.ravel(expected), rel=1e-6)


def test_numbers_with_commas_between_commas_are_no_numbers(tmp_path):
    _, problems = labels(molecules(tmp_path, "y"), tmp_path / "f.csv", 'smiles,y\nCC,"1,5"\n')
    assert list(problems) == [0]
    y, problems = labels(molecules(tmp_path, "y"), tmp_path / "f.csv", "smiles;y\nCC;1,5\n")
    assert (y, problems) == ([[1.5]], {})


def test_a_missing_column_is_named(tmp_path):
    with pytest.raises(BadInput, match="'solubility'"):
        labels(molecules(tmp_path, "solubility"), tmp_path / "f.csv", "smiles,solubilty\nCC,1\n")


def test_standard_input_is_no_source_of_own_graphs(tmp_path):
    from own_graphs import make_graphs

    with pytest.raises(BadInput, match="standard input"):
        Graphs(make_graphs(10), target="y", root=str(tmp_path)).read_labelled("-")


EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])


def spec(node=Features(), edge=Features(), coordinates=0):  # noqa: B008 - frozen dataclass
    return BenchmarkSpec(
        name="Mine",
        task="graph-regression",
        node=node,
        edge=edge,
        metric="MAE",
        higher_is_better=False,
        loss="L1",
        coordinates=coordinates,
        max_nodes=2,
    )


def test_real_numbers_are_dense_features_and_other_fields_stay_behind():
    data = Data(x=torch.rand(3, 2), edge_index=EDGES, edge_attr=torch.rand(3), pos=torch.rand(3, 3), y=torch.ones(1))
    part = next(read_graphs([data], spec(Features(dense=2), Features(dense=1), coordinates=3), 10))
    assert set(part.table.columns) == {"x_dense", "edge_index", "edge_dense", "pos"}
    assert torch.equal(part.table.columns["x_dense"], data.x)
    assert part.table.columns["edge_dense"].shape == (3, 1)
    assert torch.equal(part.table.batch([0]).edge_index, EDGES)


def test_an_undirected_edge_counts_twice():
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, {n: [n] for n in graph}, "x")
    part = next(read_graphs([graph, graph.to_directed()], spec(Features((3,))), 10))
    assert part.table.num_edges.tolist() == [4, 4]
    assert part.table.columns["x"][:, 0].tolist() == [0, 1, 2, 0, 1, 2]


def test_a_graph_without_edges_needs_no_features_of_edges():
    wanted = spec(Features((3,)), Features((4, 4), dense=2))
    alone = nx.Graph()
    alone.add_node("a", x=[2])
    joined = Data(x=torch.tensor([[1]] * 3), edge_index=EDGES, edge_attr=torch.ones(3, 2), edge_dense=torch.rand(3, 2))
    without = Data(x=torch.tensor([[0]]), edge_attr=torch.empty(0, 2), edge_dense=None)
    (part,) = read_graphs([alone, joined, without], wanted, 10)
    assert not part.problems
    batch = part.table.batch([0, 1, 2])
    assert batch.ptr.tolist() == [0, 1, 4, 5]
    assert torch.equal(batch.edge_index, EDGES + 1)
    assert torch.equal(batch.edge_attr, torch.ones(3, 2, dtype=torch.int64))
    assert torch.equal(batch.edge_dense, joined.edge_dense)


def test_parts_and_problems():
    good, torn = Data(x=torch.tensor([[1]] * 3), edge_index=EDGES), Data(x=torch.tensor([1]), edge_index=EDGES)
    cases = {
        "has an edge to a node that it does not have": torn,
        "no field 'x'": Data(num_nodes=3, edge_index=EDGES),
        "'x' has 2 rows instead of 3": Data(num_nodes=3, x=torch.tensor([[1]] * 2), edge_index=EDGES),
        "not real numbers": Data(x=torch.tensor([[0.5]] * 3), edge_index=EDGES),
        "has a value outside 0 .. 1 in x": Data(x=torch.tensor([[2]] * 3), edge_index=EDGES),
        "x must have one row of 1 numbers per node": Data(x=torch.tensor([[1, 1]] * 3), edge_index=EDGES),
    }
    parts = list(read_graphs([good, *cases.values(), good], spec(Features((2,))), 3))
    assert [len(part.frame) for part in parts] == [3, 3, 2]
    told = [why for part in parts for _, why in sorted(part.problems.items())]
    for why, expected in zip(told, cases, strict=True):
        assert expected in why
    assert [part.rows for part in parts] == [[0], [], [1]]


class Altering(CSL):
    takes_graphs = False


def test_a_benchmark_that_alters_its_graphs_takes_none_from_outside():
    with pytest.raises(BadInput, match="CSL cannot take graphs from Python"):
        Altering().read_objects([Data()])


def test_what_is_no_graph_is_refused():
    assert [is_graph(thing) for thing in (nx.Graph(), Data(), "CCO")] == [True, True, False]
    with pytest.raises(BadInput, match="input 1 is of type str"):
        next(read_graphs([Data(), "CCO"], spec(), 10))
    for benchmark, expected in ((ListOps(), "expected strings"), (Solids(), "expected arrays or tensors")):
        with pytest.raises(BadInput, match=f"input 0 is of type Data; {expected}"):
            next(benchmark.read_objects([Data()]))
    assert len(next(CSL().read_objects([Data(x=torch.zeros(3, 1), edge_index=EDGES)])).frame) == 1
