"""ListOps as a benchmark: its contract, its options, and its independence of the number of processes."""

import pytest
import torch

from graphbench.benchmarks.sequences.listops import ListOps
from graphbench.contracts import GraphTable
from graphbench.data import worker_pool as pool
from graphbench.errors import BadInput
from graphbench.testing.benchmarks import BenchmarkContract

SMALL = {"sizes": (24, 6, 6)}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return str(tmp_path_factory.mktemp("listops"))


class TestListOps(BenchmarkContract):
    complete = True

    @pytest.fixture(autouse=True)
    def _place(self, store):
        self.store = store

    def make_benchmark(self):
        return ListOps(**SMALL, store=self.store)


def tables(folder, **options):
    benchmark = ListOps(store=str(folder), **SMALL, **options)
    benchmark.setup()
    return benchmark.tables


def test_one_seed_gives_one_set_on_any_number_of_processes(store, tmp_path, monkeypatch):
    first = tables(store)
    monkeypatch.setattr(pool, "available_cores", lambda: 1)
    again, other = tables(tmp_path / "again"), tables(tmp_path / "other", data_seed=1)
    assert torch.equal(first["train"].columns["x"], again["train"].columns["x"])
    assert not torch.equal(first["val"].num_nodes, other["val"].num_nodes)
    assert not torch.equal(first["val"].num_nodes, first["test"].num_nodes)


def test_sequences_are_stored_without_padding(store):
    table = tables(store)["train"]
    assert len(table.columns["x"]) == int(table.num_nodes.sum())
    assert "pos" not in table.columns
    assert isinstance(table, GraphTable)


def test_published_sizes_and_length_are_in_the_specification():
    spec = ListOps().spec
    assert spec == ListOps.spec
    assert (spec.split_sizes, spec.max_nodes) == ((96_000, 2_000, 2_000), 1_999)
    short = ListOps(min_length=10, max_length=50)
    assert short.spec.max_nodes == 49


@pytest.mark.parametrize(
    "options", [{"min_length": 1_999}, {"max_depth": 0}, {"max_arguments": 1}, {"sizes": (1, 0, 1)}]
)
def test_limits_that_allow_nothing_are_refused(options):
    with pytest.raises(BadInput):
        ListOps(**options)
