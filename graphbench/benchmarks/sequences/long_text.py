"""Text and Retrieval of the Long Range Arena: classes of documents, byte by byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphbench.benchmarks.sequences import specs
from graphbench.benchmarks.sequences.aan import find_pairs, read_pairs
from graphbench.benchmarks.sequences.base import to_table
from graphbench.benchmarks.sequences.inputs import TextInput, Tokens, bytes_of
from graphbench.benchmarks.sequences.reviews import ARCHIVE, read_reviews
from graphbench.contracts import GraphTable
from graphbench.data.splits import permutation
from graphbench.errors import BadInput, check_range

_CHUNK = 500  # pairs per table


class Text(TextInput):
    """Is a film review positive? 50,000 reviews of IMDb as bytes, at most 1,024 of each.

    The byte-level text classification of the Long Range Arena (Tay et al., 2021) on the Large Movie Review Dataset
    (Maas et al., ACL 2011). A token is a byte. SFT reads 1,024 bytes of a review, the arena's configuration 1,000.

    The data have no validation split. As in the arena, the test reviews validate, so that the best checkpoint is chosen
    by them; `held_out` training reviews validate instead where that is above 0.

    Put `aclImdb_v1.tar.gz` into `root`/Text, or the folder out of it.

    Args:
        max_length: bytes of a review to read, from its beginning.
        held_out: training reviews that validate; 0 for validation by the test reviews.
        data_seed: of the choice of reviews that are held out.
        options: see `GraphBenchmark`.

    Raises:
        BadInput: for options out of range.
    """

    spec = specs.TEXT

    def __init__(self, max_length: int = 1_024, held_out: int = 0, data_seed: int = 0, **options: Any) -> None:
        super().__init__(**options)
        train, _, test = type(self).spec.split_sizes or (0, 0, 0)
        check_range("max_length", max_length, at_least=1, whole=True)
        check_range("held_out", held_out, at_least=0, at_most=train - 1, whole=True)
        self.max_length, self.held_out, self.data_seed = max_length, held_out, data_seed
        self.spec = replace(type(self).spec, max_nodes=max_length)
        if held_out:
            self.spec = replace(self.spec, split_sizes=(train - held_out, held_out, test), extra={})

    def tokens_of(self, texts: Sequence[str]) -> Tokens:
        """The first bytes of a text.

        Raises:
            BadInput: it is empty.
        """
        return Tokens(_first_bytes(texts[0], self.max_length))

    def source_key(self) -> dict[str, Any]:
        """The published set and what is taken of it: a prepared store needs no review."""
        return {
            "source": ARCHIVE,
            "max_length": self.max_length,
            "held_out": self.held_out,
            "data_seed": self.data_seed if self.held_out else 0,
        }

    def read(self) -> Mapping[str, GraphTable]:
        """Read the reviews.

        Raises:
            MissingData: they are not there; says what to fetch, from where, and where to put it.
            CorruptData: a file is damaged.
        """
        parts = read_reviews(Path(self.root, "Text"), self.max_length)
        train, test = to_table(parts["train"]), to_table(parts["test"])
        if not self.held_out:
            return {"train": train, "val": test, "test": test}
        rows = permutation(len(train), self.data_seed)
        val, rest = (torch.from_numpy(part).sort().values for part in np.split(rows, [self.held_out]))
        return {"train": train.select(rest), "val": train.select(val), "test": test}


class Retrieval(TextInput):
    """Does one paper cite the other? 182,613 pairs of papers as bytes, at most 4,096 of each.

    The byte-level document retrieval of the Long Range Arena (Tay et al., 2021) on the ACL Anthology Network (Radev et
    al., 2013), with the arena's pairs and splits. A token is a byte. Both papers of a pair lie in one graph: the second
    column of `x` tells the tower, 0 or 1, and `pos` counts within a paper; a model that must not let the towers see
    each other masks by tower. SFT reads 4,096 bytes of a paper, the arena's configuration 4,000.

    Put the release's three files new_aan_pairs.{train,eval,test}.tsv into `root`/Retrieval.

    Args:
        max_length: bytes of a paper to read, from its beginning.
        options: see `GraphBenchmark`.

    Raises:
        BadInput: for options out of range.
    """

    spec = specs.RETRIEVAL

    def __init__(self, max_length: int = 4_096, **options: Any) -> None:
        super().__init__(**options)
        check_range("max_length", max_length, at_least=1, whole=True)
        self.max_length = max_length
        self.spec = replace(type(self).spec, max_nodes=2 * max_length)

    text_columns = ("first", "second")

    def tokens_of(self, texts: Sequence[str]) -> Tokens:
        """The first bytes of both texts.

        Raises:
            BadInput: one is empty.
        """
        first, second = (_first_bytes(text, self.max_length) for text in texts)
        return Tokens(np.concatenate([first, second]), len(first))

    def source_key(self) -> dict[str, Any]:
        """The published set and what is taken of it: a prepared store needs no file."""
        return {"source": "new_aan_pairs", "max_length": self.max_length}

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Read the pairs, some at a time: the files are larger than memory may be.

        Raises:
            MissingData: they are not there; says what to fetch, from where, and where to put it.
            CorruptData: a file is damaged.
        """
        files = find_pairs(Path(self.root, "Retrieval"))
        return {split: map(to_table, read_pairs(file, self.max_length, _CHUNK)) for split, file in files.items()}


def _first_bytes(text: str, most: int) -> np.ndarray:
    found = np.frombuffer(bytes_of(text)[:most], dtype=np.uint8)
    if not len(found):
        raise BadInput("a text is empty")
    return found
