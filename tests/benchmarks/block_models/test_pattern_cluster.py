"""PATTERN and CLUSTER: closed-form expectations of the block model, dependence on the seed only, and PyG's files."""

import hashlib
import json
import zipfile
from collections import Counter
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from torch_geometric.datasets import GNNBenchmarkDataset

from graphbench.benchmarks.block_models.pattern_cluster import CLUSTER, PATTERN
from graphbench.benchmarks.block_models.sampling import (
    Chunk,
    sample_cluster_graphs,
    sample_pattern_graphs,
    sample_patterns,
)
from graphbench.cli import main
from graphbench.data import download
from graphbench.data import worker_pool as pool
from graphbench.errors import BadInput, CorruptData, MissingData
from graphbench.testing.benchmarks import BenchmarkContract

CONFIGS = Path(__file__).parents[3] / "plugins" / "baselines" / "configs" / "gps"
GRAPHS = 600
SMALL = (100, 20, 20)
MEAN, MEAN_PAIRS = 19.5, 19.5**2 + (30**2 - 1) / 12 - 19.5  # E[s] and E[s (s - 1)] of s uniform on 5..34


class TestPATTERN(BenchmarkContract):
    complete = True

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path):
        self.store = str(tmp_path)

    def make_benchmark(self):
        return PATTERN(sizes=SMALL, store=self.store)


class TestCLUSTER(BenchmarkContract):
    complete = True

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path):
        self.store = str(tmp_path)

    def make_benchmark(self):
        return CLUSTER(sizes=SMALL, store=self.store)


@pytest.fixture(scope="module")
def patterns():
    return sample_patterns(3)


@pytest.fixture(scope="module")
def pattern_graphs(patterns):
    return sample_pattern_graphs(Chunk((3, 1, 0), GRAPHS, np.arange(GRAPHS) % 100), patterns)


@pytest.fixture(scope="module")
def cluster_graphs():
    return sample_cluster_graphs(Chunk((3, 1, 0), GRAPHS))


def single(graphs):
    """Yield `(x, y, dense adjacency)` of every graph."""
    nodes, edges = np.cumsum(graphs.num_nodes), np.cumsum(graphs.num_edges)
    for number, (n, e) in enumerate(zip(graphs.num_nodes, graphs.num_edges, strict=True)):
        ends = graphs.edge_index[edges[number] - e : edges[number]].astype(int)
        adjacency = np.zeros((n, n), dtype=int)
        np.add.at(adjacency, (ends[:, 0], ends[:, 1]), 1)
        rows = slice(nodes[number] - n, nodes[number])
        yield graphs.x[rows, 0], graphs.y[rows, 0], adjacency


def assert_mean(values, expected):
    """Check that the mean of independent values is within four standard errors of its expectation."""
    values = np.asarray(values, dtype=float)
    assert abs(values.mean() - expected) < 4 * values.std() / len(values) ** 0.5


def assert_share(hits, trials, chance):
    """Check that the share of hits is within four standard errors of the chance."""
    assert abs(hits / trials - chance) < 4 * (chance * (1 - chance) / trials) ** 0.5


@pytest.mark.parametrize("kind", ["pattern_graphs", "cluster_graphs"])
def test_edges_are_simple_symmetric_and_sorted(kind, request):
    graphs = request.getfixturevalue(kind)
    for _, _, adjacency in single(graphs):
        assert adjacency.max() == 1
        assert (adjacency == adjacency.T).all()
        assert adjacency.trace() == 0
    owner = np.repeat(np.arange(GRAPHS), graphs.num_edges)
    code = (owner * 256 + graphs.edge_index[:, 0]) * 256 + graphs.edge_index[:, 1]
    assert (np.diff(code) > 0).all()


@pytest.mark.parametrize("kind", ["pattern_graphs", "cluster_graphs"])
def test_nodes_are_in_random_order(kind, request):
    """The position of a node is independent of its class: the mean relative position of each class is one half."""
    graphs = request.getfixturevalue(kind)
    places = {label: [] for label in np.unique(graphs.y)}
    for _, y, _ in single(graphs):
        for label, found in places.items():
            found.append(((np.flatnonzero(y == label) + 0.5) / len(y)).mean())
    for found in places.values():
        assert_mean(found, 0.5)


def test_cluster_sizes_and_edges_meet_their_expectations(cluster_graphs):
    assert_mean(cluster_graphs.num_nodes, 6 * MEAN)
    assert_mean(cluster_graphs.num_edges, 6 * MEAN_PAIRS * 0.55 + 30 * MEAN**2 * 0.25)
    sizes = np.concatenate([np.bincount(y, minlength=6) for _, y, _ in single(cluster_graphs)])
    assert (sizes.min(), sizes.max()) == (5, 34)
    counts = np.bincount(sizes)[5:]
    assert ((counts - len(sizes) / 30) ** 2).sum() / (len(sizes) / 30) < 65  # chi-square, 29 degrees: p < 1e-4


