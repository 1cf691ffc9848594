"""Base classes of benchmarks built from SMILES: reading new molecules, texts, baselines."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from itertools import chain, islice
from typing import Any, cast

import numpy as np
import pandas as pd
from rdkit import Chem, rdBase

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.benchmarks.inputs import is_graph
from graphbench.benchmarks.molecules.chemistry.clusters import Bits, morgan_bits, nearest_distances
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
from graphbench.benchmarks.molecules.rivals import fit_rivals
from graphbench.contracts import SPLITS, Baseline, GraphTable, InputPart
from graphbench.contracts.benchmark import PART_ROWS, Wanted
from graphbench.data.entry import Entry, EntryWriter
from graphbench.data.progress import track
from graphbench.data.worker_pool import available_cores, ordered_map
from graphbench.errors import BadInput, check_choice
from graphbench.tables.layout import find_column
from graphbench.tables.texts import Texts

logger = logging.getLogger(__name__)
#: Reads a chunk of SMILES, given as (first row, texts).
Reader = Callable[[tuple[int, Sequence[str]]], MoleculeArrays]


class SmilesInput(GraphBenchmark):
    """Base of benchmarks whose graphs are built from SMILES, and that read new molecules like those of training."""

    #: Default name of the column with SMILES in a user's file.
    smiles_column: str = "smiles"

    def input_reader(self) -> Reader:
        """Return a picklable function that builds this benchmark's graphs from SMILES, or raise `BadInput`."""
        return partial(read_chunk, self._input_recipe())

    def _input_recipe(self) -> Recipe:
        """Return what is computed for every molecule of an input."""
        return self._recipe()

    def _recipe(self, canonical: bool = False) -> Recipe:
        return Recipe(cast(FeatureSet, self.spec.extra["atom_vocabulary"]), canonical=canonical)

    def read_input(self, source: str, column: str | None = None, size: int = PART_ROWS) -> Iterator[InputPart]:
        """Read the molecules of a file in a format of `Molecules`, or SMILES from standard input ("-").

        They are in `column`, or else in `smiles_column`. Raises `BadInput` if this benchmark's graphs need more than a
        SMILES.
        """
        return self._read_file(source, column, size, _every)

    def read_chosen(self, source: str, column: str | None, wanted: Wanted) -> Iterator[InputPart]:
        """Read like `read_input`, but let RDKit read only the molecules of wanted parts."""
        return self._read_file(source, column, PART_ROWS, wanted)

    def input_recipe(self) -> tuple[Any, ...] | None:
        """Return what is computed from a SMILES, and the column of SMILES."""
        return type(self), self._input_recipe(), self.smiles_column

    def _read_file(self, source: str, column: str | None, size: int, wanted: Wanted) -> Iterator[InputPart]:
        reader = self.input_reader()
        return self._read(reader, stream_molecules(source, column or self.smiles_column, size, wanted))

    def input_texts(self, part: InputPart, column: str | None = None) -> list[str]:
        """Return the SMILES of the molecules of a part that `read_input` yielded."""
        header = [str(name) for name in part.frame.columns]
        place = find_column("--input", header, column or self.smiles_column)
        cells = part.frame.iloc[part.rows, place or 0]
        return [str(cell).strip() for cell in cells]

    def read_objects(self, objects: Sequence[Any], size: int = PART_ROWS) -> Iterator[InputPart]:
        """Read SMILES and RDKit molecules, or graphs with this benchmark's features like `GraphBenchmark.read_objects`.

        A molecule is read as the SMILES that RDKit writes for it, as in an SDF file; None means an unreadable molecule.
        """
        if all(map(is_graph, objects)):
            return super().read_objects(objects, size)
        for number, item in enumerate(objects):
            if item is not None and not isinstance(item, (str, Chem.Mol)):
                raise BadInput(
                    f"{self.spec.name}: input {number} is of type {type(item).__name__}; expected SMILES and RDKit "
                    "molecules, or graphs of PyG and networkx, but not both in one call."
                )
        return self._read(self.input_reader(), self._frames(objects, size))

    def _frames(self, objects: Sequence[str | Chem.Mol | None], size: int) -> Iterator[MoleculeFrame]:
        for start in range(0, len(objects), size):
            chunk = objects[start : start + size]
            texts = [as_smiles(item) if isinstance(item, Chem.Mol) else item or "" for item in chunk]
            problems = {row: ("there is no molecule (None)", "") for row, item in enumerate(chunk) if item is None}
            yield MoleculeFrame(pd.DataFrame({"smiles": texts}, dtype=object), [t.strip() for t in texts], problems)

    def _read(self, reader: Reader, frames: Iterator[MoleculeFrame]) -> Iterator[InputPart]:
        """Read the molecules of all parts, on all cores if there is more than one part."""
        head = list(islice(frames, 2))  # a single part is not worth starting processes
        waiting: deque[MoleculeFrame] = deque()

        def jobs() -> Iterator[tuple[int, Sequence[str]]]:
            for frame in chain(head, frames):
                waiting.append(frame)
                yield 0, frame.smiles

        workers = available_cores() if len(head) > 1 else 1
        start = partial(warm_up, self._input_recipe())
        start()  # before the fork, so that workers share the tables
        with closing(ordered_map(reader, jobs(), workers, f"Reading molecules for {self.spec.name}", start)) as results:
            for arrays in results:
                yield _part(waiting.popleft(), arrays)

    def value_words(self, feature: str, value: int) -> str:
        """Return the name of an element, a bond or another value."""
        return value_words(self.spec.extra["atom_vocabulary"], feature, value)


