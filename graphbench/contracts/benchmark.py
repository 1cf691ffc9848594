"""What a benchmark is: a static specification and, later, batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import pytorch_lightning as pl

from graphbench.contracts.architecture import merge_encodings
from graphbench.contracts.encoding import Encoding
from graphbench.contracts.spec import BenchmarkSpec
from graphbench.contracts.table import GraphTable


class Benchmark(pl.LightningDataModule):
    """Base of all benchmarks.

    `spec` is a class attribute where it never changes, else a property that depends on options alone, never on data.
    After `setup`, `tables` holds the splits "train", "val" and "test"; `predict_split` names the one that
    `predict_dataloader` reads.

    Examples:
        >>> from graphbench.benchmarks import CSL
        >>> issubclass(CSL, Benchmark), CSL.spec.task
        (True, 'graph-classification')
    """

    spec: BenchmarkSpec
    tables: dict[str, GraphTable]
    predict_split: str

    def __init__(self) -> None:
        super().__init__()
        self.encodings: tuple[Encoding, ...] = ()

    def require(self, encodings: Iterable[Encoding]) -> None:
        """Ask for encodings (an architecture's `required_encodings()`) before the data are prepared."""
        self.encodings = merge_encodings((*self.encodings, *encodings))

    @abstractmethod
    def prepare_data(self) -> None:
        """Download or generate, encode, and fill the store, once per machine."""

    @abstractmethod
    def ids(self, split: str) -> Sequence[Any]:
        """What to call the graphs of a split in predictions, by row."""

    def baselines(self) -> dict[str, dict[str, dict[str, float]]]:
        """Scores of simple models fitted on the same split, to show beside a network's; none by default.

        Returns:
            Name -> split -> metric as it is logged ("test/MAE") -> value.
        """
        return {}

    def fingerprint(self) -> dict[str, Any]:
        """What the data are, once they are set up: JSON values by which a run knows them again; empty where unknown.

        Returns:
            `source`: a mapping of what decides about the graphs; `splits`: number of `graphs` and a checksum of their
            `content` for each split.
        """
        return {}

    @abstractmethod
    def setup(self, stage: str | None = None) -> None:
        """Open the store."""
