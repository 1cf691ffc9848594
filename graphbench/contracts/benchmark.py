"""What a benchmark is: a static specification and, later, batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

import pytorch_lightning as pl

from graphbench.contracts.architecture import merge_encodings
from graphbench.contracts.encoding import Encoding
from graphbench.contracts.spec import BenchmarkSpec


class Benchmark(pl.LightningDataModule):
    """Base of all benchmarks.

    `spec` is a class attribute where it never changes, else a property that depends on options alone, never on data.
    """

    spec: BenchmarkSpec

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
    def setup(self, stage: str | None = None) -> None:
        """Open the store."""
