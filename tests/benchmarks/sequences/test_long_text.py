"""Text and Retrieval as benchmarks, on small files in the exact raw layout."""

from dataclasses import replace

import pytest
import torch

from graphbench.benchmarks.sequences.aan import FILES
from graphbench.benchmarks.sequences.long_text import Retrieval, Text
from graphbench.errors import BadInput, MissingData
from graphbench.testing.benchmarks import BenchmarkContract

LISTED = {Text: Text.spec, Retrieval: Retrieval.spec}


@pytest.fixture
def reviews(tmp_path, monkeypatch):
    """Ten training and six test reviews, each of its own length."""
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
        (lambda: Retrieval(max_length=0), "max_length must be an integer of at least 1, but got 0"),
    ],
)
def test_lengths_and_splits_out_of_range_are_refused(make, message):
    with pytest.raises(BadInput, match=message):
        make()
