"""TSP: instances solved here, PyG's published file, and the authors' text files."""

from __future__ import annotations

import hashlib
import json
import zipfile

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from torch_geometric.datasets import GNNBenchmarkDataset
from tours import line_of

from graphbench.benchmarks import TSP
from graphbench.benchmarks.block_models.tsp import (
    NEIGHBOURS,
    Chunk,
    graphs_of,
    near_edges,
    read_tours,
    solve_chunk,
    text_file,
)
from graphbench.cli import main
from graphbench.data import worker_pool as pool
from graphbench.errors import BadInput, CorruptData, MissingData
from graphbench.testing import BenchmarkContract

SMALL = {"sizes": (7, 2, 3), "num_nodes": (5, 30)}


class TestContract(BenchmarkContract):
    complete = True

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.root = str(tmp_path)

    def make_benchmark(self):
        return TSP(root=self.root, batch_size=4, **SMALL)


def by_matrices(points, tour, neighbours):
    """Return edges, distances and classes from dense matrices, as the task was published."""
    n = len(points)
    distances, taken = cdist(points, points), np.zeros((n, n), dtype=int)
    for a, b in zip(tour, np.roll(tour, -1), strict=True):
        taken[a, b] = taken[b, a] = 1
    found = set()
    for i in range(n):
        near = [j for j in np.argsort(distances[i], kind="stable") if j != i][:neighbours]
        found |= {(i, int(j), float(distances[i, j]), int(taken[i, j])) for j in near}
    return found


@pytest.mark.parametrize("n", [4, 12, 40])
def test_edges_lead_to_the_nearest_points_and_tell_the_tour(n):
    random = np.random.default_rng(n)
    points, tour = random.random((n, 2)), random.permutation(n)
    ends, lengths, classes = near_edges(points, tour)
    found = {(int(i), int(j), float(d), int(c)) for (i, j), d, c in zip(ends, lengths, classes, strict=True)}
    expected = by_matrices(points, tour, min(NEIGHBOURS, n - 1))
    assert {(i, j, c) for i, j, _, c in found} == {(i, j, c) for i, j, _, c in expected}
    assert sum(d for _, _, d, _ in found) == pytest.approx(sum(d for _, _, d, _ in expected))
    assert len(ends) == n * min(NEIGHBOURS, n - 1)


def test_generated_tours_close_and_both_directions_agree(tmp_path):
    data = TSP(root=str(tmp_path), **SMALL)
    data.setup()
    for table in data.tables.values():
        for number in range(len(table)):
            batch = table.batch([number])
            n = batch.num_nodes
            matrix = torch.full((n, n), -1, dtype=torch.long)
            matrix[batch.edge_index[0], batch.edge_index[1]] = batch.y[:, 0]
            both = (matrix >= 0) & (matrix.T >= 0)
            assert torch.equal(matrix[both], matrix.T[both])
            taken = ((matrix == 1) | (matrix.T == 1)).sum(1)
            if n <= NEIGHBOURS + 1:
                assert (taken == 2).all()
            source, target = batch.edge_index
            expected = (batch.x_dense[source] - batch.x_dense[target]).norm(dim=1)
            torch.testing.assert_close(batch.edge_dense[:, 0], expected, atol=1e-6, rtol=1e-5)


def test_graphs_depend_on_the_seed_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "available_cores", lambda: 2)
    first = TSP(store=str(tmp_path / "two"), **SMALL)
    first.prepare_data()
    monkeypatch.setattr(pool, "available_cores", lambda: 1)
    second = TSP(store=str(tmp_path / "one"), **SMALL)
    second.prepare_data()
    other = TSP(store=str(tmp_path / "one"), graph_seed=1, **SMALL)
    other.prepare_data()
    for split, table in first.tables.items():
        assert all(torch.equal(column, second.tables[split].columns[name]) for name, column in table.columns.items())
        assert not torch.equal(table.columns["x_dense"][:4], other.tables[split].columns["x_dense"][:4])


def test_drawing_is_pinned():
    """`data_version` must change if the same seed draws other graphs."""
    points = np.concatenate([points for points, _ in solve_chunk(Chunk((0, 1, 0), 3, (5, 8)))])
    assert hashlib.sha256(np.round(points, 12).tobytes()).hexdigest()[:16] == "7251ae00f9d9f7c9"


def test_other_numbers_of_points_have_the_stated_mean_of_edges():
    for fewest, most in ((6, 6), (4, 26), (20, 40), (30, 60)):
        edges = [len(near_edges(np.random.rand(n, 2), np.arange(n))[0]) for n in range(fewest, most + 1)]
        assert TSP(num_nodes=(fewest, most)).spec.mean_edges == pytest.approx(np.mean(edges))


