"""Split a user's molecules at random, by scaffolds, into folds, by a column, or by separate files."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from graphbench.benchmarks.molecules.chemistry.problems import describe_leaks, find_repeats
from graphbench.benchmarks.molecules.chemistry.scaffolds import scaffold_split
from graphbench.benchmarks.molecules.chemistry.tables import read_text
from graphbench.benchmarks.molecules.chemistry.user_file import SPLIT_WORDS, UserMolecules
from graphbench.contracts import SPLITS
from graphbench.data.package_files import file_sha256
from graphbench.data.splits import (
    check_split,
    column_folds,
    complete_split,
    fold_numbers,
    k_fold_split,
    random_split,
    unused_shares,
    without_share,
)
from graphbench.errors import BadInput, check_choice, check_range

logger = logging.getLogger(__name__)

SplitKind = Literal["random", "scaffold", "scaffold_balanced", "column"]
RepeatRule = Literal["together", "apart"]
Rows = Mapping[str, np.ndarray | Tensor]


@dataclass(frozen=True)
class MoleculeSplit:
    """Options of `Molecules` for the split of `file`; `files` are those of "val" and "test", if separate.

    `further` files are one with `file`.
    """

    file: Path
    kind: SplitKind = "random"
    column: str | None = None
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1)
    seed: int = 0
    folds: int | None = None
    fold: int | None = None
    repeats: RepeatRule = "together"
    files: Mapping[str, Path] = field(default_factory=dict)
    further: tuple[Path, ...] = ()

    @property
    def source(self) -> str:
        """Name the files that train."""
        return ", ".join(path.name for path in (self.file, *self.further))

    def check(self) -> None:
        """Refuse options that are out of range, or contradict each other."""
        check_choice("split", self.kind, get_args(SplitKind))
        check_choice("repeats", self.repeats, get_args(RepeatRule))
        if self.kind != "column" and (self.folds is None) != (self.fold is None):
            raise BadInput("folds=NUMBER and fold=WHICH belong together: give both or neither.")
        if self.folds is not None:
            check_range("folds", self.folds, at_least=3, whole=True)
        if self.fold is not None:
            check_range("fold", self.fold, at_least=0, below=self.folds, whole=True)
        if (self.kind == "column") != (self.column is not None):
            raise BadInput("split=column and split_column=NAME belong together: give both or neither.")
        if self.kind == "scaffold" and self.seed:
            raise BadInput(
                f"split_seed={self.seed}: split=scaffold has no seed. Take split=scaffold_balanced for scaffolds "
                "in another order, or leave the seed out."
            )
        for name, path in self.files.items():
            if self.kind == "column" or self.folds is not None:
                option = "split=column" if self.kind == "column" else f"folds={self.folds}"
                raise BadInput(f"{name}_file={path} is the {name} part, and {option} makes another; leave one out.")
            if path.resolve() in {one.resolve() for one in (self.file, *self.further)}:
                raise BadInput(f"{name}_file={path}: this is `file` itself, whose molecules train.")
        if len({path.resolve() for path in self.files.values()}) < len(self.files):
            raise BadInput(f"val_file and test_file are both {self.files['test']}: give two files, or one of them.")

    def check_free(self, option: str) -> None:
        """Refuse an option that splits the molecules anew although a file or a column fixes the split."""
        if "test" in self.files:
            raise BadInput(f"{option}: test_file={self.files['test']} fixes the test part; leave it out to split anew.")
        if self.kind == "column":
            raise BadInput(
                f"{option}: the column {self.column!r} fixes the split. Add --resplit random, scaffold or "
                "scaffold_balanced to split the molecules anew."
            )

    def check_folds(self, count: int, labels: Sequence[str]) -> None:
        """Refuse another number of folds than a column with these cells has."""
        numbers = self._fold_numbers(labels)
        if numbers is None:
            self.check_free(f"--folds {count}")
        elif int(numbers.max()) + 1 != count:
            raise BadInput(f"--folds {count}: the column {self.column!r} has {int(numbers.max()) + 1} folds.")

    def check_seed(self) -> None:
        """Refuse seeds if the file or the scaffolds decide the split."""
        self.check_free("--split-seeds")
        if self.kind == "scaffold":
            raise BadInput(
                "--split-seeds: split=scaffold depends on no seed. Add --resplit scaffold_balanced for scaffolds in "
                "another order each time."
            )

    def key(self) -> dict[str, Any]:
        """Return the options that decide the split as JSON values, for the store."""
        folds = {} if self.folds is None and self.fold is None else {"folds": [self.folds, self.fold]}
        files = {f"{name}_file": [file_sha256(path), path.suffix.lower()] for name, path in self.files.items()}
        repeats = {"repeats": self.repeats} if self.repeats == "together" else {}  # earlier versions split them
        return {"split": [self.kind, list(self.fractions), self.seed], **folds, **files, **repeats}

    def divide(self, molecules: UserMolecules, others: Mapping[str, UserMolecules]) -> tuple[dict[str, Tensor], str]:
        """Split the molecules of `file`, given those of `files`.

        Returns:
            Rows of `file` in each split that has no file of its own, and a description of the split.
        """
        rows, description = self._by_files(molecules) if others else self._by_options(molecules)
        split = {name: torch.as_tensor(chosen).to(torch.int64) for name, chosen in rows.items() if name not in others}
        check_split(split, len(molecules.table), empty=without_share(self.fractions))
        if others:
            self._log_leaks(molecules, split, others)
        return split, description

    def _by_options(self, molecules: UserMolecules) -> tuple[Rows, str]:
        if self.kind == "column":
            return self._by_column(molecules)
        if self.folds is not None and self.fold is not None:
            seed = 0 if self.kind == "scaffold" else self.seed
            groups = molecules.scaffolds or self._groups(molecules.canonical)
            description = f"fold {self.fold} of {self.folds} tests, the next one validates"
            rows = k_fold_split(len(molecules.table), self.folds, self.fold, seed, groups)
            return rows, description + unused_shares(self.fractions)
        return self._cut(molecules, np.arange(len(molecules.table)), SPLITS, np.array(self.fractions)), ""

    def _by_files(self, molecules: UserMolecules) -> tuple[Rows, str]:
        train = np.ones(len(molecules.table), dtype=bool)
        masks = {"train": train} | dict.fromkeys(self.files, ~train)
        rows, cut = complete_split(masks, self.fractions, partial(self._cut, molecules))
        named = ", ".join(f"{name} from {path.name}" for name, path in self.files.items())
        return rows, f"train from {self.source}, {named}{cut}"

    def _by_column(self, molecules: UserMolecules) -> tuple[Rows, str]:
        """Split by the words or fold numbers of the file's column, completed by what it lacks."""
        name, numbers = self.column, self._fold_numbers(molecules.split_labels)
        if numbers is not None:
            count, fold = int(numbers.max()) + 1, self.fold or 0
            if self.folds not in (None, count):
                raise BadInput(f"folds={self.folds}: the column {name!r} has {count} folds.")
            description = f"fold {fold} of {count} in {name} tests, the next one validates"
            return column_folds(numbers, fold), description + unused_shares(self.fractions)
        if self.folds is not None or self.fold is not None:
            option = f"folds={self.folds}" if self.folds is not None else f"fold={self.fold}"
            raise BadInput(f"{option}: the column {name!r} has words, and no fold numbers.")
        words = np.array([SPLIT_WORDS[label] for label in molecules.split_labels])
        masks: dict[str, np.ndarray] = {split: words == split for split in SPLITS if (words == split).any()}
        rows, cut = complete_split(masks, self.fractions, partial(self._cut, molecules))
        return rows, f"as {name} says{cut}"

    def _fold_numbers(self, labels: Sequence[str]) -> np.ndarray | None:
        try:
            return fold_numbers(labels)
        except BadInput as error:
            raise BadInput(f"split_column={self.column}: {error}") from error

    def _cut(
        self, molecules: UserMolecules, source: np.ndarray, names: Sequence[str], shares: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Split the molecules `source` by scaffolds or at random."""
        share = dict(zip(names, shares.tolist(), strict=True))
        if self.kind.startswith("scaffold"):
            seed = self.seed if self.kind == "scaffold_balanced" else None
            scaffolds = [molecules.scaffolds[row] for row in source.tolist()]
            split = scaffold_split(scaffolds, [share.get(name, 0.0) for name in SPLITS], seed)
            return {name: source[split[name]] for name in names}
        groups = self._groups([molecules.canonical[row] for row in source.tolist()])
        parts = random_split(len(source), share, self.seed, groups)
        return {name: source[rows.numpy()] for name, rows in parts.items()}

    def _groups(self, canonical: list[str]) -> list[str] | None:
        """Return groups that stay in one split; None without repeats, whose splits stay as in earlier versions."""
        return None if self.repeats == "apart" or len(set(canonical)) == len(canonical) else canonical

    def _log_leaks(
        self, molecules: UserMolecules, rows: Mapping[str, Tensor], others: Mapping[str, UserMolecules]
    ) -> None:
        """Warn of molecules that are in several files of different splits."""
        labels = np.full(len(molecules.table), "train", dtype=object)
        for name, chosen in rows.items():
            labels[chosen.numpy()] = name
        splits, canonical, smiles = labels.tolist(), list(molecules.canonical), read_text(molecules.table, "smiles")
        for name, other in others.items():
            canonical += other.canonical
            smiles += read_text(other.table, "smiles")
            splits += [name] * len(other.canonical)
        repeats = find_repeats(canonical, np.full((len(canonical), 1), np.nan))
        if leaks := describe_leaks(repeats, splits, smiles, f"{self.source} and the other files"):
            logger.warning("%s", leaks)
