"""Molecules that nobody trained on, with the features of a benchmark: out of files, and out of Python."""

from __future__ import annotations

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
from graphbench.benchmarks.molecules.chemistry.features import FeatureSet
from graphbench.benchmarks.molecules.chemistry.files import MoleculeFrame, stream_molecules
from graphbench.benchmarks.molecules.chemistry.reading import MoleculeArrays, Recipe, read_chunk, warm_up
from graphbench.benchmarks.molecules.chemistry.stereo import as_smiles
from graphbench.benchmarks.molecules.chemistry.tables import subset, to_table
from graphbench.benchmarks.molecules.chemistry.words import value_words
from graphbench.contracts import InputPart
from graphbench.data.worker_pool import available_cores, ordered_map
from graphbench.errors import BadInput
from graphbench.tables.layout import find_column

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
