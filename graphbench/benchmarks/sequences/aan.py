"""Pairs of papers of the ACL Anthology Network, as the Long Range Arena publishes them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from graphbench.benchmarks.sequences.ragged import Sequences
from graphbench.errors import CorruptData, MissingData

ADDRESS = "https://storage.googleapis.com/long-range-arena/lra_release.gz"
FILES = {split: f"new_aan_pairs.{part}.tsv" for split, part in (("train", "train"), ("val", "eval"), ("test", "test"))}
_RELEASE = Path("lra_release", "lra_release", "tsv_data")  # where the release has them
_COLUMNS = 5  # label, two numbers of papers, two texts
_LABELS = {b"0": 0, b"0.0": 0, b"1": 1, b"1.0": 1}


def find_pairs(folder: Path) -> dict[str, Path]:
    """Split -> file.

    Args:
        folder: holds the three files, or the folders out of the release.

    Raises:
        MissingData: a file is not there; says what to fetch, from where, and where to put it.
    """
    for place in (folder, folder / _RELEASE, folder / _RELEASE.name):
        if all((place / name).is_file() for name in FILES.values()):
            return {split: place / name for split, name in FILES.items()}
    raise MissingData(
        f"The pairs of papers are not there. Put these files into {folder}:\n"
        f"  {', '.join(FILES.values())} out of lra_release.gz from {ADDRESS} (7.7 GB)\n"
        "The address refused downloads when last reported; mirrors of the release carry the same three files."
    )


def read_pairs(file: Path, max_length: int, chunk: int) -> Iterator[Sequences]:
    """Bytes of both papers of every pair, some pairs at a time.

    A line is "label, paper, paper, text, text", separated by tabs and without quotes.

    Args:
        file: one split.
        max_length: bytes of a paper to keep, from its beginning.
        chunk: pairs to hand over at once.

    Raises:
        CorruptData: a line is something else; names it.
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
    sizes = np.array([len(text) for text in texts]).reshape(-1, 2)
    tokens = np.frombuffer(b"".join(texts), dtype=np.uint8).copy()
    return Sequences(tokens, sizes.sum(1), np.array(labels, dtype=np.uint8), sizes[:, 0].astype(np.int32))
