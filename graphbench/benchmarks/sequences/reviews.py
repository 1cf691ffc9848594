"""The Large Movie Review Dataset: a review a file, in the folders of their split and sentiment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from graphbench.benchmarks.sequences.ragged import Sequences
from graphbench.data.archives import read_tar
from graphbench.errors import CorruptData, MissingData

ADDRESS = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
ARCHIVE, FOLDER = "aclImdb_v1.tar.gz", "aclImdb"
SENTIMENTS = ("neg", "pos")
_SPLITS = ("train", "test")


def read_reviews(folder: Path, max_length: int) -> dict[str, Sequences]:
    """Bytes of the labelled reviews, train and test, sorted by the names of their files.

    Args:
        folder: holds the archive, which is read without unpacking it, or the folder `aclImdb` out of it.
        max_length: bytes of a review to keep, from its beginning.

    Raises:
        MissingData: nothing is there; says what to fetch, from where, and where to put it.
        CorruptData: the archive is damaged, or a review is empty.
    """
    if (folder / FOLDER).is_dir():
        found = _from_folder(folder / FOLDER)
    elif (folder / ARCHIVE).is_file():
        found = _from_archive(folder / ARCHIVE)
    else:
        raise MissingData(
            f"The movie reviews are not there. Put this file into {folder}:\n"
            f"  {ARCHIVE} from {ADDRESS} (84 MB; or the folder {FOLDER}, which it holds)"
        )
    reviews: dict[tuple[str, str], dict[str, bytes]] = {(s, label): {} for s in _SPLITS for label in SENTIMENTS}
    for split, label, name, content in found:
        if not content:
            raise CorruptData(f"{folder}: the review {split}/{label}/{name} is empty. Fetch {ARCHIVE} again.")
        reviews[split, label][name] = content[:max_length]
    for (split, label), texts in reviews.items():
        if not texts:
            raise CorruptData(f"{folder} holds no review in {FOLDER}/{split}/{label}. Fetch {ARCHIVE} again.")
    return {split: _joined([reviews[split, label] for label in SENTIMENTS]) for split in _SPLITS}


def _from_folder(folder: Path) -> Iterator[tuple[str, str, str, bytes]]:
    for split in _SPLITS:
        for label in SENTIMENTS:
            for file in (folder / split / label).glob("*.txt"):
                yield split, label, file.name, file.read_bytes()


def _from_archive(archive: Path) -> Iterator[tuple[str, str, str, bytes]]:
    """By their exact places in the archive: nothing is written anywhere."""
    for name, content in read_tar(archive, _is_review, ADDRESS):
        _, split, label, file = PurePosixPath(name).parts
        yield split, label, file, content


def _is_review(name: str) -> bool:
    parts = PurePosixPath(name).parts
    labelled = len(parts) == 4 and parts[0] == FOLDER and parts[1] in _SPLITS and parts[2] in SENTIMENTS
    return labelled and parts[3].endswith(".txt")


def _joined(by_label: list[dict[str, bytes]]) -> Sequences:
    texts = [texts[name] for texts in by_label for name in sorted(texts)]
    labels = np.repeat(np.arange(len(by_label), dtype=np.uint8), [len(texts) for texts in by_label])
    tokens = np.frombuffer(b"".join(texts), dtype=np.uint8).copy()
    return Sequences(tokens, np.array([len(text) for text in texts]), labels)
