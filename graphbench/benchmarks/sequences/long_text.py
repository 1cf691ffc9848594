"""Text and Retrieval of the Long Range Arena: documents as bytes, and readers of their published files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from graphbench.benchmarks.inputs import with_labels
from graphbench.benchmarks.sequences import specs
from graphbench.benchmarks.sequences.base import Sequences, to_table
from graphbench.benchmarks.sequences.inputs import TextInput, Tokens, bytes_of
from graphbench.contracts import SPLITS, GraphTable, InputPart
from graphbench.contracts.benchmark import PART_ROWS
from graphbench.data.archives import read_tar
from graphbench.data.progress import track
from graphbench.data.splits import permutation
from graphbench.errors import BadInput, CorruptData, MissingData, check_range

_CHUNK = 500  # pairs per table
REVIEWS_ADDRESS = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
ARCHIVE, FOLDER = "aclImdb_v1.tar.gz", "aclImdb"
SENTIMENTS = ("neg", "pos")
_SPLITS = ("train", "test")
PAIRS_ADDRESS = "https://storage.googleapis.com/long-range-arena/lra_release.gz"
FILES = {split: f"new_aan_pairs.{part}.tsv" for split, part in (("train", "train"), ("val", "eval"), ("test", "test"))}
_RELEASE = Path("lra_release", "lra_release", "tsv_data")  # folder of the files in the release
_COLUMNS = 5  # label, two paper numbers, two texts
_LABELS = {b"0": 0, b"0.0": 0, b"1": 1, b"1.0": 1}


class Text(TextInput):
    """Sentiment of 50,000 IMDb film reviews as bytes, at most 1,024 per review.

    This is the byte-level text classification of the Long Range Arena (Tay et al., 2021) on the Large Movie Review
    Dataset (Maas et al., ACL 2011). A token is a byte. SFT reads 1,024 bytes per review, the arena's setting is 1,000.

    The data have no validation split. As in the arena, validation uses the test reviews, which thus select the
    checkpoint, unless `held_out` training reviews are used instead.

    Put `aclImdb_v1.tar.gz` or the folder in it into `root`/Text.

    Args:
        max_length: maximum bytes read from the beginning of a review.
        held_out: training reviews used for validation; 0 for validation on the test reviews.
        data_seed: seed of the held-out reviews.
        options: see `GraphBenchmark`.
    """

    spec = specs.TEXT

    def __init__(self, max_length: int = 1_024, held_out: int = 0, data_seed: int = 0, **options: Any) -> None:
        super().__init__(**options)
        train, _, test = type(self).spec.split_sizes or (0, 0, 0)
        check_range("max_length", max_length, at_least=1, whole=True)
        check_range("held_out", held_out, at_least=0, at_most=train - 1, whole=True)
        if data_seed and not held_out:
            raise BadInput(f"data_seed={data_seed} chooses the held-out reviews: also give held_out, or leave it out.")
        self.max_length, self.held_out, self.data_seed = max_length, held_out, data_seed
        self.spec = replace(type(self).spec, max_nodes=max_length)
        if held_out:
            self.spec = replace(self.spec, split_sizes=(train - held_out, held_out, test), extra={})

    def tokens_of(self, texts: Sequence[str]) -> Tokens:
        """Return the first bytes of a text."""
        return Tokens(_first_bytes(texts[0], self.max_length))

    def read_labelled(self, source: str, column: str | None = None, size: int = PART_ROWS) -> Iterator[InputPart]:
        """Read labels like `GraphBenchmark.read_labelled`, also from the folders neg and pos of the published data."""
        folders = dict(zip(SENTIMENTS, self.class_labels(), strict=True))
        return with_labels(self.read_input(source, column, size), self, source, folders)

    def source_key(self) -> dict[str, Any]:
        """Return the published data set and the options of reading: a prepared store needs no reviews."""
        return {
            "source": ARCHIVE,
            "max_length": self.max_length,
            "held_out": self.held_out,
            "data_seed": self.data_seed if self.held_out else 0,
        }

    def read(self) -> Mapping[str, GraphTable]:
        """Read the reviews."""
        parts = read_reviews(Path(self.root, "Text"), self.max_length)
        train, test = to_table(parts["train"]), to_table(parts["test"])
        if not self.held_out:
            return {"train": train, "val": test, "test": test}
        rows = permutation(len(train), self.data_seed)
        val, rest = (torch.from_numpy(part).sort().values for part in np.split(rows, [self.held_out]))
        return {"train": train.select(rest), "val": train.select(val), "test": test}


class Retrieval(TextInput):
    """Citations between 182,613 pairs of papers as bytes, at most 4,096 per paper.

    This is the byte-level document retrieval of the Long Range Arena (Tay et al., 2021) on the ACL Anthology Network
    (Radev et al., 2013), with the arena's pairs and splits. A token is a byte. Both papers of a pair are in one graph:
    the second column of `x` is the tower, 0 or 1, and `pos` counts within a paper; a model whose towers must not attend
    to each other masks by tower. SFT reads 4,096 bytes of a paper, the arena's configuration 4,000.

    Put the release's three files new_aan_pairs.{train,eval,test}.tsv into `root`/Retrieval.

    Args:
        max_length: maximum bytes read from the beginning of a paper.
        options: see `GraphBenchmark`.
    """

    spec = specs.RETRIEVAL
    text_columns = ("first", "second")

    def __init__(self, max_length: int = 4_096, **options: Any) -> None:
        super().__init__(**options)
        check_range("max_length", max_length, at_least=1, whole=True)
        self.max_length = max_length
        self.spec = replace(type(self).spec, max_nodes=2 * max_length)

    def tokens_of(self, texts: Sequence[str]) -> Tokens:
        """Return the first bytes of both texts."""
        first, second = (_first_bytes(text, self.max_length) for text in texts)
        return Tokens(np.concatenate([first, second]), len(first))

    def source_key(self) -> dict[str, Any]:
        """Return the published data set and the options of reading: a prepared store needs no files."""
        return {"source": "new_aan_pairs", "max_length": self.max_length}

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Read the pairs in parts, since the files may be larger than memory."""
        files = find_pairs(Path(self.root, "Retrieval"))
        sizes: dict[str, int] = dict(zip(SPLITS, type(self).spec.split_sizes or (), strict=True))

        def read_split(split: str, file: Path) -> Iterator[GraphTable]:
            parts = read_pairs(file, self.max_length, _CHUNK)
            number = math.ceil(sizes[split] / _CHUNK)
            return map(to_table, track(parts, f"Reading {file.name}", number, f"chunks of {_CHUNK} pairs"))

        return {split: read_split(split, file) for split, file in files.items()}


