"""Pathfinder as a benchmark."""

import pytest
import torch

from graphbench.benchmarks.pathfinder import Pathfinder
from graphbench.errors import BadInput
from graphbench.sequences.pathfinder import PathfinderSettings, draw_pathfinder
from graphbench.testing.benchmarks import BenchmarkContract


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return str(tmp_path_factory.mktemp("pathfinder"))


class TestPathfinder(BenchmarkContract):
    complete = True

    @pytest.fixture(autouse=True)
    def _place(self, store):
        self.store = store

    def make_benchmark(self):
        return Pathfinder(sizes=(12, 4, 4), path_dashes=6, store=self.store)


def test_table_holds_what_the_generator_draws(store):
    benchmark = Pathfinder(sizes=(12, 4, 4), path_dashes=6, store=store)
    benchmark.setup()
    drawn = draw_pathfinder((0, 1, 0), 4, PathfinderSettings(path_dashes=6))
    table = benchmark.tables["val"]
    assert torch.equal(table.columns["x"][:, 0], torch.from_numpy(drawn.tokens))
    assert table.columns["y"][:, 0].tolist() == drawn.labels.tolist()
    assert table.num_nodes.tolist() == [1_024] * 4


def test_published_sizes_are_in_the_specification():
    assert Pathfinder().spec.split_sizes == (160_000, 20_000, 20_000)


@pytest.mark.parametrize("options", [{"path_dashes": 1}, {"path_dashes": 40}, {"distractors": -1}])
def test_paths_without_room_are_refused(options):
    with pytest.raises(BadInput, match="path_dashes must be"):
        Pathfinder(**options)
