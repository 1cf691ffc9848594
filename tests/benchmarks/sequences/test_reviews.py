"""Movie reviews in the exact layout of the published archive, packed and not."""

import io
import tarfile

import numpy as np
import pytest

from graphbench.benchmarks.sequences.reviews import ARCHIVE, read_reviews
from graphbench.errors import CorruptData, MissingData

REVIEWS = {
    "aclImdb/train/pos/0_9.txt": b"a fine film",
    "aclImdb/train/pos/1_7.txt": "caf\u00e9".encode(),
    "aclImdb/train/neg/0_1.txt": b"no",
    "aclImdb/test/pos/0_10.txt": b"yes",
    "aclImdb/test/neg/0_2.txt": b"<br />",
    "aclImdb/train/unsup/0_0.txt": b"not labelled",
    "aclImdb/README": b"about the data",
    "aclImdb/train/labeledBow.feat": b"9 0:9",
}


@pytest.fixture
def unpacked(tmp_path):
    for name, content in REVIEWS.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return tmp_path


@pytest.fixture
def packed(tmp_path):
    folder = tmp_path / "packed"
    folder.mkdir()
    with tarfile.open(folder / ARCHIVE, "w:gz") as archive:
        for name, content in REVIEWS.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return folder


@pytest.mark.parametrize("place", ["unpacked", "packed"])
def test_reviews_are_bytes_with_their_sentiment(place, request):
    parts = read_reviews(request.getfixturevalue(place), max_length=100)
    assert parts["train"].tokens.tobytes() == b"no" + b"a fine film" + "caf\u00e9".encode()
    assert parts["train"].lengths.tolist() == [2, 11, 5]
    assert parts["train"].labels.tolist() == [0, 1, 1]
    assert parts["test"].tokens.tobytes() == b"<br />yes"
    assert parts["test"].labels.tolist() == [0, 1]


def test_long_reviews_are_cut(unpacked):
    part = read_reviews(unpacked, max_length=4)["train"]
    assert part.lengths.tolist() == [2, 4, 4]
    assert part.tokens.tobytes() == b"noa ficaf\xc3"
    assert part.tokens.dtype == np.uint8


def test_absent_reviews_say_what_to_fetch(tmp_path):
    with pytest.raises(MissingData, match=r"aclImdb_v1.tar.gz from https://ai.stanford.edu"):
        read_reviews(tmp_path, 10)


def test_torn_archive_is_told(packed):
    whole = (packed / ARCHIVE).read_bytes()
    (packed / ARCHIVE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptData, match="not the whole archive"):
        read_reviews(packed, 10)


def test_missing_class_and_empty_review_are_told(unpacked):
    (unpacked / "aclImdb/test/neg/0_2.txt").write_bytes(b"")
    with pytest.raises(CorruptData, match=r"test/neg/0_2\.txt is empty"):
        read_reviews(unpacked, 10)
    (unpacked / "aclImdb/test/neg/0_2.txt").unlink()
    with pytest.raises(CorruptData, match="no review in aclImdb/test/neg"):
        read_reviews(unpacked, 10)