def test_the_full_set_has_the_listed_sizes(tmp_path, monkeypatch):
    """Sizes are drawn before tours are solved, so any order can replace the tours here."""
    monkeypatch.setattr(pool, "available_cores", lambda: 1)
    monkeypatch.setitem(solve_chunk.__globals__, "shortest_tour", lambda points: np.arange(len(points)))
    data, spec = TSP(store=str(tmp_path)), TSP.spec
    data.prepare_data()
    tables, graphs = data.tables.values(), sum(spec.split_sizes)
    assert tuple(map(len, tables)) == spec.split_sizes
    assert sum(int(t.num_nodes.sum()) for t in tables) / graphs == pytest.approx(spec.mean_nodes, abs=0.05)
    assert sum(int(t.num_edges.sum()) for t in tables) / graphs == pytest.approx(spec.mean_edges, abs=0.05)
    size = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert size / 1e6 == pytest.approx(spec.disk_mb, rel=0.01)


@pytest.mark.parametrize("name", ["classic/tsp", "gps/tsp"])
def test_recipes_are_of_the_published_size(name, capsys):
    """The published 97,858 parameters include two logits; a single logit here needs 33 fewer."""
    assert main(["params", "--config", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["parameters"]
    assert found == 97_858 - 33 if name == "classic/tsp" else 90_000 < found < 100_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "dgl"}, "source must be one of generated, pyg, text, but got 'dgl'"),
        ({"source": "pyg", "graph_seed": 1}, "source=pyg has its own graphs"),
        ({"source": "text", "num_nodes": (50, 60)}, "source=text has its own graphs"),
        ({"sizes": (10, 0, 10)}, r"three numbers of at least 1 .*\(10, 0, 10\)"),
        ({"num_nodes": (3, 10)}, r"two ascending numbers of at least 4, got \[3, 10\]"),
        ({"num_nodes": (5, 10, 20)}, r"two ascending numbers of at least 4, got \[5, 10, 20\]"),
        ({"num_nodes": (20, 10)}, r"two ascending numbers of at least 4, got \[20, 10\]"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        TSP(**options)


def published(sizes=(3, 2, 2), width=None):
    """Return three splits in the layout of PyG's raw file; the first graph has more nodes than a byte can index."""
    random = np.random.default_rng(0)

    def graph(n):
        table = graphs_of([(random.random((n, 2)), random.permutation(n))])
        columns = table.columns
        distance = columns["edge_dense"] if width else columns["edge_dense"][:, 0]
        return {
            "x": columns["x_dense"], "edge_index": columns["edge_index"].long().t().contiguous(),
            "edge_attr": distance, "y": columns["y"][:, 0].long(),
        }  # fmt: skip

    return [[graph(300 if number == 0 else 30 + number) for number in range(size)] for size in sizes]


def put_archive(root, content):
    folder = root / "TSP" / "raw"
    folder.mkdir(parents=True)
    torch.save(content, folder / "TSP_v2.pt")
    with zipfile.ZipFile(folder / "TSP_v2.zip", "w") as archive:
        archive.write(folder / "TSP_v2.pt", "TSP_v2.pt")
    (folder / "TSP_v2.pt").unlink()


@pytest.mark.parametrize("width", [None, 1])
def test_published_file_gives_pygs_graphs(width, tmp_path, monkeypatch):
    put_archive(tmp_path, published(width=width))
    monkeypatch.setitem(TSP.__init__.__globals__["_PUBLISHED"], "split_sizes", (3, 2, 2))
    data = TSP(source="pyg", root=str(tmp_path))
    assert (data.spec.mean_nodes, data.spec.mean_edges, data.spec.offline) == (275.4, 6885.0, False)
    data.setup()
    for split in ("train", "val", "test"):
        theirs = GNNBenchmarkDataset(str(tmp_path), "TSP", split)
        assert len(data.tables[split]) == len(theirs)
        for number, graph in enumerate(theirs):
            batch = data.tables[split].batch([number])
            assert torch.equal(batch.x_dense, graph.x)
            assert torch.equal(batch.edge_index, graph.edge_index)
            assert torch.equal(batch.edge_dense[:, 0], graph.edge_attr.reshape(-1))
            assert torch.equal(batch.y[:, 0], graph.y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.ones(300, 3)}, "train graphs 0 to 2 are not what"),
        ({"y": torch.ones(5)}, "graph 0 of these has 7500 edges and 5 rows of y"),
        ({"y": torch.full((7500,), 2)}, "y holds 0 to 2"),
        ({"edge_index": torch.full((2, 7500), 500)}, "nodes that do not exist"),
        ({"edge_attr": None}, "train graphs 0 to 2"),
    ],
)
def test_other_content_is_told(change, message, tmp_path):
    content = published()
    content[0][0] |= change
    put_archive(tmp_path, content)
    with pytest.raises(CorruptData, match=message):
        TSP(source="pyg", root=str(tmp_path)).prepare_data()


