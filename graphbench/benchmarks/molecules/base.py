"""Base classes of the benchmarks made of SMILES: reading new molecules, texts, baselines."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any, cast

import numpy as np
import pandas as pd
from rdkit import Chem

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.benchmarks.molecules.chemistry.baselines import logistic_baseline, ridge_baseline
from graphbench.benchmarks.molecules.chemistry.features import FeatureSet, value_words
from graphbench.benchmarks.molecules.chemistry.files import MoleculeFrame, stream_molecules
from graphbench.benchmarks.molecules.chemistry.reading import (
    MoleculeArrays,
    Recipe,
    read_chunk,
    read_molecules,
    warm_up,
)
from graphbench.benchmarks.molecules.chemistry.smiles import as_smiles
from graphbench.benchmarks.molecules.chemistry.tables import TEXTS, read_text, subset, to_table, without
from graphbench.contracts import SPLITS, GraphTable, InputPart
from graphbench.data.entry import Entry
from graphbench.data.worker_pool import available_cores, ordered_map
from graphbench.errors import BadInput, check_choice
from graphbench.tables.layout import find_column

logger = logging.getLogger(__name__)
#: Labels of the training split up to which a logistic regression is fitted; MolHIV has 33,000, MolPCBA 45 million.
_MOST_LABELS = 200_000
_LOGISTIC = "logistic regression on Morgan counts"
#: Reads the SMILES of a chunk, `(place of the first, texts)`.
Reader = Callable[[tuple[int, Sequence[str]]], MoleculeArrays]


class SmilesInput(GraphBenchmark):
    """Base of benchmarks whose graphs are made of SMILES, so that those of other molecules can be made alike.

    Args:
        options: see `GraphBenchmark`.
    """

    #: Column of a user's file where SMILES stand, unless its owner says otherwise.
    smiles_column: str = "smiles"

    def input_reader(self) -> Reader:
        """What makes this benchmark's graphs of SMILES; importable, for other processes.

        Raises:
            BadInput: they cannot be made of SMILES alone.
        """
        features = cast(FeatureSet, self.spec.extra["atom_vocabulary"])
        return partial(read_chunk, Recipe(features))

    def read_input(self, source: str, column: str | None = None, size: int = 1024) -> Iterator[InputPart]:
        """Molecules of a file, or a list of SMILES on standard input ("-").

        Args:
            source: a file in a format of `Molecules`.
            column: where its SMILES stand; `smiles_column` if None.
            size: molecules per part.

        Raises:
            BadInput: this benchmark's graphs need more than a SMILES; the file cannot be read, is empty, or lacks the
                column.
        """
        reader = self.input_reader()
        return self._read(reader, stream_molecules(source, column or self.smiles_column, size))

    def input_texts(self, part: InputPart, column: str | None = None) -> list[str]:
        """Return the SMILES of the molecules of a part that `read_input` yielded."""
        header = [str(name) for name in part.frame.columns]
        place = find_column("--input", header, column or self.smiles_column)
        cells = part.frame.iloc[part.rows, place or 0]
        return [str(cell).strip() for cell in cells]

    def read_objects(self, objects: Sequence[Any], size: int = 1024) -> Iterator[InputPart]:
        """SMILES and RDKit molecules; graphs with this benchmark's features as `GraphBenchmark.read_objects`.

        A molecule counts as the SMILES that RDKit writes of it, as in an SDF file; None is one that could not be read.

        Raises:
            BadInput: objects are neither, or both.
        """
        if not any(thing is None or isinstance(thing, (str, Chem.Mol)) for thing in objects):
            return super().read_objects(objects, size)
        for number, thing in enumerate(objects):
            if thing is not None and not isinstance(thing, (str, Chem.Mol)):
                raise BadInput(
                    f"{self.spec.name}: input {number} is of type {type(thing).__name__} among SMILES; expected SMILES "
                    "and RDKit molecules, or graphs of PyG and networkx, but not both in one call."
                )
        return self._read(self.input_reader(), self._frames(objects, size))

    def _frames(self, objects: Sequence[str | Chem.Mol | None], size: int) -> Iterator[MoleculeFrame]:
        for start in range(0, len(objects), size):
            chosen = objects[start : start + size]
            texts = [as_smiles(thing) if isinstance(thing, Chem.Mol) else thing or "" for thing in chosen]
            problems = {row: ("there is no molecule (None)", "") for row, thing in enumerate(chosen) if thing is None}
            yield MoleculeFrame(pd.DataFrame({"smiles": texts}, dtype=object), [t.strip() for t in texts], problems)

    def _read(self, reader: Reader, frames: Iterator[MoleculeFrame]) -> Iterator[InputPart]:
        """Graphs of the molecules, read on all cores where they are more than one part."""
        head = [frame for _, frame in zip(range(2), frames, strict=False)]
        waiting: deque[MoleculeFrame] = deque()

        def jobs() -> Iterator[tuple[int, Sequence[str]]]:
            for frame in chain(head, frames):
                waiting.append(frame)
                yield 0, frame.smiles

        workers = available_cores() if len(head) > 1 else 1
        start = partial(warm_up, Recipe(cast(FeatureSet, self.spec.extra["atom_vocabulary"])))
        start()
        with closing(ordered_map(reader, jobs(), workers, f"Reading molecules for {self.spec.name}", start)) as results:
            for arrays in results:
                yield _part(waiting.popleft(), arrays)

    def value_words(self, feature: str, value: int) -> str:
        """Elements and bonds by their names."""
        return value_words(self.spec.extra["atom_vocabulary"], feature, value)


class MoleculeBenchmark(SmilesInput):
    """Base of benchmarks that store the texts `smiles` and `id` of every molecule; batches do not carry them.

    Args:
        options: see `GraphBenchmark`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._with_texts: dict[str, GraphTable] = {}

    def open_split(self, entry: Entry, split: str) -> GraphTable:
        """One split with all encodings; its texts are set aside."""
        table = super().open_split(entry, split)
        self._with_texts[split] = table
        return without(table, TEXTS)

    def smiles(self, split: str) -> list[str]:
        """SMILES of every molecule of a split, in the order of its rows, as the source spells them.

        Raises:
            BadInput: the data are not open, or their source has no SMILES.
        """
        return self._texts(split, "smiles")

    def ids(self, split: str) -> Sequence[Any]:
        """Names of the molecules of a split, in the order of its rows; row numbers where the source has no names."""
        if split in self._with_texts and "id" not in self._with_texts[split].columns:
            return super().ids(split)
        return self._texts(split, "id")

    def baseline_predictions(self) -> dict[str, dict[str, np.ndarray]]:
        """Training mean or majority class; ridge (or logistic) regression on Morgan counts for sources with SMILES."""
        found = super().baseline_predictions()
        kind = self.spec.kind
        if self.spec.level != "graph" or "smiles" not in self._with_texts["train"].columns:
            return found
        targets = [self.tables[split].columns["y"].numpy() for split in SPLITS]
        smiles = [self._used(split) for split in SPLITS]
        if kind == "regression":
            pairs = [part for pair in zip(smiles, targets, strict=True) for part in pair]
            ridge = ridge_baseline(*pairs, num_bits=None)  # type: ignore[arg-type]
            assert ridge.val_prediction is not None
            return found | {ridge.name: {"val": ridge.val_prediction, "test": ridge.prediction}}
        if targets[0].size > _MOST_LABELS:
            logger.info(
                "%s: no logistic regression beside the model, which would take long on %d labels.",
                self.spec.name, targets[0].size,
            )  # fmt: skip
            return found
        val, test = logistic_baseline(smiles, targets, self.spec.num_classes)
        return found | {_LOGISTIC: {"val": val, "test": test}}

    def baseline_answers(self, count: int, texts: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """As `baseline_predictions`, of new molecules by their SMILES."""
        found = super().baseline_answers(count)
        targets = [self.tables[split].columns["y"].numpy() for split in ("train", "val")]
        if texts is None or self.spec.level != "graph" or "smiles" not in self._with_texts["train"].columns:
            return found
        smiles = [self._used("train"), self._used("val"), texts]
        if self.spec.kind == "regression":
            unknown = np.full((len(texts), self.spec.num_targets), np.nan)
            pairs = [part for pair in zip(smiles, [*targets, unknown], strict=True) for part in pair]
            ridge = ridge_baseline(*pairs, num_bits=None)  # type: ignore[arg-type]
            return found | {ridge.name: ridge.prediction}
        if targets[0].size > _MOST_LABELS:
            return found
        return found | {_LOGISTIC: logistic_baseline(smiles, targets, self.spec.num_classes)[1]}

    def seen_in_training(self, texts: Sequence[str]) -> np.ndarray | None:
        """Return which molecules are among those of training: equal to the model, isotopes and map numbers aside."""
        if "smiles" not in self._with_texts["train"].columns:
            return None
        trained = set(self._canonical(self._used("train")).values())
        here = self._canonical(texts)
        return np.array([here.get(row) in trained for row in range(len(texts))], dtype=bool)

    def _canonical(self, smiles: Sequence[str]) -> dict[int, str]:
        """Canonical SMILES of what the features show, by the place of the molecule."""
        recipe = Recipe(cast(FeatureSet, self.spec.extra["atom_vocabulary"]), canonical=True)
        arrays = read_molecules(smiles, recipe, description=f"Comparing molecules with those of {self.spec.name}")
        return dict(zip(arrays.rows.tolist(), arrays.canonical_list(), strict=True))

    def _used(self, split: str) -> list[str]:
        """SMILES of the molecules that `train_fraction` leaves in a split, in the order of its table."""
        smiles, rows = self.smiles(split), self.tables[split].graph_ids
        return smiles if rows is None else [smiles[row] for row in rows.tolist()]

    def _texts(self, split: str, name: str) -> list[str]:
        check_choice(f"{self.spec.name}: split", split, SPLITS)
        if split not in self._with_texts:
            raise BadInput(f"{self.spec.name} is not open yet: call prepare_data() and setup() first.")
        if name not in self._with_texts[split].columns:
            raise BadInput(f"{self.spec.name}: the source of these graphs has no {name}: {self.spec.source}")
        return read_text(self._with_texts[split], name)


def _part(frame: MoleculeFrame, arrays: MoleculeArrays) -> InputPart:
    problems = {row: f"{kind}: {detail}" if frame.smiles[row] else kind for row, kind, detail in arrays.problems}
    kept = [place for place, row in enumerate(arrays.rows.tolist()) if row not in frame.problems]
    table = to_table(arrays)
    if len(kept) < len(table):
        table = subset(table, np.array(kept, dtype=np.int64))
    rows = [row for row in arrays.rows.tolist() if row not in frame.problems]
    remarks = dict(arrays.remarks)
    torn = {row: f"{kind}: {detail}" if detail else kind for row, (kind, detail) in frame.problems.items()}
    return InputPart(frame.frame, table, rows, problems | torn, remarks=remarks)
