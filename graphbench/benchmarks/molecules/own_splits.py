"""Split a user's molecules: at random, by scaffolds, clusters or time, into folds, by a column or separate files."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from graphbench.benchmarks.molecules.chemistry.clusters import (
    butina_clusters,
    leader_clusters,
    maxmin_picks,
    morgan_bits,
)
from graphbench.benchmarks.molecules.chemistry.problems import describe_leaks, find_repeats, has_repeats
from graphbench.benchmarks.molecules.chemistry.scaffolds import scaffold_split
from graphbench.benchmarks.molecules.chemistry.tables import stored_text
from graphbench.benchmarks.molecules.chemistry.user_file import UserMolecules
from graphbench.contracts import SPLITS
from graphbench.data.package_files import file_sha256
from graphbench.data.splits import (
    SPLIT_WORDS,
    check_split,
    column_folds,
    complete_split,
    fold_numbers,
    group_numbers,
    k_fold_split,
    permutation,
    random_split,
    unused_shares,
    without_share,
)
from graphbench.errors import BadInput, check_choice, check_range
from graphbench.tables.texts import Texts

logger = logging.getLogger(__name__)

SplitKind = Literal["random", "scaffold", "scaffold_balanced", "butina", "leader", "maxmin", "time", "column"]
RepeatRule = Literal["together", "apart"]
Rows = Mapping[str, np.ndarray | Tensor]

_CLUSTERS = ("butina", "leader")
#: Default Tanimoto distance up to which a molecule joins a centroid or leader: a similarity of 0.35.
CLUSTER_DISTANCE = 0.65
#: Maps splits that are the same with every seed to what determines them.
_SEEDLESS = {"scaffold": "the sizes of the scaffolds", "time": "the times"}
#: Splits without folds, with the reason.
_WITHOUT_FOLDS = {"time": "its test set is the newest molecules", "maxmin": "its test set is the picks"}
#: Splits that are possible for any molecules.
_ANEW = "random, scaffold, scaffold_balanced, butina, leader or maxmin"


@dataclass(frozen=True)
class MoleculeSplit:
    """Options of `Molecules` for the split of `file`; `files` are those of "val" and "test", if separate.

    `further` files are joined to `file`; `time` is the column of times and their format; `distance` is for clusters,
    `CLUSTER_DISTANCE` if None.
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
    time: tuple[str | None, str | None] = (None, None)
    distance: float | None = None

    @property
    def source(self) -> str:
        """Return the names of the training files."""
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
        self._check_kind()
        for name, path in self.files.items():
            if self.kind == "column" or self.folds is not None:
                option = "split=column" if self.kind == "column" else f"folds={self.folds}"
                raise BadInput(f"{name}_file={path} is the {name} part, and {option} makes another; leave one out.")
            if path.resolve() in {one.resolve() for one in (self.file, *self.further)}:
                raise BadInput(f"{name}_file={path}: this is `file` itself, which is for training.")
        if len({path.resolve() for path in self.files.values()}) < len(self.files):
            raise BadInput(f"val_file and test_file are both {self.files['test']}: give two files, or one of them.")

    def _check_kind(self) -> None:
        """Refuse options of one way to split together with another."""
        if self.kind in _SEEDLESS and self.seed:
            other = "Use split=scaffold_balanced for scaffolds in another order, or leave"
            raise BadInput(
                f"split_seed={self.seed}: split={self.kind} has no seed, since {_SEEDLESS[self.kind]} decide. "
                f"{other if self.kind == 'scaffold' else 'Leave'} the seed out."
            )
        if (self.kind == "time") != (self.time[0] is not None):
            raise BadInput("split=time and time_column=NAME belong together: give both or neither.")
        if self.time[1] is not None and self.kind != "time":
            raise BadInput(f"time_format={self.time[1]} belongs to split=time, not to split={self.kind}.")
        if self.distance is not None and self.kind not in _CLUSTERS:
            raise BadInput(f"cluster_distance={self.distance} belongs to split=butina or leader, not to {self.kind}.")
        if self.distance is not None:
            check_range("cluster_distance", self.distance, above=0, below=1)
        if self.folds is not None and self.kind in _WITHOUT_FOLDS:
            raise BadInput(f"folds={self.folds}: split={self.kind} has no folds, since {_WITHOUT_FOLDS[self.kind]}.")

    def check_free(self, option: str) -> None:
        """Refuse an option that resplits the molecules although a file or a column fixes the split."""
        if "test" in self.files:
            raise BadInput(f"{option}: test_file={self.files['test']} fixes the test part; leave it out to resplit.")
        if self.kind == "column":
            raise BadInput(
                f"{option}: the column {self.column!r} fixes the split. Add --resplit {_ANEW} to split the molecules "
                "anew."
            )

    def check_folds(self, count: int, labels: Sequence[str]) -> None:
        """Refuse a number of folds that differs from that of a column with these cells."""
        numbers = self._fold_numbers(labels)
        if numbers is None:
            self.check_free(f"--folds {count}")
        elif int(numbers.max()) + 1 != count:
            raise BadInput(f"--folds {count}: the column {self.column!r} has {int(numbers.max()) + 1} folds.")

    def check_seed(self) -> None:
        """Refuse seeds if the file or the scaffolds decide the split."""
        self.check_free("--split-seeds")
        if self.kind in _SEEDLESS:
            other = "scaffold_balanced for scaffolds in another order" if self.kind == "scaffold" else "another split"
            raise BadInput(f"--split-seeds: split={self.kind} depends on no seed. Add --resplit {other} each time.")

    def key(self) -> dict[str, Any]:
        """Return the options that determine the split as JSON values, for the store."""
        folds = {} if self.folds is None and self.fold is None else {"folds": [self.folds, self.fold]}
        files = {f"{name}_file": [file_sha256(path), path.suffix.lower()] for name, path in self.files.items()}
        repeats = {"repeats": self.repeats} if self.repeats == "together" else {}  # earlier versions split them
        further: dict[str, Any] = {"time": list(self.time)} if self.kind == "time" else {}
        if self.kind in _CLUSTERS:
            further["cluster_distance"] = self._radius
        return {"split": [self.kind, list(self.fractions), self.seed], **folds, **files, **repeats, **further}

    @property
    def _radius(self) -> float:
        return CLUSTER_DISTANCE if self.distance is None else self.distance

    def divide(self, molecules: UserMolecules, others: Mapping[str, UserMolecules]) -> tuple[dict[str, Tensor], str]:
        """Split the molecules of `file`, given those of `files`.

        Returns:
            Rows of `file` in each split without a separate file, and a description of the split.
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
            groups = molecules.scaffolds or self._groups(molecules.canonical)
            if self.kind in _CLUSTERS:
                groups = self._clusters(molecules.canonical)
            rows = k_fold_split(len(molecules.table), self.folds, self.fold, self.seed, groups)
            description = f"fold {self.fold} of {self.folds} tests, the next one validates"
            return rows, description + unused_shares(self.fractions)
        parts = self._cut(molecules, np.arange(len(molecules.table)), SPLITS, np.array(self.fractions))
        return parts, self._describe_times(molecules, parts) if self.kind == "time" else ""

    def _by_files(self, molecules: UserMolecules) -> tuple[Rows, str]:
        train = np.ones(len(molecules.table), dtype=bool)
        masks = {"train": train} | dict.fromkeys(self.files, ~train)
        rows, cut = complete_split(masks, self.fractions, partial(self._cut, molecules))
        named = ", ".join(f"{name} from {path.name}" for name, path in self.files.items())
        return rows, f"train from {self.source}, {named}{cut}"

    def _by_column(self, molecules: UserMolecules) -> tuple[Rows, str]:
        """Split by the words or fold numbers of the file's column, and add the missing splits."""
        name, numbers = self.column, self._fold_numbers(molecules.split_labels)
        if numbers is not None:
            count, fold = int(numbers.max()) + 1, self.fold or 0
            if self.folds not in (None, count):
                raise BadInput(f"folds={self.folds}: the column {name!r} has {count} folds.")
            description = f"fold {fold} of {count} in {name} tests, the next one validates"
            return column_folds(numbers, fold), description + unused_shares(self.fractions)
        if self.folds is not None or self.fold is not None:
            option = f"folds={self.folds}" if self.folds is not None else f"fold={self.fold}"
            raise BadInput(f"{option}: the column {name!r} has words, not fold numbers.")
        if number := next((label for label in molecules.split_labels if label not in SPLIT_WORDS), ""):
            raise BadInput(f"split_column={name}: some files have words, but others fold numbers such as {number}.")
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
        """Split the molecules `source` according to `kind`; at random for `column`."""
        share = dict(zip(names, shares.tolist(), strict=True))
        canonical = Texts(molecules.canonical[row] for row in source)
        groups = self._groups(canonical)
        if self.kind.startswith("scaffold") or self.kind in _CLUSTERS:
            seed = None if self.kind == "scaffold" else self.seed
            has_scaffolds = len(molecules.scaffolds) > 0
            wholes = Texts(molecules.scaffolds[row] for row in source) if has_scaffolds else self._clusters(canonical)
            what = "cluster" if self.kind in _CLUSTERS else "scaffold"
            split = scaffold_split(wholes, [share.get(name, 0.0) for name in SPLITS], seed, what)
            return {name: source[split[name]] for name in names}
        if self.kind == "time":
            try:
                parts = ordered_split(molecules.times[source], share, groups)
            except BadInput as error:
                raise BadInput(f"time_column={self.time[0]}: {error} Use other fractions or split=random.") from error
            return {name: source[rows] for name, rows in parts.items()}
        if self.kind == "maxmin":
            return {name: source[rows] for name, rows in maxmin_split(canonical, groups, share, self.seed).items()}
        parts_at_random = random_split(len(source), share, self.seed, groups)
        return {name: source[rows.numpy()] for name, rows in parts_at_random.items()}

    def _clusters(self, canonical: Sequence[str]) -> Texts:
        """Label each molecule with its cluster, and log the number of clusters."""
        if self.kind == "leader":  # rows of one molecule have one leader, so each molecule is compared once
            member = group_numbers(canonical)
            first = np.unique(member, return_index=True)[1]
            numbers = leader_clusters(morgan_bits(canonical[row] for row in first), self._radius)[member]
        else:
            numbers = butina_clusters(morgan_bits(canonical), self._radius)
        sizes = np.bincount(numbers)
        logger.info(
            "%s: %s makes %d clusters of %d molecules up to the distance %g; the largest has %d, and %d have one.",
            self.source, self.kind, len(sizes), len(numbers), self._radius, sizes.max(), (sizes == 1).sum(),
        )  # fmt: skip
        return Texts(map(str, numbers.tolist()))

    def _describe_times(self, molecules: UserMolecules, rows: Mapping[str, np.ndarray]) -> str:
        """Describe the oldest and newest time of each part; a repeated molecule counts with its first time."""
        times, repeated = molecules.times, self.repeats == "together" and has_repeats(molecules.canonical)
        counted = smallest_of_group(times, molecules.canonical) if repeated else times

        def text_of(time: float) -> str:
            return molecules.time_texts[int(np.argmax(times == time))]

        spans = [
            f"{name} {text_of(chosen.min())} to {text_of(chosen.max())}"
            for name, chosen in ((name, counted[rows[name]]) for name in SPLITS)
            if len(chosen)
        ]
        note = "; molecules that are there more than once count with their first time" if repeated else ""
        return f"by {self.time[0]}: {', '.join(spans)}{note}"

    def _groups(self, canonical: Sequence[str]) -> Sequence[str] | None:
        """Return groups that stay in one split; None without repeats, which keeps the splits of earlier versions."""
        return canonical if self.repeats == "together" and has_repeats(canonical) else None

    def _log_leaks(
        self, molecules: UserMolecules, rows: Mapping[str, Tensor], others: Mapping[str, UserMolecules]
    ) -> None:
        """Warn about molecules that are in several files of different splits."""
        labels = np.full(len(molecules.table), "train", dtype=object)
        for name, chosen in rows.items():
            labels[chosen.numpy()] = name
        splits, canonical = labels.tolist(), Texts(molecules.canonical)
        smiles = Texts(stored_text(molecules.table, "smiles"))
        for name, other in others.items():
            canonical.extend(other.canonical)
            smiles.extend(stored_text(other.table, "smiles"))
            splits += [name] * len(other.canonical)
        repeats = find_repeats(canonical, np.full((len(canonical), 1), np.nan))
        if leaks := describe_leaks(repeats, splits, smiles, f"{self.source} and the other files"):
            logger.warning("%s", leaks)


