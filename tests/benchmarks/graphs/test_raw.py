"""Raw graphs: the number of edges listed once, against a comparison of all pairs of edges."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphbench.benchmarks import Graphs
from graphbench.benchmarks.graphs.inspection import count_one_way
from graphbench.benchmarks.graphs.readers.objects import raw_from_objects


def drawn(generator, count, both):
    """Return random graphs with loops and repeated edges; `both` lists every edge of the last in both directions."""
    graphs = []
    for number in range(count):
        nodes = int(generator.integers(2, 8))
        edges = np.sort(generator.integers(0, nodes, (2, int(generator.integers(0, 6)))), axis=0)
        if both and number == count - 1:
            edges = np.concatenate([edges, edges[::-1]], axis=1)
        graphs.append(Data(edge_index=torch.from_numpy(edges), num_nodes=nodes, y=torch.tensor([float(number)])))
    return graphs


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_edges_that_go_one_way_are_those_without_a_reverse_one(seed, both):
    generator = np.random.default_rng(seed)
    graphs = drawn(generator, int(generator.integers(1, 5)), both)
    raw = raw_from_objects(graphs, "mine")
    edges = [(g, i, j) for g, one in enumerate(graphs) for i, j in one.edge_index.T.tolist()]
    for most in (1, 2, 5, 1_000):
        first = [(g, i, j) for g, i, j in edges[:most] if i != j]
        expected = 0 if any((g, j, i) in edges for g, i, j in first) else len(first)
        assert count_one_way(raw, most) == expected


def test_numbers_of_edges_sort_like_their_rows():
    graphs = drawn(np.random.default_rng(3), 30, both=True)
    raw = raw_from_objects(graphs, "mine")
    rows = [(g, i, j) for g, one in enumerate(graphs) for i, j in one.edge_index.T.tolist()]
    expected = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    assert np.array_equal(np.unique(raw.numbered(raw.edges), return_inverse=True)[1], expected)


@pytest.mark.parametrize(
    ("options", "told"), [({}, True), ({"directed": True}, False), ({"to_undirected": True}, False)]
)
def test_the_table_says_that_edges_are_listed_once(options, told, caplog, tmp_path):
    caplog.set_level("INFO")
    ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    graphs = [Data(x=torch.ones(3, 1), edge_index=ring, y=torch.tensor([float(number)])) for number in range(20)]
    data = Graphs(graphs, root=tmp_path, **options)
    data.prepare_data()
    assert ("listed once" in caplog.text) == told