def test_cluster_edges_have_their_chances(cluster_graphs):
    hits, trials = np.zeros(2), np.zeros(2)
    for _, y, adjacency in single(cluster_graphs):
        inside = y[:, None] == y[None]
        np.fill_diagonal(adjacency, -1)
        for number, mask in enumerate((inside, ~inside)):
            hits[number] += (adjacency[mask] == 1).sum() / 2
            trials[number] += (adjacency[mask] >= 0).sum() / 2
    assert_share(hits[0], trials[0], 0.55)
    assert_share(hits[1], trials[1], 0.25)


def test_one_node_of_each_cluster_tells_it(cluster_graphs):
    for x, y, _ in single(cluster_graphs):
        assert sorted(x[x > 0]) == [1, 2, 3, 4, 5, 6]
        assert (x[x > 0] == y[x > 0] + 1).all()


def test_patterns_have_their_sizes_and_chances():
    patterns = sample_patterns(5, count=2000)
    assert (patterns.sizes.min(), patterns.sizes.max()) == (5, 34)
    assert_mean(patterns.sizes, MEAN)
    assert_share(patterns.num_edges.sum(), (patterns.sizes * (patterns.sizes - 1) / 2).sum(), 0.5)
    assert_share((patterns.colours == 1).sum(), len(patterns.colours), 1 / 3)


def test_pattern_graphs_meet_their_expectations(patterns, pattern_graphs):
    which = np.arange(GRAPHS) % 100
    assert_mean(pattern_graphs.num_nodes - patterns.sizes[which], 5 * MEAN)
    own = 2 * patterns.num_edges[which]
    expected = 5 * MEAN_PAIRS * 0.5 + 20 * MEAN**2 * 0.35 + own + 2 * 5 * MEAN * patterns.sizes[which] * 0.5
    assert_mean(pattern_graphs.num_edges - expected, 0)


def test_every_graph_holds_its_pattern_unchanged(patterns, pattern_graphs):
    """Nodes of class 1 have the pattern's colours and inner degrees, in any order."""
    nodes, edges = np.cumsum(patterns.sizes), np.cumsum(patterns.num_edges)
    hits = trials = 0
    for number, (x, y, adjacency) in enumerate(single(pattern_graphs)):
        p = number % 100
        ends = patterns.edges[edges[p] - patterns.num_edges[p] : edges[p]].reshape(-1)
        degrees = np.bincount(ends, minlength=patterns.sizes[p])
        truth = Counter(zip(patterns.colours[nodes[p] - patterns.sizes[p] : nodes[p]], degrees, strict=True))
        hidden = y == 1
        assert Counter(zip(x[hidden], adjacency[hidden][:, hidden].sum(1), strict=True)) == truth
        hits, trials = hits + adjacency[hidden][:, ~hidden].sum(), trials + hidden.sum() * (~hidden).sum()
    assert_share(hits, trials, 0.5)


