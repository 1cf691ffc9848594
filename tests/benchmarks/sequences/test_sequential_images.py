"""CIFAR-10 and Fashion-MNIST as sequences, from files in their exact raw layout."""

import gzip
import hashlib
import pickle
import struct
from dataclasses import replace

import numpy as np
import pytest

from graphbench.benchmarks.sequences.sequential_images import SequentialFashionMNIST, SequentialImage
from graphbench.benchmarks.superpixels import readers
from graphbench.errors import BadInput, MissingData
from graphbench.testing.benchmarks import BenchmarkContract


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    """Write batches of three images each and set their checksums; return the pixels `[18, 3, 32, 32]`."""
    pixels = np.random.RandomState(0).randint(0, 256, (18, 3, 32, 32)).astype(np.uint8)
    pixels[0], pixels[1] = 0, 255
    folder = tmp_path / "CIFAR10" / readers.FOLDER
    folder.mkdir(parents=True)
    for number, name in enumerate(readers.TRAIN + readers.TEST):
        rows = slice(3 * number, 3 * number + 3)
        labels = [(3 * number + row) % 10 for row in range(3)]
        content = pickle.dumps({b"data": pixels[rows].reshape(3, -1), b"labels": labels}, protocol=4)
        (folder / name).write_bytes(content)
        monkeypatch.setitem(readers.CHECKSUMS, name, hashlib.md5(content).hexdigest())
    monkeypatch.setattr(SequentialImage, "spec", replace(SequentialImage.spec, split_sizes=(13, 2, 3)))
    monkeypatch.setattr(SequentialImage, "held_out", 2)
    return pixels


@pytest.fixture
def clothes(tmp_path, monkeypatch):
    """Write four IDX files with 8 and 3 images; return the pixels `[11, 28, 28]`."""
    pixels = np.random.RandomState(1).randint(0, 256, (11, 28, 28)).astype(np.uint8)
    folder = tmp_path / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    for prefix, rows in (("train", slice(8)), ("t10k", slice(8, 11))):
        for kind, array in (("images-idx3", pixels[rows]), ("labels-idx1", np.arange(11)[rows] % 10)):
            head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            content = head + array.astype(np.uint8).tobytes()
            (folder / f"{prefix}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))
    monkeypatch.setattr(SequentialFashionMNIST, "spec", replace(SequentialFashionMNIST.spec, split_sizes=(6, 2, 3)))
    monkeypatch.setattr(SequentialFashionMNIST, "held_out", 2)
    return pixels


class TestSequentialImage(BenchmarkContract):
    complete = True
    reduced = True

    @pytest.fixture(autouse=True)
    def _place(self, photographs, tmp_path):
        self.root = str(tmp_path)

    def make_benchmark(self):
        return SequentialImage(root=self.root)


class TestSequentialFashionMNIST(BenchmarkContract):
    complete = True
    reduced = True

    @pytest.fixture(autouse=True)
    def _place(self, clothes, tmp_path):
        self.root = str(tmp_path)

    def make_benchmark(self):
        return SequentialFashionMNIST(root=self.root)


def opened(cls, root):
    benchmark = cls(root=str(root))
    benchmark.setup()
    return benchmark


def test_photographs_become_grey_rows(photographs, tmp_path):
    benchmark = opened(SequentialImage, tmp_path)
    seen = np.concatenate(
        [benchmark.tables[s].columns["x"].numpy().reshape(-1, 32, 32) for s in ("train", "val", "test")]
    )
    red, green, blue = photographs.astype(float).transpose(1, 0, 2, 3)
    assert np.abs(seen - (0.2989 * red + 0.587 * green + 0.114 * blue)).max() < 1
    assert (seen[0] == 0).all()
    assert (seen[1] == 255).all()
    assert benchmark.tables["val"].columns["y"][:, 0].tolist() == [3, 4]
    assert benchmark.tables["test"].columns["y"][:, 0].tolist() == [5, 6, 7]


def test_clothes_are_read_row_by_row(clothes, tmp_path):
    tables = opened(SequentialFashionMNIST, tmp_path).tables
    assert (tables["val"].columns["x"].numpy().reshape(2, 28, 28) == clothes[6:8]).all()
    assert tables["train"].num_nodes.tolist() == [784] * 6


@pytest.mark.parametrize("cls", [SequentialImage, SequentialFashionMNIST])
def test_absent_images_say_what_to_fetch(cls, tmp_path):
    with pytest.raises(MissingData, match=str(tmp_path)):
        cls(root=str(tmp_path)).prepare_data()


def test_sets_that_are_too_small_to_hold_images_out_are_told(clothes, tmp_path, monkeypatch):
    monkeypatch.setattr(SequentialFashionMNIST, "held_out", 8)
    with pytest.raises(BadInput, match=r"it holds 8 training images, of which the last 8 would validate.*of 11 images"):
        SequentialFashionMNIST(root=str(tmp_path), store=str(tmp_path)).setup()