def smallest_of_group(values: np.ndarray, groups: Sequence[str]) -> np.ndarray:
    """Return the smallest value among the rows of each row's group `[rows]`.

    Examples:
        >>> smallest_of_group(np.array([3.0, 5.0, 2.0]), ["a", "b", "a"]).tolist()
        [2.0, 5.0, 2.0]
    """
    member = group_numbers(groups)
    first = np.full(member.max() + 1, np.inf)
    np.minimum.at(first, member, values)
    return first[member]


def ordered_split(
    values: np.ndarray, parts: Mapping[str, float], groups: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """Cut rows by ascending values, such as dates: the smallest go to the first part, the largest to the last.

    Rows with equal values stay in one part: each cut moves to the nearest place between two values (the first one on
    ties) that leaves a value for every part.

    Args:
        values: value of each row `[rows]`.
        parts: name -> share of the rows; shares add up to 1. A part of 0 stays empty.
        groups: label of every row; rows with the same label stay together and count with their smallest value.

    Returns:
        Rows of each part, ascending.

    Examples:
        >>> years = np.array([2021.0, 2019.0, 2020.0, 2019.0])
        >>> {name: rows.tolist() for name, rows in ordered_split(years, {"train": 0.5, "test": 0.5}).items()}
        {'train': [1, 3], 'test': [0, 2]}
    """
    if groups is not None:
        values = smallest_of_group(values, groups)
    distinct, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    wanted = {name: share for name, share in parts.items() if share}
    if len(distinct) < len(wanted):
        raise BadInput(f"{len(distinct)} different values cannot be cut into {len(wanted)} parts in their order.")
    ends, cuts = np.cumsum(counts), [0]
    # Place each cut in turn, as near as possible while leaving enough values for the later cuts.
    for number, due in enumerate(np.cumsum(list(wanted.values()))[:-1] * len(values)):
        choices = ends[cuts[-1] : len(distinct) - (len(wanted) - number - 1)]  # a value for this and each later part
        cuts.append(cuts[-1] + 1 + int(np.abs(choices - due).argmin()))
    spans = dict(zip(wanted, zip(cuts, [*cuts[1:], len(distinct)], strict=True), strict=True))
    bounds = {name: spans.get(name, (0, 0)) for name in parts}
    return {name: np.flatnonzero((place >= low) & (place < high)) for name, (low, high) in bounds.items()}


def maxmin_split(
    smiles: Sequence[str], groups: Sequence[str] | None, parts: Mapping[str, float], seed: int
) -> dict[str, np.ndarray]:
    """Use diverse molecules for test, the next ones for validation, and all others for training.

    The picks of `maxmin_picks`, starting from one chosen by `seed`, go to the test set until its share is reached, then
    to validation, as in DeepChem's `MaxMinSplitter` and scikit-fingerprints' `maxmin_train_valid_test_split`. Test
    molecules differ from each other as much as possible, but each may have neighbours in training. `parts` are shares
    that add up to 1. Rows with the same label in `groups` stay together, and are picked by the first of them.

    Returns:
        Rows of each part, ascending.

    Examples:
        >>> rows = maxmin_split(["CCCCO", "c1ccccc1", "CCCCCO"], None, {"train": 0.6, "val": 0, "test": 0.4}, 0)
        >>> {name: part.tolist() for name, part in rows.items()}
        {'train': [0, 1], 'val': [], 'test': [2]}
    """
    labels = np.arange(len(smiles)) if groups is None else group_numbers(groups)
    _, first, counts = np.unique(labels, return_index=True, return_counts=True)
    wanted = {name: parts.get(name, 0.0) * len(smiles) for name in ("test", "val")}
    chosen = {name: np.zeros(0, dtype=np.int64) for name in parts}
    if needed := min(len(first), math.ceil(sum(wanted.values()))):
        picks = maxmin_picks(morgan_bits(smiles[row] for row in first), needed, int(permutation(len(first), seed)[0]))
        for name, due in wanted.items():
            # Each group is picked by one molecule, and fills a part with all of its molecules.
            count = int((np.cumsum(counts[picks]) <= due + 1e-9).sum())
            count = max(count, 1) if due else 0
            chosen[name], picks = np.flatnonzero(np.isin(labels, picks[:count])), picks[count:]
    used = np.concatenate(list(chosen.values()))
    chosen["train"] = np.setdiff1d(np.arange(len(smiles)), used)
    if empty := [name for name, share in parts.items() if share and not len(chosen[name])]:
        raise BadInput(
            f"split=maxmin leaves {' and '.join(empty)} empty: {len(first)} different molecules are too few for "
            f"{dict(parts)}. Use other fractions or split=random."
        )
    return chosen