def test_splits_share_patterns_evenly():
    benchmark = PATTERN()
    for size in (10_000, 2_000):
        used = np.concatenate([benchmark.patterns(start, size) for start in range(0, size, 100)])
        assert (np.bincount(used) == size // 100).all()
        assert len(np.bincount(used)) == 100


@pytest.mark.parametrize("kind", [PATTERN, CLUSTER])
def test_graphs_depend_on_the_seed_alone(kind, tmp_path, monkeypatch):
    """One and two processes give the same tables; another seed gives different ones."""
    monkeypatch.setattr(pool, "available_cores", lambda: 2)
    first = kind(sizes=(250, 30, 30), store=str(tmp_path / "two"))
    first.prepare_data()
    monkeypatch.setattr(pool, "available_cores", lambda: 1)
    second = kind(sizes=(250, 30, 30), store=str(tmp_path / "one"))
    second.prepare_data()
    other = kind(sizes=(250, 30, 30), graph_seed=1, store=str(tmp_path / "one"))
    other.prepare_data()
    for split, table in first.tables.items():
        same, different = second.tables[split], other.tables[split]
        assert all(torch.equal(column, same.columns[name]) for name, column in table.columns.items())
        assert not torch.equal(table.num_nodes, different.num_nodes)
    assert not torch.equal(first.tables["val"].num_nodes, first.tables["test"].num_nodes)


def test_drawing_is_pinned(patterns):
    """`data_version` must change if the same seed draws other graphs."""

    def digest(graphs):
        parts = (graphs.x, graphs.y, graphs.edge_index)
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]

    assert digest(sample_pattern_graphs(Chunk((0, 1, 0), 5, np.arange(5)), patterns)) == "958f635fe9aeb4ef"
    assert digest(sample_cluster_graphs(Chunk((0, 1, 0), 5))) == "e2929a1ba816828f"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "dgl"}, "source must be one of generated, pyg, but got 'dgl'"),
        ({"source": "pyg", "graph_seed": 1}, "has its own graphs"),
        ({"source": "pyg", "sizes": SMALL}, "has its own graphs"),
        ({"sizes": (10, 0, 10)}, r"three numbers of at least 1 .*\(10, 0, 10\)"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        PATTERN(**options)


def published(vocabulary, classes, seed):
    """Return three splits in the layout of PyG's raw file."""
    generator = torch.Generator().manual_seed(seed)

    def graph(n):
        ends = (torch.rand(n, n, generator=generator) < 0.3).nonzero().t().contiguous()
        x = torch.eye(vocabulary)[torch.randint(vocabulary, (n,), generator=generator)]
        return {"x": x, "edge_index": ends, "y": torch.randint(classes, (n,), generator=generator)}

    return [[graph(5 + number) for number in range(size)] for size in (4, 3, 2)]


def put_archive(folder, file, content):
    folder.mkdir(parents=True)
    torch.save(content, folder / file)
    with zipfile.ZipFile(folder / f"{Path(file).stem}.zip", "w") as archive:
        archive.write(folder / file, file)
    (folder / file).unlink()


@pytest.mark.parametrize("kind", [PATTERN, CLUSTER])
def test_published_file_gives_pygs_graphs(kind, tmp_path, monkeypatch):
    spec = kind.spec
    content = published(spec.node.vocabularies[0], spec.num_classes, seed=1)
    put_archive(tmp_path / spec.name / "raw", f"{spec.name}_v2.pt", content)
    monkeypatch.setattr(kind, "spec", spec.__class__(**(vars(spec) | {"split_sizes": (4, 3, 2)})))
    benchmark = kind(source="pyg", root=str(tmp_path))
    assert (benchmark.spec.mean_nodes, benchmark.spec.mean_edges) == kind.published_sizes
    assert kind.published_sizes != (spec.mean_nodes, spec.mean_edges)
    benchmark.setup()
    for split in ("train", "val", "test"):
        theirs = GNNBenchmarkDataset(str(tmp_path), spec.name, split)
        ours = benchmark.tables[split]
        assert len(ours) == len(theirs)
        for number, graph in enumerate(theirs):
            batch = ours.batch([number])
            assert torch.equal(batch.x[:, 0], graph.x.argmax(1))
            assert torch.equal(batch.edge_index, graph.edge_index)
            assert torch.equal(batch.y[:, 0], graph.y)
    assert not benchmark.spec.offline
    assert kind.spec.offline


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.ones(5, 3)}, "x is not one-hot"),
        ({"x": torch.rand(5)}, "instead of one of 3 values"),
        ({"y": torch.full((5,), 300)}, "y holds 300 to 300"),
        ({"edge_index": torch.tensor([[0], [256]])}, "nodes that do not exist"),
        ({"edge_index": torch.tensor([[0], [-1]])}, "nodes that do not exist"),
        ({"y": None}, "train graphs 0 to 0"),
    ],
)
def test_other_content_is_told(change, message, tmp_path):
    content = published(3, 2, seed=1)
    content[0] = [content[0][0] | change]
    put_archive(tmp_path / "PATTERN" / "raw", "PATTERN_v2.pt", content)
    with pytest.raises(CorruptData, match=message):
        PATTERN(source="pyg", root=str(tmp_path)).prepare_data()
    assert not list((tmp_path / "store").glob("table-*"))


def test_no_network_names_file_address_folder_and_the_way_out(tmp_path, monkeypatch):
    def offline(*args, **kwargs):
        raise URLError("no route to host")

    monkeypatch.setattr(download, "open_url", offline)
    with pytest.raises(MissingData, match=r"CLUSTER_v2\.zip from https://.*\n.*source=generated") as told:
        CLUSTER(source="pyg", root=str(tmp_path)).prepare_data()
    assert str(tmp_path / "CLUSTER" / "raw") in str(told.value)


@pytest.mark.parametrize(("name", "parameters"), [("pattern", 337_201), ("cluster", 502_054)])
def test_published_settings_have_the_published_parameters(name, parameters, capsys):
    assert main(["params", "--config", str(CONFIGS / f"{name}.yaml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["parameters"] == parameters


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PATTERN, CLUSTER])
def test_full_sets_meet_the_published_sizes(kind, tmp_path):
    """Edges of PATTERN vary with its 100 patterns: their number has a standard deviation of 100 (1.7%)."""
    benchmark = kind(store=str(tmp_path))
    benchmark.prepare_data()
    tables, spec = benchmark.tables.values(), kind.spec
    assert tuple(map(len, tables)) == spec.split_sizes
    graphs = sum(spec.split_sizes)
    assert sum(int(t.num_nodes.sum()) for t in tables) / graphs == pytest.approx(spec.mean_nodes, rel=0.03)
    assert sum(int(t.num_edges.sum()) for t in tables) / graphs == pytest.approx(spec.mean_edges, rel=0.05)
    size = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert size / 1e6 == pytest.approx(spec.disk_mb, rel=0.01)
