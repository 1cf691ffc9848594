"""ECHO-Synth: labels against Floyd-Warshall, and files in the published format."""

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import floyd_warshall
from torch_geometric.data import Data

from graphbench.benchmarks.echo.synthetic import ECHOSynth, echo_graphs
from graphbench.contracts import SPLITS
from graphbench.errors import BadInput, CorruptData
from graphbench.nn import HeadConfig
from graphbench.testing.benchmarks import BenchmarkContract
from graphbench.training.tasks import build_task
from graphbench.training.tasks.choices import import_loss

SIZES = (150, 12, 12)


class TestECHOSynth(BenchmarkContract):
    complete = True

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path):
        self.store = str(tmp_path)

    def make_benchmark(self):
        return ECHOSynth(sizes=SIZES, store=self.store)


class TestDiameter(TestECHOSynth):
    def make_benchmark(self):
        return ECHOSynth(target="diam", sizes=SIZES, store=self.store)


def distances(batch):
    """Return the lengths of all shortest paths `[n, n]` by Floyd-Warshall."""
    adjacency = np.zeros((batch.num_nodes, batch.num_nodes))
    adjacency[tuple(batch.edge_index.numpy())] = 1
    assert (adjacency == adjacency.T).all()
    return floyd_warshall(adjacency, unweighted=True)


def test_labels_are_exact():
    tables = {target: echo_graphs(target, 150, 3) for target in ("sssp", "ecc", "diam")}
    for number in range(150):
        batches = {target: table.batch([number]) for target, table in tables.items()}
        assert all(torch.equal(batch.x_dense, batches["ecc"].x_dense) for batch in batches.values())
        expected = distances(batches["sssp"])
        (source,) = batches["sssp"].x_dense[:, 0].nonzero()[:, 0].tolist()
        assert batches["sssp"].y[:, 0].tolist() == expected[source].tolist()
        assert batches["ecc"].y[:, 0].tolist() == expected.max(0).tolist()
        assert batches["diam"].y.tolist() == [[expected.max()]]
        assert expected.max() == 17 + number // 6 % 24
    random = tables["sssp"].columns["x_dense"][:, 1]
    assert 0 <= float(random.min()) < float(random.max()) < 1
    assert float(random.mean()) == pytest.approx(0.5, abs=0.02)


def test_graphs_follow_the_seed():
    tables = [echo_graphs("sssp", 12, *seeds) for seeds in ((0, 0), (0, 0), (1, 0), (0, 1))]
    edges = [table.columns["edge_index"] for table in tables]
    assert torch.equal(edges[0], edges[1])
    assert not torch.equal(edges[0], edges[2])
    assert not torch.equal(edges[0], edges[3])


def test_diameters_are_those_asked_for(tmp_path):
    benchmark = ECHOSynth(target="diam", sizes=(108, 6, 6), diameters=(8, 10), store=str(tmp_path))
    benchmark.setup()
    table = benchmark.tables["train"]
    for number in range(108):
        batch = table.batch([number])
        assert batch.y.item() == distances(batch).max() == 8 + number // 6 % 3


def test_tables_of_other_diameters_are_others():
    keys = [ECHOSynth(diameters=diameters).source_key() for diameters in ((17, 40), (17, 39), (8, 40))]
    assert keys[0] == ECHOSynth().source_key()
    assert keys[0] != keys[1] != keys[2] != keys[0]


@pytest.mark.parametrize("diameters", [(7, 16), (16, 8), (8,)])
def test_diameters_that_some_family_cannot_have_are_refused(diameters):
    with pytest.raises(BadInput, match="diameters"):
        ECHOSynth(diameters=diameters)


@pytest.mark.parametrize("options", [{"sizes": (1, 1, 1)}, {"diameters": (8, 16)}, {"graph_seed": 1}])
def test_published_graphs_have_no_options_of_generated_ones(options):
    with pytest.raises(BadInput, match="source=generated"):
        ECHOSynth(source="published", **options)


def test_the_loss_of_the_authors_trains_it(tmp_path):
    """`log10(MSE)`, chosen by its import path, and its gradient match their closed forms."""
    benchmark = ECHOSynth(sizes=(6, 6, 6), store=str(tmp_path))
    benchmark.setup()
    batch = benchmark.tables["train"].batch(range(6))
    task = build_task(benchmark.spec, 4, HeadConfig())
    task.chosen_loss = import_loss("graphbench.training.tasks.losses.log10_mse")
    output = torch.linspace(0, 30, batch.num_nodes)[:, None].requires_grad_()
    loss = task.loss(output, batch)
    errors = (output - batch.y).detach().double()
    assert float(loss) == pytest.approx(float(errors.square().mean().log10()), rel=1e-6)
    (gradient,) = torch.autograd.grad(loss, output)
    expected = 2 * errors / (errors.square().sum() * np.log(10))
    torch.testing.assert_close(gradient.double(), expected, rtol=1e-5, atol=1e-9)


# -- the published files ---------------------------------------------------------------------------------------------


def published(nodes):
    """Return a path graph as in the files: features as an array, targets [ecc, diam, sssp] of every node."""
    own = np.arange(nodes)
    x = np.stack([own == 1, np.linspace(0, 0.9, nodes)], axis=1).astype(np.float64)
    ends = np.stack([own[:-1], own[1:]])
    edge_index = torch.from_numpy(np.concatenate([ends, ends[::-1]], axis=1))
    y = np.stack([np.maximum(own, nodes - 1 - own), np.full(nodes, nodes - 1), abs(own - 1)], axis=1)
    return Data(x=x, edge_index=edge_index, y=torch.from_numpy(y).float())


def write(root, graphs):
    folder = root / "ECHO" / "echo-synth"
    folder.mkdir(parents=True)
    for split in SPLITS:
        torch.save(graphs, folder / f"{split}_data.pt")


def test_published_files_are_read(tmp_path):
    write(tmp_path, [published(5), published(3)])
    expected = {"sssp": [1, 0, 1, 2, 3, 1, 0, 1], "ecc": [4, 3, 2, 3, 4, 2, 1, 2], "diam": [4, 2]}
    for target, values in expected.items():
        benchmark = ECHOSynth(target=target, source="published", root=str(tmp_path), store=str(tmp_path / "store"))
        benchmark.setup()
        for split in SPLITS:
            batch = benchmark.tables[split].batch([0, 1])
            assert batch.y[:, 0].tolist() == values
            assert batch.x_dense[:, 0].tolist() == [0, 1, 0, 0, 0, 0, 1, 0]
            assert torch.equal(batch.edge_index[:, :4], torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]))


@pytest.mark.parametrize(
    "broken",
    [
        "no list",
        [Data(x=np.zeros((2, 2)), edge_index=torch.tensor([[0], [2]]), y=torch.zeros(2, 3))],
        [Data(x=np.zeros((2, 2)), edge_index=torch.tensor([[0], [1]]), y=torch.zeros(3, 3))],
        [Data(x=np.zeros((2, 2)), edge_index=torch.tensor([[0], [1]]), y=torch.zeros(2, 1))],
    ],
)
def test_other_content_is_refused(broken, tmp_path):
    write(tmp_path, broken)
    with pytest.raises(CorruptData, match=r"train_data\.pt"):
        ECHOSynth(source="published", root=str(tmp_path), store=str(tmp_path / "store")).setup()