@pytest.mark.parametrize("name", ["edge_attr", "y"])
def test_rows_of_another_graph_are_told(name, tmp_path):
    """One graph lacks a row that the next has in excess: rows in between would be shifted."""
    content = published()
    first, second = content[0][1], content[0][2]
    first[name], second[name] = first[name][:-1], torch.cat([first[name][-1:], second[name]])
    put_archive(tmp_path, content)
    with pytest.raises(CorruptData, match=f"graph 1 of these has 775 edges and 774 rows of {name}"):
        TSP(source="pyg", root=str(tmp_path)).prepare_data()


def test_text_files_give_the_published_graphs(tmp_path):
    random = np.random.default_rng(1)
    folder = tmp_path / "TSP" / "raw"
    folder.mkdir(parents=True)
    written = {}
    for split, count in {"train": 3, "val": 1, "test": 2}.items():
        written[split] = [(random.random((28 + k, 2)), random.permutation(28 + k)) for k in range(count)]
        (folder / f"TSP_{split}.txt").write_text("".join(line_of(*one) for one in written[split]))
    data = TSP(source="text", root=str(tmp_path))
    assert data.spec.split_sizes is None
    data.setup()
    for split, instances in written.items():
        assert len(data.tables[split]) == len(instances)
        for number, (points, tour) in enumerate(instances):
            batch = data.tables[split].batch([number])
            found = [*zip(*batch.edge_index.tolist(), batch.y[:, 0].tolist(), strict=True)]
            assert set(found) == {(i, j, c) for i, j, _, c in by_matrices(points, tour, NEIGHBOURS)}
            assert len(found) == NEIGHBOURS * len(points)
    before = data.source_key()
    with (folder / "TSP_val.txt").open("a") as file:
        file.write(line_of(*written["train"][0]))
    assert TSP(source="text", root=str(tmp_path)).source_key() != before


def test_text_files_that_are_not_there_are_told(tmp_path):
    with pytest.raises(MissingData, match=r"TSP_train\.txt"):
        TSP(source="text", root=str(tmp_path)).prepare_data()


def instances(count=3, n=6):
    random = np.random.default_rng(0)
    return [(random.random((n + k, 2)), random.permutation(n + k)) for k in range(count)]


def test_lines_are_points_and_tours(tmp_path):
    written = instances()
    (tmp_path / "TSP_val.txt").write_text("".join(line_of(*one) for one in written))
    found = list(read_tours(text_file(tmp_path, "val"), fewest=4))
    assert len(found) == len(written)
    for (points, tour), (expected, order) in zip(found, written, strict=True):
        np.testing.assert_allclose(points, expected, atol=1e-15)
        assert tour.tolist() == order.tolist()


def test_both_names_are_known_and_a_missing_file_is_told(tmp_path):
    (tmp_path / "tsp50-500_train.txt").write_text("")
    assert text_file(tmp_path, "train").name == "tsp50-500_train.txt"
    with pytest.raises(MissingData, match=r"TSP_test\.txt or tsp50-500_test\.txt is not in .*source=generated") as told:
        text_file(tmp_path, "test")
    assert str(tmp_path) in str(told.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda line: line.replace(" output", ""), "the word 'output' once"),
        (lambda line: line.replace("0.", "x.", 1), "could not convert"),
        (lambda line: line.split(" ", 1)[1], "are not two for each of 4 or more points"),
        (lambda line: "nan" + line[line.index(" ") :], "not finite"),
        (lambda line: line.rstrip().rsplit(" ", 1)[0], "does not visit each"),
        (lambda line: line.rstrip() + " 1\n", "does not visit each"),
        (lambda line: " ".join(line.split()[:8]) + " output 1 2 3 4 1", None),
        (lambda line: " ".join(line.split()[:6]) + " output 1 2 3 1", "are not two for each of 4 or more points"),
    ],
)
def test_other_lines_are_named(change, message, tmp_path):
    good = line_of(*instances(1)[0])
    (tmp_path / "TSP_train.txt").write_text(good + change(good))
    reading = read_tours(tmp_path / "TSP_train.txt", fewest=4)
    next(reading)
    if message is None:
        assert len(next(reading)[0]) == 4
    else:
        with pytest.raises(CorruptData, match=rf"TSP_train\.txt, line 2: .*{message}"):
            next(reading)
