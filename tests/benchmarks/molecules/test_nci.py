"""NCI as a benchmark: the contract, texts by row, no work twice."""

import pytest

from graphbench.benchmarks.molecules import nci
from graphbench.benchmarks.molecules.chemistry.reading import parse_smiles
from graphbench.benchmarks.molecules.nci import NCI
from graphbench.errors import BadInput
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
    """All of it, prepared once."""

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
