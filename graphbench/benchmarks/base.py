"""Define the base of all benchmarks, which reads data into the store once, encodes them, and creates batches."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from graphbench.benchmarks.baselines import constant_answer, predict_plainly
from graphbench.benchmarks.inputs import read_graphs, with_labels
from graphbench.contracts import (
    SPLITS,
    Architecture,
    Baseline,
    Benchmark,
    Encoding,
    GraphBatch,
    GraphTable,
    InputPart,
)
from graphbench.contracts.benchmark import PART_ROWS
from graphbench.contracts.devices import NO_FLOAT64, is_apple
from graphbench.contracts.spec import Split
from graphbench.data.checks import check_table
from graphbench.data.encode import encode, encode_share, with_encoding
from graphbench.data.entry import Entry, EntryWriter
from graphbench.data.loader import GraphLoader, PackedBatch
from graphbench.data.parts.shares import Share
from graphbench.data.sampler import SizeBucketSampler
from graphbench.data.splits import permutation
from graphbench.data.store import Store
from graphbench.data.tables import content_key, read_table, single_precision, write_table
from graphbench.errors import BadInput, check_choice, check_range

logger = logging.getLogger(__name__)

_RUNS_AHEAD = {"cuda"}  # devices that compute while a copy from page-locked memory runs

Chunks = GraphTable | Iterable[GraphTable]
Sampled = TypeVar("Sampled")


class GraphBenchmark(Benchmark):
    """Base class of benchmarks; subclasses define `spec`, `source_key` and `read`, and pass `**options` to it.

    Args:
        root: folder for downloaded and generated files.
        batch_size: graphs per batch and process in training.
        num_workers: processes that cut batches; 0 cuts them in the training process, which is fastest for small graphs.
        eval_batch_size: graphs per batch and process in validation, test and prediction; `batch_size` by default.
        seed: seed of the order of training graphs and the choice of `train_fraction`; by default the seed of the run
            (`seed_everything`), or 0.
        bucketing: put graphs of similar size into one batch, which saves padding in attention. On by default in
            evaluation and in training of models without batch norms. Models with them would learn from statistics of
            one size at a time, unlike those in evaluation (GPS on PATTERN: six points of class accuracy).
        train_fraction: share of the training graphs to use, chosen by `seed`; a smaller share is part of a larger one.
        predict_split: split that `predict` runs on: train, val or test.
        store: folder of the store; by default the environment variable GRAPHBENCH_STORE, else `root`/store.
        pin_memory: copy batches from page-locked memory, which does not block; by default if the device is CUDA.
        copy_stream: copy batches on a separate CUDA stream, during the previous step instead of after it.

    Raises:
        BadInput: an option is out of range, or `copy_stream` is set without page-locked memory.
    """

    #: Increase this when `read` returns a different result for the same source.
    data_version: ClassVar[int] = 1
    #: Whether `read_objects` accepts graphs with the fields of the specification; False if tables or batches are
    #: changed after opening.
    takes_graphs: ClassVar[bool] = True
    #: Inputs of `read_objects`, for messages; empty if inputs come only from files.
    python_input: ClassVar[str] = "graphs of PyG or networkx with the features of the benchmark"
    #: Number of invalid rows that `read` skipped at the user's request; the report shows it.
    left_out: int = 0
    #: Splits that may be empty: those with share 0 of a user's data.
    empty_splits: tuple[str, ...] = ()
    #: Description of the split of a user's data, for `prepare` and the log.
    split_words: str = ""

    def __init__(
        self,
        root: str = "data",
        batch_size: int = 32,
        num_workers: int = 0,
        eval_batch_size: int | None = None,
        seed: int | None = None,
        bucketing: bool | None = None,
        train_fraction: float = 1.0,
        predict_split: Split = "test",
        store: str | None = None,
        pin_memory: bool | None = None,
        copy_stream: bool = False,
    ) -> None:
        super().__init__()
        self.root, self.batch_size, self.num_workers = root, batch_size, num_workers
        self.eval_batch_size = batch_size if eval_batch_size is None else eval_batch_size
        self.seed, self.bucketing, self.train_fraction = seed, bucketing, train_fraction
        self.predict_split = predict_split
        self.pin_memory, self.copy_stream = pin_memory, copy_stream
        self.store = Store.default(root, store)
        #: Splits with their encodings, after `setup`; read-only.
        self.tables: dict[str, GraphTable] = {}
        self._fingerprint: dict[str, Any] = {}
        self._opened_with: tuple[Encoding, ...] | None = None
        self._loaders: list[GraphLoader] = []
        self._stream: torch.cuda.Stream | None = None
        self._logged_mixing = False
        self._check_options()

    def _check_options(self) -> None:
        check_range("batch_size", self.batch_size, at_least=1, whole=True)
        check_range("eval_batch_size", self.eval_batch_size, at_least=1, whole=True)
        check_range("num_workers", self.num_workers, at_least=0, whole=True)
        check_range("train_fraction", self.train_fraction, above=0, at_most=1)
        check_choice("predict_split", self.predict_split, SPLITS)
        if self.copy_stream and self.pin_memory is False:
            raise BadInput("copy_stream=True needs page-locked memory: leave out pin_memory=False.")

    # -- defined by subclasses ------------------------------------------------------------------------------------

    @abstractmethod
    def source_key(self) -> dict[str, Any]:
        """Return JSON values that identify the raw content: checksum of a file, seed and options of a generator.

        Each key has a separate entry in the store, so it must be known without reading the data.
        """

    @abstractmethod
    def read(self) -> Mapping[str, Chunks]:
        """Download or generate the data and parse them; called only if the store lacks them.

        Returns:
            A table for each of "train", "val" and "test", or its parts (an iterable of tables) if it is larger than
            memory. float64 columns are stored as float32, except for the targets `y`, which models centre first. Whole
            tables get the smallest integer dtypes; parts must already have the dtypes to store.
        """

    def ids(self, split: str) -> Sequence[Any]:
        """Return the names of a split's graphs in predictions, by row; by default their numbers."""
        return range(self._num_graphs[split])

    def baseline_predictions(self) -> dict[str, Baseline]:
        """Predict the training mean or the shares of the training classes, and edges also from their features."""
        if any("y" not in self.tables[split].columns for split in SPLITS):
            return {}
        return predict_plainly(self.tables, self.spec)

    def baseline_answers(self, count: int, texts: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Predict the training mean, or the shares of the training classes; see `Benchmark.baseline_answers`."""
        if "y" not in self.tables["train"].columns:
            return {}
        name, answer = constant_answer(self.tables["train"], self.spec)
        return {name: np.tile(answer, (count, 1))}

    def read_labelled(self, source: str, column: str | None = None, size: int = PART_ROWS) -> Iterator[InputPart]:
        """Read graphs with labels in columns named like the targets; see `with_labels` for errors."""
        return with_labels(self.read_input(source, column, size), self, source)

    def read_objects(self, objects: Sequence[Any], size: int = PART_ROWS) -> Iterator[InputPart]:
        """Read graphs of PyG or networkx with the fields of the specification, see `read_graphs`.

        Raises:
            BadInput: an object is not a graph, or this benchmark does not accept graphs from outside.
        """
        if not self.takes_graphs:
            raise BadInput(f"{self.spec.name} cannot take graphs from Python: it changes graphs after opening them.")
        return read_graphs(objects, self.spec, size)

    def sampled(self, sample: Callable[[int, int], Sampled]) -> dict[str, Sampled]:
        """Return `sample(number, size)` for each split of a generated set; the number is part of the seed."""
        sizes = zip(SPLITS, self.spec.split_sizes or (), strict=True)
        return {split: sample(number, size) for number, (split, size) in enumerate(sizes)}

    # -- preparing and opening -----------------------------------------------------------------------------------

    def prepare_data(self) -> None:
        """Read the data and compute the required encodings, unless the store has them."""
        self.open_tables()

    def setup(self, stage: str | None = None) -> None:
        """Open the tables in the store; data that `prepare_data` has not prepared are read first."""
        self.open_tables()
        device = None if self.trainer is None else self.trainer.strategy.root_device
        if device is not None and device.type != "cuda" and (self.pin_memory or self.copy_stream):
            logger.warning(
                "%s: pin_memory=%s and copy_stream=%s have no effect on %s: they are for copies to a CUDA device.",
                self.spec.name, self.pin_memory, self.copy_stream, device,
            )  # fmt: skip

    def open_tables(self) -> None:
        """Fill `tables` from the store, with the required encodings; read missing data first.

        A subclass that changes tables after they are opened extends this method.
        """
        if self._opened_with == self.encodings:  # Lightning calls `setup` before each stage
            return
        entry, key = self._open_entry()
        splits = entry.meta["splits"]
        self._num_graphs: dict[str, int] = {split: splits[split]["num_graphs"] for split in SPLITS}
        contents = {s: {"graphs": self._num_graphs[s], "content": content_key(entry, s)} for s in SPLITS}
        self.split_words = entry.meta.get("split_words", "")
        left_out = {"left_out": entry.meta["left_out"]} if entry.meta.get("left_out") else {}
        self._fingerprint = {**key, "splits": contents, "batches": self.batch_options(), **left_out}
        self.tables = {split: self.open_split(entry, split) for split in SPLITS}
        if self.train_fraction < 1:
            self.tables["train"] = self._training_fraction(self.tables["train"])
        self._opened_with = self.encodings

    def _open_entry(self) -> tuple[Entry, dict[str, Any]]:
        """Open the entry of the splits without encodings, reading missing data first; also return its key."""
        key = self._table_key()
        return self.store.open_or_build({"kind": "table", **key}, self._write, f"data of {self.spec.name}"), key

    def _table_key(self) -> dict[str, Any]:
        if not isinstance(source := self.source_key(), Mapping):
            raise BadInput(f"{self.spec.name}: source_key() must return a mapping of all that affects the data.")
        return {"benchmark": type(self).__name__, "version": self.data_version, "source": source}

    def open_split(self, entry: Entry, split: str) -> GraphTable:
        """Open a split with all required encodings; an empty split has none, since no model runs on it."""
        raw = table = read_table(entry, split)
        key = content_key(entry, split)
        for encoding in self.encodings if len(raw) else ():
            encoded = encode(raw, encoding, self.store, key, f"{self.spec.name} {split}")
            table = with_encoding(table, encoding, encoded)
        return table

    def _training_fraction(self, table: GraphTable) -> GraphTable:
        """Copy `train_fraction` of a table into memory; the graphs keep their numbers."""
        size = max(1, round(self.train_fraction * len(table)))
        # Take the first rows of one permutation, so that a smaller share is part of a larger one.
        rows = permutation(len(table), self.sampling_seed())[:size]
        return table.select(torch.from_numpy(rows).sort().values)

    def fingerprint(self) -> dict[str, Any]:
        """Return the key of the source, size and checksum of each stored split, and `batch_options`."""
        return dict(self._fingerprint)

    def batch_options(self) -> dict[str, Any]:
        """Return the options that select or change stored graphs for training, as JSON values.

        A run must resume with the same options. A subclass that samples or changes stored graphs extends this method.
        """
        chosen = {"seed": self.sampling_seed()} if self.train_fraction < 1 else {}
        return {"train_fraction": self.train_fraction, **chosen}

    def _write(self, writer: EntryWriter) -> None:
        """Read, check and store all splits."""
        name = self.spec.name
        logger.info("%s: reading the data", name)
        if not isinstance(splits := self.read(), Mapping) or set(splits) != set(SPLITS):
            got = list(splits) if isinstance(splits, Mapping) else type(splits).__name__
            raise BadInput(f"{name}: read() must return a mapping with {', '.join(SPLITS)}, got {got}.")
        for split in SPLITS:
            chunks = splits[split]
            is_whole = isinstance(chunks, GraphTable)
            checked = self.checked([chunks] if is_whole else chunks, split)  # type: ignore[list-item,arg-type]
            # Pass a whole table as one: `write_table` narrows its integers, which it cannot do for parts of a stream.
            write_table(writer, split, next(checked) if is_whole else checked, split in self.empty_splits)
        if self.left_out:
            writer.meta["left_out"] = self.left_out
        if self.split_words:
            writer.meta["split_words"] = self.split_words
            logger.info("%s: split %s", name, self.split_words)
        sizes = tuple(writer.meta["splits"][split]["num_graphs"] for split in SPLITS)
        if self.spec.split_sizes not in (None, sizes):
            raise BadInput(f"{name}: the splits have {sizes} graphs instead of {self.spec.split_sizes}.")

    def checked(self, chunks: Iterable[GraphTable], split: str) -> Iterator[GraphTable]:
        """Yield the parts of a split as they are stored, checked against the specification.

        Raises:
            BadInput: names the graph and what is wrong with it.
        """
        first = 0
        for chunk in chunks:
            if len(chunk):  # an empty one has no columns; `write_table` refuses it if there must be rows
                check_table(chunk, self.spec, split, first)
            first += len(chunk)
            yield single_precision(chunk)

    def prepare_share(self, share: Share) -> int:
        """Compute a share of the data and encodings, if several jobs prepare them in one store.

        The data come first if `read_share` divides them (else one job reads while others wait), then the encodings.
        `prepare_data` joins the parts.

        Returns:
            Number of missing parts of all shares; nothing that needs them is started.
        """
        is_read = self.store.folder({"kind": "table", **self._table_key()}).is_dir()
        if not is_read and (missing := self.read_share(share)):
            return missing
        (entry, _), missing = self._open_entry(), 0
        for split in SPLITS:
            raw, key = read_table(entry, split), content_key(entry, split)
            for encoding in self.encodings if len(raw) else ():
                missing += encode_share(raw, encoding, self.store, key, share, f"{self.spec.name} {split}")
        return missing

    def read_share(self, share: Share) -> int:
        """Store a share of the data until `read` joins all shares; return the number of missing parts, here 0."""
        return 0

    # -- batches -------------------------------------------------------------------------------------------------

    def sampling_seed(self) -> int:
        """Return `seed`, else the seed of `seed_everything`, else 0."""
        return int(os.environ.get("PL_GLOBAL_SEED", 0)) if self.seed is None else self.seed

    def is_empty(self, split: str) -> bool:
        """Return whether a split of opened data has no rows that are trained on or scored."""
        return len(self.tables[split]) == 0

    def train_dataloader(self) -> GraphLoader:
        """Return shuffled batches of the training split, in a fixed order if the trainer overfits a few batches."""
        overfits = getattr(self.trainer, "overfit_batches", 0) > 0
        return self._loader("train", self.batch_size, shuffle=not overfits, training=True)

    def val_dataloader(self) -> GraphLoader | list[GraphLoader]:
        """Return batches of every validation graph once; return no loader if there are none."""
        return [] if self.tables and self.is_empty("val") else self._loader("val", self.eval_batch_size)

    def test_dataloader(self) -> GraphLoader:
        """Return batches of every test graph once."""
        return self._loader("test", self.eval_batch_size)

    def predict_dataloader(self) -> GraphLoader:
        """Return batches of every graph of `predict_split` once; `graph_id` of a batch contains their rows."""
        return self._loader(self.predict_split, self.eval_batch_size)

    def _loader(self, split: str, batch_size: int, shuffle: bool = False, training: bool = False) -> GraphLoader:
        if not self.tables:
            raise BadInput(f"{self.spec.name} is not open yet: call prepare_data() and setup() first.")
        self.require_rows(split)
        table, trainer = self.tables[split], self.trainer
        sampler = SizeBucketSampler(
            table.num_nodes, batch_size, shuffle=shuffle, seed=self.sampling_seed(),
            bucketing=self._by_size(shuffle) if self.bucketing is None else self.bucketing,
            world_size=trainer.world_size if trainer else 1, rank=trainer.global_rank if trainer else 0,
            name=f"{self.spec.name} {split}",
        )  # fmt: skip
        return self.keep_loader(
            GraphLoader(table, sampler, self.num_workers, None, self._precomputed(), draws=training)
        )

    def keep_loader(self, loader: GraphLoader) -> GraphLoader:
        """Keep a loader until `teardown`; without a trainer it replaces the previous loader."""
        if self.trainer is None:
            loader.replace(self._loaders)
        self._loaders.append(loader)
        return loader

    def _precomputed(self) -> Callable[[GraphBatch, torch.Generator | None], GraphBatch] | None:
        """Return the function with which workers precompute fields for the model in training, if it needs one."""
        architecture = getattr(self.trainer and self.trainer.lightning_module, "architecture", None)
        return architecture.precomputed if isinstance(architecture, Architecture) and architecture.precomputes else None

    def _by_size(self, shuffle: bool) -> bool:
        """Return whether to batch graphs of similar size, which harms training with batch norms."""
        if not shuffle:
            return True
        if self.trainer is None or self.trainer.lightning_module is None:
            return False
        batch_norms = any(isinstance(module, _BatchNorm) for module in self.trainer.lightning_module.modules())
        if batch_norms and not self._logged_mixing:
            self._logged_mixing = True
            logger.info("%s: the model has batch norms, so training batches mix graphs of all sizes", self.spec.name)
        return not batch_norms

    def transfer_batch_to_device(self, batch: GraphBatch, device: torch.device, dataloader_idx: int) -> GraphBatch:
        """Copy a batch to a device. Copies to a GPU do not block and use one buffer for all tensors."""
        if is_apple(device) and batch.get("y") is not None and batch.y.dtype == torch.float64:
            raise BadInput(NO_FLOAT64.format(name=self.spec.name))
        if device.type not in _RUNS_AHEAD or batch.batch.device.type != "cpu":
            return batch.to(device)
        if self.copy_stream and self._stream is None:
            self._stream = torch.cuda.Stream(device)
        pin_memory = device.type == "cuda" if self.pin_memory is None else self.pin_memory
        return PackedBatch.pack(batch, pin_memory).to(device, self._stream).unpack()

    def teardown(self, stage: str) -> None:
        """Stop the workers of all loaders."""
        for loader in self._loaders:
            loader.close()
        self._loaders.clear()
        self._stream = None
