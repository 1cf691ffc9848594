"""CIFAR-10's batches, pickled as Python 2 pickled them: folder, archive, damage, and code that is not run."""

import hashlib
import io
import pickle
import struct
import tarfile

import numpy as np
import pytest

from graphbench.benchmarks.superpixels import cifar
from graphbench.benchmarks.superpixels.cifar import ARCHIVE, FOLDER, TEST, TRAIN, read_cifar10
from graphbench.errors import CorruptData, MissingData

SIZE = 3


def text(value):
    """A string of Python 2: bytes, without an encoding."""
    return b"T" + struct.pack("<i", len(value)) + value


def array(values):
    """A pickled array of NumPy 1, protocol 2."""
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
    """A batch in the published layout: data `[count, 3072]` with red, green and blue planes, and a list of labels."""
    rng = np.random.RandomState(seed)
    data, labels = rng.randint(0, 256, (SIZE, 3072)).astype(np.uint8), rng.randint(0, 10, SIZE)
    items = text(b"batch_label") + text(b"training batch 1 of 5")
    items += text(b"labels") + b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    items += text(b"data") + array(data) + extra
    return b"\x80\x02}(" + items + b"u.", data, labels


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The unpacked folder, with the checksums of its own batches."""
    place = tmp_path / FOLDER
    place.mkdir()
    for seed, name in enumerate(TRAIN + TEST):
        put(place / name, batch(seed)[0], monkeypatch)
    return tmp_path


def put(path, content, monkeypatch):
    path.write_bytes(content)
    monkeypatch.setitem(cifar.CHECKSUMS, path.name, hashlib.md5(content).hexdigest())


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
    assert all(part in str(told.value) for part in (ARCHIVE, cifar.ADDRESS, str(tmp_path), FOLDER))


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
        (batch(0)[0][:-2000], "was not read"),
        (b"no pickle", "was not read"),
        (pickle.dumps({b"labels": [1]}), "was not read"),
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
    with pytest.raises(CorruptData, match=r"it holds posix\.mkdir, which is no array"):
        read_cifar10(folder)
    assert not (folder / "made").exists()


def test_arrays_of_todays_numpy_are_read_too(folder, monkeypatch):
    data = np.random.RandomState(0).randint(0, 256, (SIZE, 3072)).astype(np.uint8)
    content = pickle.dumps({b"data": data, b"labels": [1, 2, 3]}, protocol=4)
    put(folder / FOLDER / "test_batch", content, monkeypatch)
    assert read_cifar10(folder)["test"].labels.tolist() == [1, 2, 3]


def test_hand_made_pickle_is_what_python_reads():
    content, data, labels = batch(7)
    loaded = pickle.load(io.BytesIO(content), encoding="bytes")
    np.testing.assert_array_equal(loaded[b"data"], data)
    assert loaded[b"labels"] == labels.tolist()
