"""Contract of a benchmark: a static specification and, after setup, batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
from torch_geometric.data import Data

from graphbench.contracts.architecture import merge_encodings
from graphbench.contracts.encoding import Encoding
from graphbench.contracts.pyg import GraphDataset
from graphbench.contracts.spec import SPLITS, BenchmarkSpec, Split
from graphbench.contracts.table import GraphTable
from graphbench.errors import BadInput, check_choice

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

#: Maximum rows of a part of an input, unless a caller asks for another size.
PART_ROWS = 1024
#: Maps the number of a part's first row in an input, from 0, to whether its graphs are needed.
Wanted = Callable[[int], bool]


@dataclass
class InputPart:
    """Some rows of a new input, in order, and a graph for each usable row.

    Args:
        frame: the rows with the columns of the input, indexed from 0; without columns for graphs from Python.
        table: graphs in the format of `Benchmark.tables`, but without targets and encodings.
        rows: row of `frame` that each graph belongs to `[graphs]`, ascending.
        problems: row of `frame` -> why it has no graph, in words; every row is in `rows` or here.
        node_names: row of `frame` -> the input's names for the nodes of its graph, in order; None if it numbers
            them, the same for all parts of an input.
        remarks: row of `frame` -> what the graph omits of it, in words; None if the benchmark has no such remarks, the
            same for all parts of an input.

    Examples:
        >>> import pandas as pd, torch
        >>> path = {"num_nodes": 3, "edge_index": torch.tensor([[0, 1], [1, 2]])}
        >>> frame = pd.DataFrame({"name": ["path", "torn"]})
        >>> part = InputPart(frame, GraphTable.from_graphs([path]), rows=[0], problems={1: "an edge leads nowhere"})
        >>> len(part.frame), len(part.table)
        (2, 1)
    """

    frame: pd.DataFrame
    table: GraphTable
    rows: list[int]
    problems: dict[int, str] = field(default_factory=dict)
    node_names: dict[int, Sequence[str]] | None = None
    remarks: dict[int, str] | None = None


@dataclass(frozen=True)
class Baseline:
    """Predictions of a simple model, to compare with a network's.

    Args:
        predictions: split ("val", "test") -> predictions in the rows of its targets, as `Task.predict` returns them:
            numbers in the targets' units `[rows, T]`, probabilities of classes `[rows, C]`, of labels `[rows, T]`.
            A row of only NaN was not predicted, and is not scored.
        seconds: to compute features, fit and predict; None if not measured.
        note: which part of the data was used, if not all.

    Examples:
        >>> import numpy as np
        >>> Baseline({"val": np.zeros((3, 1)), "test": np.zeros((2, 1))}, seconds=0.1).note
        ''
    """

    predictions: dict[str, np.ndarray]
    seconds: float | None = None
    note: str = ""


class Benchmark(pl.LightningDataModule):
    """Base class of all benchmarks.

    `spec` is a class attribute if it never changes, else a property that depends only on options, never on data.
    After `setup`, `tables` contains the splits "train", "val" and "test"; `predict_split` names the one that
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
        """Request encodings (an architecture's `required_encodings()`) before the data are prepared."""
        if "encodings" not in vars(self):
            raise BadInput(f"{type(self).__name__} must call super().__init__() in its constructor.")
        self.encodings = merge_encodings((*self.encodings, *encodings))

    @abstractmethod
    def prepare_data(self) -> None:
        """Download or generate, encode, and fill the store, once per machine."""

    def dataset(self, split: Split, transform: Callable[[Data], Data] | None = None) -> GraphDataset:
        """Return a split as a PyG data set with the required encodings; prepare missing data.

        Args:
            split: train, val or test.
            transform: applied to a graph on each access.

        Raises:
            BadInput: there is no such split.
        """
        check_choice("split", split, SPLITS)
        self.prepare_data()
        self.setup("fit")
        return GraphDataset(self.tables[split], self.spec, transform)

    @abstractmethod
    def ids(self, split: str) -> Sequence[Any]:
        """Name the graphs of a split in predictions, by row."""

    def node_names(self, split: str) -> Sequence[Sequence[str]] | None:
        """Return the source's names for the nodes of each graph of a split, by row; None if it numbers them."""
        return None

    def is_empty(self, split: str) -> bool:
        """Return whether a split has no row to train on or to score; needs open data."""
        return False

    def require_rows(self, split: str) -> None:
        """Refuse a split without rows; needs open data.

        Raises:
            BadInput: there is none to be scored.
        """
        if self.is_empty(split):
            words = {"val": "validation", "test": "test", "train": "training"}[split]
            hint = " `graphbench test --input FILE` scores a labelled file." if split == "test" else ""
            raise BadInput(f"{self.spec.name} has no {words} part here (data.fractions): there is no row in it.{hint}")

    def baselines(self) -> dict[str, dict[str, dict[str, float]]]:
        """Return scores of other models to show next to a network's; none by default, see `baseline_predictions`.

        Returns:
            Name -> split -> metric as it is logged ("test/MAE") -> value.
        """
        return {}

    def fold_options(self, count: int) -> list[dict[str, Any]]:
        """Return options of this benchmark that make each of `count` folds the test split in turn.

        Args:
            count: number of folds, three or more.

        Raises:
            BadInput: the split is fixed, or has another number of folds; says what would be valid.
        """
        raise BadInput(
            f"--folds {count}: {self.spec.name} has a fixed split, on which its scores are compared. Molecules and "
            "graphs of your own (--data Molecules, --data Graphs) can be split in other ways."
        )

    def check_source(self) -> None:
        """Refuse options that contradict the header of a user's files, such as a misspelt target; read no rows.

        Commands that plan many training runs call it once, before the first run. By default it checks nothing.

        Raises:
            BadInput: names the option and what the file contains.
        """

    def check_split_seed(self) -> None:
        """Refuse seeds of the split that have no effect.

        Raises:
            BadInput: says why, and what would be valid.
        """

    def baseline_predictions(self) -> dict[str, Baseline]:
        """Fit simple models on the training split, to be scored like the network.

        Returns:
            Name -> predictions for val and test, and their cost.
        """
        return {}

    # -- new inputs: none of it needs the benchmark's own data unless stated ---------------------------------------

    def read_input(self, source: str, column: str | None = None, size: int = PART_ROWS) -> Iterator[InputPart]:
        """Read a user's file or folder, part by part, with the features that training graphs have.

        A benchmark for which users can have data defines this; it need not open its own data for it.

        Args:
            source: a path, or "-" for standard input.
            column: name of the column to read, for sources with columns; the benchmark's default if None.
            size: maximum rows per part.

        Raises:
            BadInput: this benchmark, or this configuration of it, cannot read new inputs; or the source as a whole
                cannot be read. The parts report single rows that cannot be used.
        """
        python = " In Python, graphbench.load(RUN).predict accepts graphs of PyG and networkx with its fields."
        raise BadInput(
            f"{self.spec.name} cannot read new inputs: it has no reader for files. `graphbench predict --split test` "
            f"predicts its own graphs.{python if getattr(self, 'takes_graphs', False) else ''}"
        )

    def read_chosen(self, source: str, column: str | None, wanted: Wanted) -> Iterator[InputPart]:
        """Read like `read_input`, for a caller that needs the graphs of only some parts.

        `wanted` says, given the number of a part's first row, whether its graphs are needed. A reader that overrides
        this skips the other graphs: their parts have a `frame` of the same length, and neither graphs nor problems.
        Parts have at most `PART_ROWS` rows. By default all graphs are built.
        """
        return self.read_input(source, column)

    def input_recipe(self) -> tuple[Any, ...] | None:
        """Return what determines how `read_input` and `read_objects` read; equal for benchmarks that read alike.

        Several models can then share an input that is read once. None, the default, if only this object reads it this
        way. A subclass whose reader depends on further options adds them.
        """
        return None

    def read_labelled(self, source: str, column: str | None = None, size: int = PART_ROWS) -> Iterator[InputPart]:
        """Read a user's file like `read_input`, with its labels in the column `y` of the tables.

        A graph without a label has NaN there, or -1 for a class; a label that cannot be read is a problem of its row.

        Raises:
            BadInput: as `read_input`, or the source lacks a target.
        """
        raise BadInput(f"{self.spec.name} cannot score new inputs: it reads no labels from files.")

    def input_texts(self, part: InputPart, column: str | None = None) -> list[str] | None:
        """Return the texts that the graphs of a part were built from, such as SMILES, one per graph; None without."""
        return None

    def baseline_answers(self, count: int, texts: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Return predictions of the models of `baseline_predictions` for new rows; needs the benchmark's own data.

        Args:
            count: number of rows with a target.
            texts: texts of the rows, see `input_texts`.
        """
        return {}

    def seen_in_training(self, texts: Sequence[str]) -> np.ndarray | None:
        """Return which new graphs equal a training graph, bool `[texts]`; None if the benchmark cannot tell.

        It needs the benchmark's own data.
        """
        return None

    def training_distances(self, graphs: str | Sequence[str]) -> np.ndarray | None:
        """Return the distance of graphs to the nearest training graph, 0 to 1 `[graphs]`; None if unknown.

        It needs the benchmark's own data.

        Args:
            graphs: a split, in the order of its table, or texts of new graphs, see `input_texts`.
        """
        return None

    def read_objects(self, objects: Sequence[Any], size: int = PART_ROWS) -> Iterator[InputPart]:
        """Read like `read_input`, but Python objects: graphs of PyG and networkx, and the benchmark's kind of input.

        Raises:
            BadInput: this benchmark accepts none, or an object is of another kind.
        """
        raise BadInput(f"{self.spec.name} accepts no new inputs in Python.")

    def target_labels(self) -> tuple[str, ...]:
        """Name each target in the columns of predictions; a single name for a classification, and for links."""
        if self.spec.num_classes is not None:
            return ("class",)
        if self.spec.kind == "ranking":
            return self.spec.target_names or ("link",)
        return self.spec.target_names or tuple(str(number) for number in range(self.spec.num_targets))

    def class_labels(self) -> tuple[str, ...]:
        """Name each class of a classification; use their numbers if the specification has no names."""
        return self.spec.target_names or tuple(str(number) for number in range(self.spec.num_classes or 0))

    def value_words(self, feature: str, value: int) -> str:
        """Format a categorical feature and its value for a message.

        Args:
            feature: its name in the specification, or the number of its column as text.
            value: its number in the vocabulary.
        """
        return f"{feature} {value}"

    def fingerprint(self) -> dict[str, Any]:
        """Identify the data after setup: JSON values by which a run recognises them; empty if unknown.

        Returns:
            `source`: a mapping of what determines the graphs; `splits`: number of `graphs` and a checksum of their
            `content` for each split; `batches`, if any: a mapping of options that determine how these graphs change on
            their way to the model.
        """
        return {}

    @abstractmethod
    def setup(self, stage: str | None = None) -> None:
        """Open the store."""
