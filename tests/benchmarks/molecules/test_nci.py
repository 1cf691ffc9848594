"""NCI as a benchmark: the contract, texts by row, and prepared data that is used again."""

import hashlib

import numpy as np
import pytest
from rdkit import Chem, rdBase

from graphbench.benchmarks.molecules import nci
from graphbench.benchmarks.molecules.chemistry.baselines import ridge_baseline
from graphbench.benchmarks.molecules.chemistry.properties import penalized_logp
from graphbench.benchmarks.molecules.chemistry.scaffolds import SPLITS
from graphbench.benchmarks.molecules.chemistry.smiles import parse_smiles
from graphbench.benchmarks.molecules.chemistry.tables import read_text
from graphbench.benchmarks.molecules.nci import NCI, read_nci
from graphbench.errors import BadInput, MissingData
from graphbench.testing.benchmarks import BenchmarkContract


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return str(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def benchmark(store):
    opened = NCI(store=store, train_fraction=0.1, seed=3)
    opened.prepare_data()
    opened.setup()
    return opened


class TestNCI(BenchmarkContract):
    """All of NCI, prepared once."""

    complete = True

    @pytest.fixture(autouse=True)
    def _prepared(self, store, benchmark):
        self.store = store

    def make_benchmark(self):
        return NCI(store=self.store, batch_size=512)


def test_texts_follow_the_rows_even_of_a_fraction(benchmark):
    batch = next(iter(benchmark.train_dataloader()))
    smiles, ids = benchmark.smiles("train"), benchmark.ids("train")
    assert len(smiles) == len(set(ids)) == 3769
    assert len(benchmark.tables["train"]) == 377
    sizes = [parse_smiles(smiles[row]).GetNumAtoms() for row in batch.graph_id.tolist()]
    assert sizes == batch.ptr.diff().tolist()


def test_batches_carry_no_text(benchmark):
    batch = next(iter(benchmark.val_dataloader()))
    assert not [name for name in batch.keys() if name.startswith(("smiles", "id"))]  # noqa: SIM118 - PyG's method


def test_prepared_data_are_not_read_again(benchmark, store, monkeypatch):
    monkeypatch.setattr(nci, "read_nci", lambda track: pytest.fail("read again"))
    warm = NCI(store=store)
    warm.setup()
    assert warm.smiles("test") == benchmark.smiles("test")


def test_mean_sizes_are_those_of_the_specification(benchmark, store):
    whole = NCI(store=store)
    whole.setup()
    tables = whole.tables
    graphs = sum(map(len, tables.values()))
    assert sum(int(t.num_nodes.sum()) for t in tables.values()) / graphs == pytest.approx(NCI.spec.mean_nodes, abs=0.05)
    assert sum(int(t.num_edges.sum()) for t in tables.values()) / graphs == pytest.approx(NCI.spec.mean_edges, abs=0.05)


def test_texts_need_open_data_and_a_known_split(benchmark, tmp_path):
    with pytest.raises(BadInput, match="not open yet"):
        NCI(store=str(tmp_path)).smiles("test")
    with pytest.raises(BadInput, match="one of train, val, test"):
        benchmark.ids("validation")


pytestmark = pytest.mark.slow  # reads all of NCI twice


@pytest.fixture(scope="module")
def tables():
    return read_nci()


def test_sizes_are_the_measured_ones(tables):
    assert {name: len(table) for name, table in tables.items()} == {"train": 3769, "val": 471, "test": 472}
    nodes = np.concatenate([table.num_nodes.numpy() for table in tables.values()])
    assert (nodes.min(), nodes.max()) == (6, 38)


def test_split_is_fixed(tables):
    """The same with RDKit 2023.9, 2024.3, 2025.3 and 2026.9."""
    numbers = [sorted(read_text(tables[name], "id")) for name in SPLITS]
    assert hashlib.sha256(repr(numbers).encode()).hexdigest().startswith("f48fbe9d24156a6b")


def test_texts_belong_to_their_graphs(tables):
    with rdBase.BlockLogs():
        mols = [Chem.MolFromSmiles(smiles) for smiles in read_text(tables["test"], "smiles")]
    assert [mol.GetNumAtoms() for mol in mols] == tables["test"].num_nodes.tolist()
    assert [2 * mol.GetNumBonds() for mol in mols] == tables["test"].num_edges.tolist()
    expected = [penalized_logp(mol) for mol in mols]
    assert tables["test"].columns["y"][:, 0].tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)
    numbers = [int(name) for table in tables.values() for name in read_text(table, "id")]
    assert len(set(numbers)) == 4712
    assert read_text(tables["train"], "id") == sorted(read_text(tables["train"], "id"), key=int)


def test_equal_molecules_never_sit_on_both_sides(tables):
    with rdBase.BlockLogs():
        sides = [{Chem.CanonSmiles(smiles) for smiles in read_text(table, "smiles")} for table in tables.values()]
    assert sum(map(len, sides)) == len(set.union(*sides))


def test_baselines_reach_their_floors(tables):
    """Measured once on this split: 1.92 for the mean and 0.88 for ridge (test MAE)."""
    y = [tables[name].columns["y"][:, 0].double().numpy() for name in SPLITS]
    _, ridge = ridge_baseline([read_text(tables[name], "smiles") for name in SPLITS], y)
    assert abs(y[2] - y[0].mean()).mean() == pytest.approx(1.92, abs=0.02)
    assert abs(y[2] - ridge[:, 0]).mean() == pytest.approx(0.88, abs=0.02)


def test_rdkit_without_data_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(nci.RDConfig, "RDDataDir", str(tmp_path))
    with pytest.raises(MissingData, match="pip install --force-reinstall rdkit"):
        read_nci()
