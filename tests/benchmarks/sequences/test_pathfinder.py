"""Pathfinder as a benchmark."""

import pytest
import torch

from graphbench.benchmarks.sequences.dashed_paths import PathfinderSettings, sample_pathfinder
from graphbench.benchmarks.sequences.pathfinder import Pathfinder
from graphbench.errors import BadInput
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
    drawn = sample_pathfinder((0, 1, 0), 4, PathfinderSettings(path_dashes=6))
    table = benchmark.tables["val"]
    assert torch.equal(table.columns["x"][:, 0], torch.from_numpy(drawn.tokens))
    assert table.columns["y"][:, 0].tolist() == drawn.labels.tolist()
    assert table.num_nodes.tolist() == [1_024] * 4


def test_published_sizes_are_in_the_specification():
    assert Pathfinder().spec.split_sizes == (160_000, 20_000, 20_000)


def test_smaller_images_are_shorter_sequences(tmp_path):
    benchmark = Pathfinder(sizes=(8, 4, 4), image_size=16, path_dashes=4, distractors=2, store=str(tmp_path))
    benchmark.setup()
    assert benchmark.tables["train"].num_nodes.tolist() == [256] * 8
    assert (benchmark.spec.mean_nodes, benchmark.spec.max_nodes) == (256.0, 256)
    assert benchmark.settings.seed_distance == 3.5


@pytest.mark.parametrize("image_size", [8, 64])
def test_image_sizes_out_of_range_are_refused(image_size):
    with pytest.raises(BadInput, match="image_size must be an integer of at least 12 and at most 32"):
        Pathfinder(image_size=image_size)


@pytest.mark.parametrize(
    "options", [{"path_dashes": 1}, {"path_dashes": 40}, {"distractors": -1}, {"image_size": 16, "path_dashes": 5}]
)
def test_paths_without_room_are_refused(options):
    with pytest.raises(BadInput, match="path_dashes must be"):
        Pathfinder(**options)
