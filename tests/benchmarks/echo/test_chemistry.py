"""ECHO-Chem from small files in the published format."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphbench.benchmarks.echo.chemistry import ECHOChem
from graphbench.contracts import SPLITS
from graphbench.errors import CorruptData, MissingData
from graphbench.testing.benchmarks import BenchmarkContract

SIZES = {"train": 6, "val": 2, "test": 3}


def molecule(rng, level):
    nodes = int(rng.integers(2, 20))
    ends = np.stack([np.arange(nodes - 1), np.arange(1, nodes)])
    x = np.stack([rng.integers(1, 17, nodes), rng.random(nodes) * 10], axis=1)
    return Data(
        x=x,
        edge_index=torch.from_numpy(np.concatenate([ends, ends[::-1]], axis=1)),
        edge_attr=torch.from_numpy(rng.random((2 * nodes - 2, 2))),
        y=torch.from_numpy(rng.normal(size=(nodes if level == "node" else 1, 1)) * 0.1 + (level != "node") * 3),
    )


def write(root, target):
    """Write the three files below `root` and return the graphs."""
    rng = np.random.default_rng(0)
    folder = root / "ECHO" / "echo-chem" / target
    folder.mkdir(parents=True)
    level = "node" if target == "charge" else "graph"
    graphs = {split: [molecule(rng, level) for _ in range(size)] for split, size in SIZES.items()}
    for split in SPLITS:
        torch.save(graphs[split], folder / f"{split}_data.pt")
    return graphs


def test_rows_of_edges_that_belong_to_another_graph_are_told(tmp_path):
    """One graph lacks a row that the next has in excess."""
    first, second, *_ = write(tmp_path, "charge")["train"]
    rows = first.edge_attr
    first.edge_attr, second.edge_attr = rows[:-1], torch.cat([rows[-1:], second.edge_attr])
    torch.save([first, second], tmp_path / "ECHO" / "echo-chem" / "charge" / "train_data.pt")
    said = f"graph 0 of these has {len(rows)} edges and {len(rows) - 1} rows of features"
    with pytest.raises(CorruptData, match=said):
        ECHOChem(target="charge", root=str(tmp_path), store=str(tmp_path / "store")).prepare_data()


class TestCharge(BenchmarkContract):
    target = "charge"

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path):
        self.root = tmp_path
        self.graphs = write(tmp_path, self.target)

    def make_benchmark(self):
        return ECHOChem(target=self.target, root=str(self.root), store=str(self.root / "store"))

    def test_every_number_arrives(self):
        benchmark = self._opened()
        for split in SPLITS:
            graphs = self.graphs[split]
            batch = benchmark.tables[split].batch(range(len(graphs)))
            torch.testing.assert_close(batch.x_dense, torch.from_numpy(np.concatenate([g.x for g in graphs])).float())
            torch.testing.assert_close(batch.edge_dense, torch.cat([g.edge_attr for g in graphs]).float())
            y = torch.cat([g.y for g in graphs])
            y = y if self.target == "charge" else 10**y
            torch.testing.assert_close(batch.y.double(), y, rtol=1e-12, atol=0)


class TestEnergy(TestCharge):
    target = "energy"


def test_an_absent_file_is_named_with_its_address(tmp_path, monkeypatch):
    def unreachable(*args, **options):
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.OpenerDirector.open", unreachable)
    with pytest.raises(MissingData, match=r"echo-chem/energy/train_data\.pt"):
        ECHOChem(target="energy", root=str(tmp_path), store=str(tmp_path / "store")).setup()
