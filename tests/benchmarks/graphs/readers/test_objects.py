"""Saved PyG objects: after transforms, with sparse parts, with types, batched, and without edges."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch
import torch_geometric.transforms as T
from own_graphs import make_graphs
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.utils import to_torch_csr_tensor

from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.benchmarks.graphs.readers.objects import raw_from_objects
from graphbench.benchmarks.graphs.readers.saved import load_saved
from graphbench.errors import BadInput


def path_graph(edge_attr=True):
    """Return a directed graph, so that a matrix and its transpose differ."""
    edges = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 4, 4]])
    graph = Data(x=torch.randn(6, 3), edge_index=edges, y=torch.tensor([1]), num_nodes=6)
    if edge_attr:
        graph.edge_attr = torch.randn(5, 2)
    return graph


def read(content, path):
    torch.save(content, path)
    return raw_from_objects(load_saved(path), path.name)


def with_weights(graph):
    graph.edge_weight = torch.arange(1.0, 6.0)
    return graph


def cached(graph):
    graph.is_node_attr("x"), graph.is_edge_attr("edge_attr")  # PyG caches the answers
    return graph


TRANSFORMED = {
    "undirected": lambda graph: T.ToUndirected()(graph),
    "cached": cached,
    "self loops": lambda graph: T.AddSelfLoops(attr="edge_attr", fill_value=1.0)(graph),
    "positions": lambda graph: T.AddRandomWalkPE(2)(graph),
    "virtual node": lambda graph: T.VirtualNode()(graph),
    "ego nets": lambda graph: T.RootedEgoNets(1)(graph),
    "node split": lambda graph: T.RandomNodeSplit(num_val=1, num_test=1)(graph),
    "largest part": lambda graph: T.LargestConnectedComponents()(graph),
}


def test_batches_in_a_list_are_not_taken_for_graphs():
    graphs = make_graphs(6)
    batches = [Batch.from_data_list(graphs[:4]), Batch.from_data_list(graphs[4:])]
    for given in (
        batches,
        dict(zip(("train", "test"), ([batches[0]], batches[1:]), strict=True)),
        DataLoader(graphs, 4),
    ):
        with pytest.raises(BadInput, match=r"graph 0 is a batch of 4 graphs.*to_data_list\(\)"):
            raw_from_objects(given, "mine")
    one = [Batch.from_data_list([graph]) for graph in graphs]
    assert raw_from_objects(one, "mine").num_nodes.tolist() == [graph.num_nodes for graph in graphs]


@pytest.mark.parametrize("name", TRANSFORMED)
def test_what_transforms_return_is_read_from_a_file(tmp_path, name):
    graphs = [TRANSFORMED[name](path_graph()) for _ in range(3)]
    raw = read(graphs, tmp_path / "mine.pt")
    assert (raw.edges == torch.cat([graph.edge_index for graph in graphs], 1).t().numpy()).all()
    assert np.array_equal(raw.columns["node"]["x"], torch.cat([graph.x for graph in graphs]).numpy())
    assert np.array_equal(raw.columns["edge"]["edge_attr"], torch.cat([graph.edge_attr for graph in graphs]).numpy())


def test_batches_and_edge_indices_are_read_from_a_file(tmp_path):
    graphs = make_graphs(5)
    raw = read(Batch.from_data_list(graphs), tmp_path / "batch.pt")
    assert len(raw) == 5
    assert np.array_equal(raw.columns["node"]["x"], torch.cat([graph.x for graph in graphs]).numpy())
    graph = path_graph()
    graph.edge_index = EdgeIndex(graph.edge_index, sparse_size=(6, 6))
    assert np.array_equal(read([graph], tmp_path / "index.pt").edges, graph.edge_index.t().numpy())


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.parametrize("weights", ["none", "edge_weight", "edge_attr"])
def test_edges_in_adj_t_are_those_of_edge_index(tmp_path, layout, weights):
    graph = with_weights(path_graph()) if weights == "edge_weight" else path_graph()
    attr = None if weights == "none" else weights
    sparse = T.ToSparseTensor(attr=attr, layout=layout)(graph.clone())
    assert "edge_index" not in sparse
    raw = read([sparse], tmp_path / "mine.pt")
    told = {tuple(edge): row for edge, row in zip(raw.edges.tolist(), range(5), strict=True)}
    assert sorted(told) == sorted(map(tuple, graph.edge_index.t().tolist()))
    if attr is not None:
        order = [told[tuple(edge)] for edge in graph.edge_index.t().tolist()]
        assert np.array_equal(raw.columns["edge"][attr][order], graph[attr].numpy())


@pytest.mark.parametrize("kind", ["coo", "csr", "scipy"])
def test_sparse_features_are_read_as_dense_ones(tmp_path, kind):
    graphs = []
    for number in range(20):
        words = torch.eye(6, 9) * (number + 1)
        sparse = {"coo": words.to_sparse(), "csr": words.to_sparse_csr(), "scipy": scipy.sparse.csr_matrix(words)}[kind]
        edges = path_graph().edge_index
        graphs.append({"x": sparse, "edge_index": edges, "num_nodes": 6, "y": torch.tensor([number % 2])})
    data = Graphs(graphs, root=str(tmp_path))
    data.setup()
    assert data.spec.node.dense == 9
    row = int(data._rows["test"][0])
    assert torch.equal(data.tables["test"].batch([0]).x_dense, torch.eye(6, 9) * (row + 1))


@pytest.mark.parametrize("shape", [None, (0,), (0, 2), (2, 0)])
def test_graphs_without_edges_need_no_columns_of_edges(tmp_path, shape):
    graphs = make_graphs()
    for number in (0, 7, 39):
        graphs[number].edge_index = torch.empty(2, 0, dtype=torch.int64)
        graphs[number].edge_attr = None if shape is None else torch.empty(shape)
    data = Graphs(graphs, root=str(tmp_path), split="random")
    data.setup()
    assert data.spec.edge.dense == 3
    edges = sum(data.tables[split].columns["edge_dense"].shape[0] for split in ("train", "val", "test"))
    assert edges == sum(graph.edge_index.shape[1] for graph in graphs)
    graphs[3].edge_attr = None  # which has edges
    with pytest.raises(BadInput, match="graph 3 has no edge_attr"):
        Graphs(graphs, root=str(tmp_path), split="random")


def mixed(number):
    graph = HeteroData()
    graph["author"].x, graph["paper"].x = torch.randn(3, 2), torch.randn(2 + number % 2, 2)
    graph["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 2], [0, 1, 1]])
    graph["paper", "cites", "paper"].edge_index = torch.tensor([[0], [1]])
    graph.y = torch.tensor([number % 2])
    return graph


def test_types_of_nodes_and_edges_are_features_by_name(tmp_path):
    graphs = [mixed(number).to_homogeneous() for number in range(20)]
    torch.save(graphs, tmp_path / "mine.pt")
    for source in (graphs, str(tmp_path / "mine.pt")):
        data = Graphs(source, root=str(tmp_path / "data"))
        data.setup()
        assert data.spec.node.names == ("node_type", "x_0", "x_1")
        assert data.spec.edge.names == ("edge_type",)
        row = int(data._rows["test"][0])
        batch = data.tables["test"].batch([0])
        words = [data.value_words("node_type", int(value)) for value in batch.x[:, 0]]
        assert words == ["node_type author"] * 3 + ["node_type paper"] * (2 + row % 2)
        words = [data.value_words("edge_type", int(value)) for value in batch.edge_attr[:, 0]]
        assert words == ["edge_type author writes paper"] * 3 + ["edge_type paper cites paper"]
    alone = Graphs(graphs, root=str(tmp_path / "data"), node_features=["x"], edge_features=[])
    assert alone.spec.node.names == ("x_0", "x_1")
    with pytest.raises(BadInput, match="to_homogeneous"):
        Graphs([mixed(0)], root=str(tmp_path / "data"))


def test_matrices_that_are_no_adjacency_are_refused():
    with pytest.raises(BadInput, match=r"adj_t must be square, but its shape is \[2, 3\]"):
        raw_from_objects([{"adj_t": torch.eye(2, 3).to_sparse(), "num_nodes": 3}], "mine")
    with pytest.raises(BadInput, match="adj_t is a Tensor; expected a sparse matrix"):
        raw_from_objects([{"adj_t": torch.eye(2), "num_nodes": 2}], "mine")
    both = {"adj_t": to_torch_csr_tensor(torch.tensor([[0], [1]]), size=(2, 2)), "num_nodes": 2}
    assert raw_from_objects([both], "mine").edges.tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("name", "value"), [("x", torch.ones(6, 2, dtype=torch.cfloat)), ("edge_attr", [[1.0]] * 4 + [[]])]
)
def test_features_that_are_neither_numbers_nor_text_are_refused(name, value):
    graphs = [path_graph(edge_attr=False) for _ in range(20)]
    for number, graph in enumerate(graphs):
        graph.y = torch.tensor([number / 7])
    graphs[3][name] = value
    with pytest.raises(BadInput, match=f"graph 3: {name} "):
        Graphs(graphs)


def test_columns_of_a_graph_that_nothing_reads_are_named():
    graphs = [path_graph() for _ in range(20)]
    for number, graph in enumerate(graphs):
        graph.y, graph.temperature, graph.recipe = torch.randn(1), float(number), {"pressure": 1.0}
    left_out = [name for what, name, _ in Graphs(graphs, target="y").summary() if what == "  left out"]
    assert left_out == ["temperature", "recipe"]


def test_attributes_of_networkx_graphs_that_are_no_numbers_are_named():
    graphs = []
    for number in range(20):
        graph = nx.path_graph(4)
        graph.graph |= {"y": float(number) / 7, "phase": 1j}
        graphs.append(graph)
    assert [name for what, name, _ in Graphs(graphs, target="y").summary() if what == "  left out"] == ["phase"]
