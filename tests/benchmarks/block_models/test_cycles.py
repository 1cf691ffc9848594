"""CYCLES against networkx: its cycles, and that no other count separates the classes."""

import networkx as nx
import numpy as np
import pytest
import torch

from graphbench.benchmarks.block_models.cycles import CYCLES, cycle_graphs
from graphbench.errors import BadInput
from graphbench.testing.benchmarks import BenchmarkContract


class TestCYCLES(BenchmarkContract):
    complete = True

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path):
        self.store = str(tmp_path)

    def make_benchmark(self):
        return CYCLES(sizes=(60, 20, 20), store=self.store)


@pytest.fixture(scope="module")
def table():
    return cycle_graphs(3000, 7)


def test_label_says_whether_there_is_a_cycle_of_six(table):
    for number in range(300):
        batch = table.batch([number])
        edges = batch.edge_index.t().tolist()
        graph = nx.Graph(edges)
        graph.add_nodes_from(range(batch.num_nodes))
        assert len(edges) == 2 * graph.number_of_edges()
        assert edges == sorted(edges)
        cycles = sorted(map(len, nx.cycle_basis(graph)))
        assert len(cycles) == 2
        assert set(cycles) <= {3, 4, 5, 6, 7, 8, 9}
        assert cycles.count(6) == int(batch.y)
        with_cycle = [c for c in nx.connected_components(graph) if graph.subgraph(c).number_of_edges() == len(c)]
        assert len(with_cycle) == 2
        assert 4 <= nx.number_connected_components(graph) - 2 <= 10


@pytest.mark.slow
def test_classes_differ_in_nothing_that_can_be_counted(table):
    """Nodes, edges and nodes of each degree have equal means in both classes, up to four standard errors."""
    y = table.columns["y"][:, 0].numpy().astype(bool)
    assert y.sum() == 1500
    degrees = np.zeros((len(table), 4))
    for number in range(len(table)):
        batch = table.batch([number])
        counts = torch.bincount(torch.bincount(batch.edge_index[0], minlength=batch.num_nodes), minlength=4)
        degrees[number] = counts[:4]
    for values in (table.num_nodes.numpy(), table.num_edges.numpy(), *degrees.T):
        first, second = values[y].astype(float), values[~y].astype(float)
        error = (first.var() / len(first) + second.var() / len(second)) ** 0.5
        assert abs(first.mean() - second.mean()) < 4 * error


def test_sizes_are_those_of_the_specification(table):
    assert (int(table.num_nodes.min()), int(table.num_nodes.max())) == (37, 65)
    assert float(table.num_nodes.double().mean()) == pytest.approx(CYCLES.spec.mean_nodes, abs=0.6)
    assert float(table.num_edges.double().mean()) == pytest.approx(CYCLES.spec.mean_edges, abs=1.2)


def test_graphs_follow_the_seed(tmp_path):
    same = [CYCLES(sizes=(20, 5, 5), store=str(tmp_path / name)) for name in "ab"]
    other = CYCLES(graph_seed=1, sizes=(20, 5, 5), store=str(tmp_path / "a"))
    for benchmark in (*same, other):
        benchmark.setup()
    edges = [benchmark.tables["train"].columns["edge_index"] for benchmark in (*same, other)]
    assert torch.equal(edges[0], edges[1])
    assert not torch.equal(edges[0], edges[2])


def test_empty_splits_are_refused():
    with pytest.raises(BadInput, match="at least 1"):
        CYCLES(sizes=(10, 10, 0))


@pytest.mark.slow
def test_full_set_has_the_published_splits(tmp_path):
    benchmark = CYCLES(store=str(tmp_path))
    benchmark.setup()
    assert tuple(len(benchmark.tables[split]) for split in ("train", "val", "test")) == (9_000, 1_000, 10_000)
    size = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert size / 1e6 == pytest.approx(CYCLES.spec.disk_mb, rel=0.05)
