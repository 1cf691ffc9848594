"""Text and Retrieval as benchmarks, on small files in the exact raw layout."""

import io
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from graphbench.benchmarks.sequences.long_text import (
    ARCHIVE,
    FILES,
    Retrieval,
    Text,
    find_pairs,
    read_pairs,
    read_reviews,
)
from graphbench.errors import BadInput, CorruptData, MissingData
from graphbench.testing.benchmarks import BenchmarkContract

LISTED = {Text: Text.spec, Retrieval: Retrieval.spec}


@pytest.fixture
def reviews(tmp_path, monkeypatch):
    """Write ten training and six test reviews, of different lengths within each split."""
    monkeypatch.setattr(Text, "spec", replace(Text.spec, split_sizes=(10, 6, 6)))
    for split, count in (("train", 5), ("test", 3)):
        for label, letter in (("neg", b"n"), ("pos", b"p")):
            place = tmp_path / "Text" / "aclImdb" / split / label
            place.mkdir(parents=True)
            for number in range(count):
                (place / f"{number}_{number}.txt").write_bytes(letter * (10 * (number + 1) + (label == "pos")))
    return tmp_path


@pytest.fixture
def papers(tmp_path, monkeypatch):
    monkeypatch.setattr(Retrieval, "spec", replace(Retrieval.spec, split_sizes=(4, 2, 2)))
    place = tmp_path / "Retrieval"
    place.mkdir()
    for split, count in (("train", 4), ("val", 2), ("test", 2)):
        lines = [f"{row % 2}.0\tA{row}\tB{row}\t{'first ' * (row + 1)}\t{split} text {row}\n" for row in range(count)]
        (place / FILES[split]).write_text("".join(lines))
    return tmp_path


class TestText(BenchmarkContract):
    complete = True
    reduced = True

    @pytest.fixture(autouse=True)
    def _place(self, reviews):
        self.root = str(reviews)

    def make_benchmark(self):
        return Text(root=self.root)


class TestRetrieval(BenchmarkContract):
    complete = True
    reduced = True

    @pytest.fixture(autouse=True)
    def _place(self, papers):
        self.root = str(papers)

    def make_benchmark(self):
        return Retrieval(root=self.root)


def opened(benchmark):
    benchmark.setup()
    return benchmark


def texts(table):
    return [bytes(table.batch([row]).x[:, 0].tolist()) for row in range(len(table))]


@pytest.mark.parametrize("cls", [Text, Retrieval])
def test_listed_specifications_stand_without_options(cls):
    assert cls().spec == LISTED[cls]


def test_test_reviews_validate_unless_some_are_held_out(reviews):
    published = opened(Text(root=str(reviews))).tables
    apart = opened(Text(root=str(reviews), held_out=3)).tables
    assert texts(published["val"]) == texts(published["test"])
    assert [len(apart[split]) for split in ("train", "val", "test")] == [7, 3, 6]
    assert sorted(texts(apart["train"]) + texts(apart["val"])) == sorted(texts(published["train"]))
    assert texts(apart["test"]) == texts(published["test"])


def test_reviews_keep_their_class_when_they_are_cut(reviews):
    table = opened(Text(root=str(reviews), max_length=15)).tables["train"]
    assert int(table.num_nodes.max()) == 15
    for row, text in enumerate(texts(table)):
        assert table.columns["y"][row].item() == (text[:1] == b"p")


def test_pairs_keep_their_towers_apart(papers):
    batch = opened(Retrieval(root=str(papers), max_length=9)).tables["train"].batch([2])
    first, second = (bytes(batch.x[batch.x[:, 1] == tower, 0].tolist()) for tower in (0, 1))
    assert (first, second) == (b"first fir", b"train tex")
    assert batch.pos[:, 0].tolist() == [*range(9), *range(9)]
    assert torch.equal(batch.y, torch.tensor([[0]]))


@pytest.mark.parametrize("cls", [Text, Retrieval])
def test_absent_files_say_where_to_put_them(cls, tmp_path):
    with pytest.raises(MissingData, match=str(tmp_path / cls.__name__)):
        cls(root=str(tmp_path)).prepare_data()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Text(max_length=0), "max_length must be an integer of at least 1, but got 0"),
        (lambda: Text(held_out=25_000), "held_out must be an integer of at least 0 and at most 24999, but got 25000"),
        (lambda: Text(data_seed=3), "data_seed=3 chooses the held-out reviews"),
        (lambda: Retrieval(max_length=0), "max_length must be an integer of at least 1, but got 0"),
    ],
)
def test_lengths_and_splits_out_of_range_are_refused(make, message):
    with pytest.raises(BadInput, match=message):
        make()


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


LINES = b'1.0\tP07-1\tP05-2\tfirst text\tsecond\n0\tA\tB\tx\tsome "quoted" words\n1\tC\tD\tcaf\xc3\xa9\tz\n'


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "new_aan_pairs.train.tsv"
    path.write_bytes(LINES)
    return path


def test_both_papers_lie_one_after_the_other(file):
    first, second = read_pairs(file, max_length=100, chunk=2)
    assert first.tokens.tobytes() == b'first textsecondxsome "quoted" words'
    assert first.lengths.tolist() == [16, 20]
    assert first.second.tolist() == [10, 1]
    assert first.labels.tolist() == [1, 0]
    assert second.tokens.tobytes() == b"caf\xc3\xa9z"
    assert second.labels.tolist() == [1]


def test_long_papers_are_cut_each(file):
    (pairs,) = read_pairs(file, max_length=3, chunk=10)
    assert pairs.tokens.tobytes() == b"firsecxsomcafz"
    assert pairs.second.tolist() == [3, 1, 3]


@pytest.mark.parametrize("line", [b"1\tA\tB\tonly one text", b"2\tA\tB\tx\ty", b"1\tA\tB\t\ty", b"1\tA\tB\tx\ty\tz"])
def test_bad_line_is_named(file, line):
    file.write_bytes(LINES + line)
    with pytest.raises(CorruptData, match="line 4 is not a label"):
        list(read_pairs(file, 10, 2))


def test_files_are_found_in_the_folders_of_the_release(tmp_path):
    with pytest.raises(MissingData, match=r"new_aan_pairs.train.tsv.* of lra_release.gz"):
        find_pairs(tmp_path)
    place = tmp_path / "lra_release" / "lra_release" / "tsv_data"
    place.mkdir(parents=True)
    for name in FILES.values():
        (place / name).write_bytes(LINES)
    assert find_pairs(tmp_path)["val"] == place / "new_aan_pairs.eval.tsv"
