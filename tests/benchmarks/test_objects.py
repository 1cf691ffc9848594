"""Graphs from Python become the fields that a specification names, or say what is missing."""

from __future__ import annotations

import networkx as nx
import pytest
import torch
from torch_geometric.data import Data

from graphbench.benchmarks import CSL, ListOps, Solids
from graphbench.benchmarks.objects import is_graph, read_graphs
from graphbench.contracts import BenchmarkSpec, Features
from graphbench.errors import BadInput

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
