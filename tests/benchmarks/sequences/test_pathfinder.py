"""Pathfinder as a benchmark, and its pictures against their published definition."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import ndimage

from graphbench.benchmarks.sequences.pathfinder import (
    Pathfinder,
    PathfinderSettings,
    paint,
    sample_pathfinder,
    sample_scenes,
)
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


SETTINGS = PathfinderSettings()
SMALL = PathfinderSettings(side=14, path_dashes=3, distractors=1, seed_distance=7 * 14 / 32)
COUNT = 80
FINE = 16  # raster cells per pixel, in which components are found


@pytest.fixture(scope="module")
def scenes():
    return sample_scenes((5, 0, 0), COUNT, SETTINGS)


def long_paths(scenes):
    """Return the dashes of the two long paths `[A, 2, n, 2, 2]`."""
    return scenes.dashes[:, : 2 * SETTINGS.path_dashes].reshape(COUNT, 2, SETTINGS.path_dashes, 2, 2)


def polylines(scene, settings):
    """Return the corners of every path of a picture, without its gaps."""
    n, m = settings.path_dashes, settings.distractor_dashes
    groups = [scene[:n], scene[n : 2 * n], *(scene[k : k + m] for k in range(2 * n, len(scene), m))]
    found = []
    for dashes in groups:
        if np.isfinite(dashes).all():
            before = dashes[:, 1] + settings.margin * (dashes[:, 1] - dashes[:, 0]) / settings.dash_length  # pivots
            found.append(np.concatenate([np.stack([d[0], d[1], p]) for d, p in zip(dashes, before, strict=True)])[:-1])
    return found


def component_map(scene, settings):
    raster = np.zeros((settings.side * FINE,) * 2, dtype=bool)
    for corners in polylines(scene, settings):
        for begin, end in pairwise(corners):
            places = begin + np.linspace(0, 1, 6 * FINE)[:, None] * (end - begin)
            raster[tuple((places * FINE).astype(int).T)] = True
    return ndimage.label(raster, structure=np.ones((3, 3)))


@pytest.mark.parametrize("settings", [SETTINGS, SMALL], ids=["published", "small"])
def test_labels_are_connectivity_of_the_undashed_paths(settings):
    scenes = sample_scenes((5, 0, 0), COUNT, settings)
    for dashes, dots, label in zip(scenes.dashes, scenes.dots, scenes.labels, strict=True):
        components, count = component_map(dashes, settings)
        assert count == len(polylines(dashes, settings)), "two paths touch"
        ends = components[tuple((dots * FINE).astype(int).T)]
        assert (ends > 0).all()
        assert (ends[0] == ends[1]) == label


def test_both_labels_are_equally_frequent():
    labels = sample_scenes((1,), 400, replace(SETTINGS, path_dashes=2, distractors=0)).labels
    assert abs(labels.mean() - 0.5) < 4 * 0.5 / 20


def test_dashes_of_a_path_follow_each_other_as_published(scenes):
    paths = long_paths(scenes)
    step = paths[..., 1, :] - paths[..., 0, :]
    assert np.allclose(np.linalg.norm(step, axis=-1), SETTINGS.dash_length, atol=1e-4)
    direction = step / SETTINGS.dash_length
    pivot = paths[:, :, :-1, 1] + SETTINGS.margin * direction[:, :, :-1]
    assert np.allclose(paths[:, :, 1:, 0], pivot + SETTINGS.margin * direction[:, :, 1:], atol=1e-4)
    cosine = (direction[:, :, 1:] * direction[:, :, :-1]).sum(-1)
    assert cosine.min() > -1e-3


def test_turns_have_the_published_odds():
    """cos(t)^2 over -90 to 90 degrees: 1/2 + 1/pi of it lies within 45 degrees."""
    dashes = sample_scenes((2,), 600, replace(SETTINGS, path_dashes=2, distractors=0)).dashes.reshape(600, 2, 2, 2, 2)
    direction = (dashes[..., 1, :] - dashes[..., 0, :]) / SETTINGS.dash_length
    cosine = (direction[:, :, 0] * direction[:, :, 1]).sum(-1)
    expected = 0.5 + 1 / np.pi
    assert abs((cosine > 0.5**0.5).mean() - expected) < 4 * (expected * (1 - expected) / 1_200) ** 0.5


def test_dashes_keep_two_margins_from_all_but_their_neighbours(scenes):
    places = scenes.dashes[:, :, :1] + np.linspace(0, 1, 9)[:, None] * (
        scenes.dashes[:, :, 1:] - scenes.dashes[:, :, :1]
    )
    n, m = SETTINGS.path_dashes, SETTINGS.distractor_dashes
    path = np.concatenate([np.repeat([0, 1], n), 2 + np.repeat(np.arange(SETTINGS.distractors), m)])
    number = np.arange(len(path))
    neighbours = (path[:, None] == path) & (np.abs(number[:, None] - number) <= 1)
    for points in places[:20]:
        gap = np.linalg.norm(points[:, None, :, None] - points[None, :, None], axis=-1).min((2, 3))
        gap[neighbours | np.isnan(gap)] = np.inf
        assert gap.min() >= 2 * SETTINGS.margin - 0.05


def test_everything_lies_inside_the_padding_and_starts_where_it_should(scenes):
    there = scenes.dashes[np.isfinite(scenes.dashes)]
    assert there.min() >= SETTINGS.padding
    assert there.max() <= SETTINGS.side - SETTINGS.padding
    starts = long_paths(scenes)[:, :, 0, 0]
    assert np.allclose(np.linalg.norm(starts[:, 0] - starts[:, 1], axis=1), SETTINGS.seed_distance, atol=1e-4)


def test_most_distractors_find_room(scenes):
    present = np.isfinite(scenes.dashes[:, 2 * SETTINGS.path_dashes :, 0, 0]).reshape(COUNT, SETTINGS.distractors, -1)
    assert (present.all(2) == present.any(2)).all()
    assert present.all(2).mean() > 0.7


@pytest.mark.slow
def test_pixels_have_the_brightness_of_the_nearest_line_or_dot(scenes):
    images = paint(scenes, SETTINGS)
    steps = np.linspace(0, 1, 201)[:, None]
    middle = np.stack(np.meshgrid(np.arange(32), np.arange(32), indexing="ij"), axis=-1) + 0.5
    for picture, dashes, dots in zip(images[:4], scenes.dashes, scenes.dots, strict=False):
        expected = np.zeros((32, 32))
        for number, (begin, end) in enumerate(dashes):
            if np.isfinite(begin).all():
                line = begin + steps * (end - begin)
                distance = np.linalg.norm(middle[:, :, None] - line, axis=-1).min(-1)
                light = SETTINGS.path_light if number < 2 * SETTINGS.path_dashes else SETTINGS.distractor_light
                expected = np.maximum(expected, light / 2 * np.clip(1 - distance, 0, None))
        for dot in dots:
            expected = np.maximum(expected, np.clip(2 - np.linalg.norm(middle - dot, axis=-1), 0, 1))
        assert np.abs(picture - 255 * expected).max() <= 2


def test_sequences_are_the_pictures_and_depend_on_the_seed_alone():
    first, again, other = (sample_pathfinder(seed, 5) for seed in ((4, 1), (4, 1), (4, 2)))
    assert first.lengths.tolist() == [1024] * 5
    assert np.array_equal(first.tokens, again.tokens)
    assert not np.array_equal(first.tokens, other.tokens)
    assert (first.tokens.reshape(5, -1).max(1) == 255).all()  # the middle of a dot
