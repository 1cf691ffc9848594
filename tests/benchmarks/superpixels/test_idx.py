"""IDX files in MNIST's exact layout, whole and damaged."""

import gzip
import struct

import numpy as np
import pytest

from graphbench.benchmarks.superpixels.idx import has_idx_files, idx_files, read_idx, read_idx_folder
from graphbench.errors import CorruptData, MissingData

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def idx(array):
    """Magic number, lengths of the axes as four bytes each, values."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture
def folder(tmp_path):
    rng = np.random.RandomState(0)
    for prefix, count in (("train", 5), ("t10k", 3)):
        images, labels = rng.randint(0, 256, (count, 4, 6)), rng.randint(0, 10, count)
        (tmp_path / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (tmp_path / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(labels))
    return tmp_path


@pytest.mark.parametrize("shape", [(7,), (2, 3), (3, 28, 28), (0, 5)])
def test_arrays_of_any_shape_are_read(tmp_path, shape):
    array = np.random.RandomState(1).randint(0, 256, shape)
    (tmp_path / "plain").write_bytes(idx(array))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(idx(array)))
    for name in ("plain", "packed.gz"):
        np.testing.assert_array_equal(read_idx(tmp_path / name), array)


def test_folder_gives_both_parts_packed_or_not(folder):
    assert has_idx_files(folder)
    parts = read_idx_folder(folder)
    assert [parts[part].images.shape for part in ("train", "test")] == [(5, 4, 6), (3, 4, 6)]
    rng = np.random.RandomState(0)
    np.testing.assert_array_equal(parts["train"].images, rng.randint(0, 256, (5, 4, 6)))
    np.testing.assert_array_equal(parts["train"].labels, rng.randint(0, 10, 5))


def test_missing_files_are_named_with_their_origin(folder):
    (folder / NAMES[1]).unlink()
    with pytest.raises(MissingData, match=r"lacks train-labels-idx1-ubyte \(each.*there, from somewhere\."):
        idx_files(folder, "somewhere")
    with pytest.raises(MissingData, match=", ".join(NAMES)):
        idx_files(folder / "nowhere")
    assert not has_idx_files(folder / "nowhere")


WHOLE = idx(np.zeros((3, 4)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not in IDX format"),
        (b"\x89PNG", r"is not in IDX format: it begins with b'\\x89PNG'"),
        (WHOLE[:2] + b"\x0d" + WHOLE[3:], "values of type 13"),
        (WHOLE[:7], "has 7 bytes"),
        (WHOLE[:-1], r"has 23 bytes instead of 24 for the shape \[3, 4\]"),
        (WHOLE + b"\0", "has 25 bytes instead of 24"),
    ],
)
def test_damaged_files_are_told(tmp_path, content, message):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(CorruptData, match=message):
        read_idx(tmp_path / "file")


@pytest.mark.parametrize("keep", [0, 5, 20])
def test_truncated_packed_files_are_told(tmp_path, keep):
    (tmp_path / "file.gz").write_bytes(gzip.compress(idx(np.arange(100)))[:keep])
    with pytest.raises(CorruptData):
        read_idx(tmp_path / "file.gz")


def test_labels_must_belong_to_the_images(folder):
    (folder / NAMES[1]).write_bytes(idx(np.zeros(4)))
    with pytest.raises(CorruptData, match=r"\[5, 4, 6\] and train-labels-idx1-ubyte \[4\]"):
        read_idx_folder(folder)
