"""CSL against the closed form of circulant spectra, and its folds."""

import numpy as np
import pytest
import torch

from graphbench.benchmarks.block_models.csl import CSL, circulant_graphs
from graphbench.errors import BadInput
from graphbench.testing.benchmarks import BenchmarkContract

SKIPS = (2, 3, 4, 5, 6, 9, 11, 12, 13, 16)


class TestCSL(BenchmarkContract):
    complete = True

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path):
        self.store = str(tmp_path)

    def make_benchmark(self):
        return CSL(fold=2, store=self.store)


def dense(table, number):
    adjacency = torch.zeros(41, 41, dtype=torch.float64)
    adjacency[tuple(table.batch([number]).edge_index)] = 1
    return adjacency


def test_spectra_are_those_of_circulant_graphs():
    """The eigenvalues are 2 cos(2 pi k / 41) + 2 cos(2 pi k R / 41), and all ten spectra differ."""
    table, k = circulant_graphs(0), 2 * np.pi * np.arange(41) / 41
    spectra = [np.sort(2 * np.cos(k) + 2 * np.cos(k * skip)) for skip in SKIPS]
    for number in range(150):
        adjacency = dense(table, number)
        assert torch.equal(adjacency, adjacency.t())
        assert (adjacency.sum(1) == 4).all()
        label = int(table.columns["y"][number])
        assert label == number // 15
        np.testing.assert_allclose(np.linalg.eigvalsh(adjacency.numpy()), spectra[label], atol=1e-9)
    gaps = [np.abs(a - b).max() for i, a in enumerate(spectra) for b in spectra[:i]]
    assert min(gaps) > 0.1


def test_relabellings_differ_and_follow_the_seed():
    table = circulant_graphs(0)
    assert len({dense(table, number).numpy().tobytes() for number in range(150)}) == 150
    assert torch.equal(table.columns["edge_index"], circulant_graphs(0).columns["edge_index"])
    assert not torch.equal(table.columns["edge_index"], circulant_graphs(1).columns["edge_index"])


def test_folds_are_stratified_and_their_tests_disjoint(tmp_path):
    tested, whole = [], circulant_graphs(0)
    every = {dense(whole, number).numpy().tobytes() for number in range(150)}
    for fold in range(5):
        benchmark = CSL(fold=fold, store=str(tmp_path))
        benchmark.setup()
        seen = {}
        for split, size in (("train", 9), ("val", 3), ("test", 3)):
            table = benchmark.tables[split]
            assert torch.bincount(table.columns["y"][:, 0].long()).tolist() == [size] * 10
            seen[split] = {dense(table, number).numpy().tobytes() for number in range(len(table))}
        assert set.union(*seen.values()) == every
        tested.append(seen["test"])
    assert sum(map(len, tested)) == len(set.union(*tested)) == 150


@pytest.mark.parametrize("fold", [-1, 5])
def test_unknown_fold_is_refused(fold):
    with pytest.raises(BadInput, match="fold must be an integer of at least 0 and at most 4"):
        CSL(fold=fold)