def _every(row: int) -> bool:
    return True


def _part(frame: MoleculeFrame, arrays: MoleculeArrays) -> InputPart:
    problems = {row: f"{kind}: {detail}" if frame.smiles[row] else kind for row, kind, detail in arrays.problems}
    problems |= {row: f"{kind}: {detail}" if detail else kind for row, (kind, detail) in frame.problems.items()}
    usable = ~np.isin(arrays.rows, list(frame.problems))
    table = to_table(arrays)
    if not usable.all():
        table = subset(table, np.flatnonzero(usable))
    return InputPart(frame.frame, table, arrays.rows[usable].tolist(), problems, remarks=dict(arrays.remarks))


class MoleculeBenchmark(SmilesInput):
    """Base of benchmarks that store the texts `smiles` and `id` of every molecule; batches do not carry them.

    Args:
        options: see `GraphBenchmark`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._with_texts: dict[str, GraphTable] = {}
        # Of all training molecules, computed once: inputs are compared with them part by part.
        self._trained: frozenset[str] | None = None
        self._training_bits: Bits | None = None

    def open_split(self, entry: Entry, split: str) -> GraphTable:
        """Open one split with all encodings; its texts are kept separately."""
        table = super().open_split(entry, split)
        self._with_texts[split] = table
        return without(table, TEXTS)

    def smiles(self, split: str) -> list[str]:
        """Return the SMILES of a split's molecules, in row order, as spelled in the source."""
        return self._texts(split, "smiles")

    def ids(self, split: str) -> Sequence[Any]:
        """Return the names of a split's molecules, in row order; row numbers if the source has no names."""
        if split in self._with_texts and "id" not in self._with_texts[split].columns:
            return super().ids(split)
        return self._texts(split, "id")

    def baseline_predictions(self) -> dict[str, Baseline]:
        """Predict with the training mean or majority class and, given SMILES, with the models of `fit_rivals`."""
        return super().baseline_predictions() | self._rivals("test")

    def baseline_answers(self, count: int, texts: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Predict new molecules from their SMILES, as `baseline_predictions` does for the test split."""
        rivals = {} if texts is None else self._rivals(texts)
        for name, one in rivals.items():
            if one.note:
                logger.info("%s: %s.", name, one.note)
        return super().baseline_answers(count) | {name: one.predictions["test"] for name, one in rivals.items()}

    def _rivals(self, test: str | Sequence[str]) -> dict[str, Baseline]:
        """Fit on the training split, and predict val and `test`, a split or SMILES; return {} without SMILES."""
        if self.spec.level != "graph" or "smiles" not in self._with_texts["train"].columns:
            return {}
        targets = [self.tables[split].columns["y"].numpy() for split in ("train", "val")]
        smiles = [self._used("train"), self._used("val"), self._used(test) if isinstance(test, str) else test]
        return fit_rivals(self.store, self.spec, smiles, targets)

    def seen_in_training(self, texts: Sequence[str]) -> np.ndarray | None:
        """Return which molecules occur in training: equal for the model, regardless of isotopes and map numbers."""
        if "smiles" not in self._with_texts["train"].columns:
            return None
        if self._trained is None:
            self._trained = self._training_texts()
        canonical = self._canonical(texts)  # unreadable molecules have no row, and None is never trained on
        return np.array([canonical.get(row) in self._trained for row in range(len(texts))], dtype=bool)

    def _training_texts(self) -> frozenset[str]:
        """Return the canonical SMILES of training, which the store keeps: RDKit needs minutes for large files."""
        smiles = self._used("train")

        def build(writer: EntryWriter) -> None:
            texts = Texts(sorted(set(self._canonical(smiles).values())))
            writer.append("data", texts.data)
            writer.append("ptr", texts.ptr)

        key = {
            "kind": "canonical", "version": 1, "recipe": asdict(self._recipe(canonical=True)),
            "rdkit": rdBase.rdkitVersion, "content": sha256("\n".join(smiles).encode()).hexdigest(),
        }  # fmt: skip
        entry = self.store.open_or_build(key, build, f"canonical SMILES of {self.spec.name} train")
        return frozenset(Texts.of_arrays(entry.arrays["data"], entry.arrays["ptr"]))

    def training_distances(self, graphs: str | Sequence[str]) -> np.ndarray | None:
        """Return the Tanimoto distance of Morgan fingerprints between molecules and the nearest training molecule."""
        if "smiles" not in self._with_texts["train"].columns:
            return None
        if self._training_bits is None:
            self._training_bits = morgan_bits(self._used("train"))
        texts = self._used(graphs) if isinstance(graphs, str) else graphs
        return nearest_distances(morgan_bits(texts), self._training_bits)

    def _canonical(self, smiles: Sequence[str]) -> dict[int, str]:
        """Map rows to canonical SMILES of what the features show, for readable molecules."""
        recipe = self._recipe(canonical=True)
        if len(smiles) <= PART_ROWS:  # a part of an input is worth neither starting processes nor lines of its own
            arrays = read_molecules(smiles, recipe, num_workers=0)
        else:
            description = f"Comparing molecules with those of {self.spec.name}"
            arrays = read_molecules(smiles, recipe, track=track, description=description)
        return dict(zip(arrays.rows.tolist(), arrays.canonical, strict=True))

    def _used(self, split: str) -> list[str]:
        """Return the SMILES of the molecules that `train_fraction` leaves in a split, in the order of its table."""
        smiles, rows = self.smiles(split), self.tables[split].graph_ids
        return smiles if rows is None else [smiles[row] for row in rows.tolist()]

    def _texts(self, split: str, name: str) -> list[str]:
        check_choice(f"{self.spec.name}: split", split, SPLITS)
        if split not in self._with_texts:
            raise BadInput(f"{self.spec.name} is not open yet: call prepare_data() and setup() first.")
        if name not in self._with_texts[split].columns:
            raise BadInput(f"{self.spec.name}: the source of these graphs has no {name}: {self.spec.source}")
        return read_text(self._with_texts[split], name)