def _first_bytes(text: str, most: int) -> np.ndarray:
    if not text:
        raise BadInput("a text is empty")
    return np.frombuffer(bytes_of(text)[:most], dtype=np.uint8)


def read_reviews(folder: Path, max_length: int) -> dict[str, Sequences]:
    """Read the first bytes of the labelled train and test reviews, sorted by file name.

    The folder contains the archive, which is read without unpacking it, or its folder `aclImdb`.
    """
    if (folder / FOLDER).is_dir():
        contents = _from_folder(folder / FOLDER)
    elif (folder / ARCHIVE).is_file():
        contents = _from_archive(folder / ARCHIVE)
    else:
        raise MissingData(
            f"The movie reviews are missing. Put this file into {folder}:\n"
            f"  {ARCHIVE} from {REVIEWS_ADDRESS} (84 MB; or the folder {FOLDER} in it)"
        )
    reviews: dict[tuple[str, str], dict[str, bytes]] = {(s, label): {} for s in _SPLITS for label in SENTIMENTS}
    for split, label, name, content in contents:
        if not content:
            raise CorruptData(f"{folder}: the review {split}/{label}/{name} is empty. Fetch {ARCHIVE} again.")
        reviews[split, label][name] = content[:max_length]
    for (split, label), texts in reviews.items():
        if not texts:
            raise CorruptData(f"{folder} holds no review in {FOLDER}/{split}/{label}. Fetch {ARCHIVE} again.")
    sequences = {}
    for split in _SPLITS:
        by_label = [reviews[split, label] for label in SENTIMENTS]
        # Sort by name, since archives and folders list files in arbitrary order.
        documents = [named[name] for named in by_label for name in sorted(named)]
        sequences[split] = Sequences.join(documents, np.repeat(np.arange(len(by_label)), list(map(len, by_label))))
    return sequences


def _from_folder(folder: Path) -> Iterator[tuple[str, str, str, bytes]]:
    for split in _SPLITS:
        for label in SENTIMENTS:
            for file in (folder / split / label).glob("*.txt"):
                yield split, label, file.name, file.read_bytes()


def _from_archive(archive: Path) -> Iterator[tuple[str, str, str, bytes]]:
    for name, content in read_tar(archive, _is_review, REVIEWS_ADDRESS):
        _, split, label, file = PurePosixPath(name).parts
        yield split, label, file, content


def _is_review(name: str) -> bool:
    """Return whether a path is `aclImdb/SPLIT/SENTIMENT/NAME.txt`; the archive also has 50,000 unlabelled reviews."""
    parts = PurePosixPath(name).parts
    labelled = len(parts) == 4 and parts[0] == FOLDER and parts[1] in _SPLITS and parts[2] in SENTIMENTS
    return labelled and parts[3].endswith(".txt")


def find_pairs(folder: Path) -> dict[str, Path]:
    """Find the file of each split in a folder or in the folders of the release below it."""
    for place in (folder, folder / _RELEASE, folder / _RELEASE.name):
        if all((place / name).is_file() for name in FILES.values()):
            return {split: place / name for split, name in FILES.items()}
    raise MissingData(
        f"The pairs of papers are missing. Put these files into {folder}:\n"
        f"  {', '.join(FILES.values())} of lra_release.gz from {PAIRS_ADDRESS} (7.7 GB)\n"
        "The address refused downloads when last reported; mirrors of the release carry the same three files."
    )


def read_pairs(file: Path, max_length: int, chunk: int) -> Iterator[Sequences]:
    """Read the first bytes of both papers of every pair, `chunk` pairs at a time.

    A line is "label, paper, paper, text, text", separated by tabs, without quotes.
    """
    with file.open("rb") as lines:
        first = 1
        while block := list(islice(lines, chunk)):
            yield _parse(block, file, first, max_length)
            first += len(block)


def _parse(block: list[bytes], file: Path, first: int, max_length: int) -> Sequences:
    texts: list[bytes] = []
    labels = []
    for number, line in enumerate(block, first):
        fields = line.rstrip(b"\r\n").split(b"\t")
        if len(fields) != _COLUMNS or fields[0] not in _LABELS or not fields[3] or not fields[4]:
            raise CorruptData(
                f"{file}, line {number:,} is not a label (0 or 1), two papers and two texts, separated by tabs. Fetch "
                "the file again."
            )
        labels.append(_LABELS[fields[0]])
        texts += [fields[3][:max_length], fields[4][:max_length]]
    return Sequences.join(texts, np.array(labels), pairs=True)
