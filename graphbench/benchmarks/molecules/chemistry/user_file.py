"""A user's file of molecules to a table: read, check every row, tell all problems at once."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from graphbench.benchmarks.molecules.chemistry.features import FeatureSet
from graphbench.benchmarks.molecules.chemistry.files import (
    MoleculeRows,
    TargetTask,
    classes_hint,
    missing_hint,
    parse_targets,
    parse_weights,
    points_for_commas,
    read_rows,
    shorten,
)
from graphbench.benchmarks.molecules.chemistry.problems import (
    RowProblem,
    describe_leaks,
    describe_problems,
    describe_repeats,
    find_repeats,
    refuse_problems,
)
from graphbench.benchmarks.molecules.chemistry.properties import combine_terms
from graphbench.benchmarks.molecules.chemistry.reading import MoleculeArrays, Recipe, Track, read_molecules
from graphbench.benchmarks.molecules.chemistry.tables import subset, to_table, with_targets, with_text, with_weights
from graphbench.contracts import GraphTable
from graphbench.errors import BadInput
from graphbench.tables.cells import Missing

logger = logging.getLogger(__name__)

OnError = Literal["stop", "skip"]

#: The word that asks for a computed target.
PENALIZED_LOGP = "penalized_logp"
_NAMED = 8  # lines that are named for each remark
#: Words for the splits, in lower case.
SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}


@dataclass(frozen=True)
class FileRequest:
    """What to read from a user's file.

    Args:
        file: see `graphbench.benchmarks.molecules.chemistry.files.read_rows` for the formats.
        smiles_column: where the SMILES stand.
        targets: target columns; `("penalized_logp",)` computes that property instead.
        task: what the targets are.
        num_classes: classes of a classification.
        classes: what the file calls them, from class 0 on; empty where it has their numbers.
        id_column: column with the molecules' names; None names them by their line.
        split_column: column that names each row's split, or has its fold number, if any.
        scaffold: whether Murcko scaffolds are wanted.
        on_error: whether one bad row stops everything, or bad rows are left out with a warning.
        weight: column with the weight of each row in the loss, if any.
        features: columns of atoms and bonds.
        missing: further words for missing targets; None for the usual ones alone, none for empty cells alone.
    """

    file: Path
    smiles_column: str = "smiles"
    targets: tuple[str, ...] = (PENALIZED_LOGP,)
    task: TargetTask = "regression"
    num_classes: int = 2
    classes: tuple[str, ...] = ()
    id_column: str | None = None
    split_column: str | None = None
    scaffold: bool = False
    on_error: OnError = "stop"
    weight: str | None = None
    features: FeatureSet = "ogb_cip"
    missing: tuple[Any, ...] | None = None

    @property
    def computed(self) -> bool:
        """Whether the target is computed from the molecule instead of read."""
        return self.targets == (PENALIZED_LOGP,)

    @property
    def columns(self) -> list[str]:
        """Columns to read beside the SMILES."""
        read = () if self.computed else self.targets
        others = filter(None, (self.weight, self.id_column, self.split_column))
        return list(dict.fromkeys([*read, *others]))

    @property
    def numbers(self) -> list[str]:
        """Columns that hold numbers."""
        return [*(() if self.computed or self.classes else self.targets), *filter(None, (self.weight,))]


@dataclass
class UserMolecules:
    """The usable molecules of a file.

    Args:
        table: OGB features, `y`, where asked for `weight`, and the texts `smiles` and `id`.
        scaffolds: one per molecule, where asked for.
        canonical: canonical SMILES of what the features show, one per molecule; equal ones are the same molecule.
        split_labels: one of `SPLIT_WORDS`, or a fold number, per molecule, where the file has a split column.
        left_out: rows of the file that cannot be used.
    """

    table: GraphTable
    scaffolds: list[str]
    canonical: list[str]
    split_labels: list[str]
    left_out: int = 0


def read_user_file(request: FileRequest, track: Track | None = None) -> UserMolecules:
    """Read and check a file of molecules.

    Args:
        request: what to read.
        track: shows the progress.

    Raises:
        BadInput: a problem with the file as a whole, or (with `on_error="stop"`) with any row; the message counts
            the problems and names lines.
    """
    rows = read_rows(request.file, request.smiles_column, request.columns)
    if request.computed and PENALIZED_LOGP in rows.header:
        raise BadInput(
            f"{request.file}: the target {PENALIZED_LOGP!r} is computed, but the file has a column of that name too. "
            "Rename the column: one word cannot mean both."
        )
    points_for_commas(rows, request.numbers)
    if rows.notes:
        logger.info("%s: %s", request.file, ", ".join(rows.notes))
    problems = list(rows.problems)
    y, weights = np.zeros((len(rows.lines), 0)), None
    if not request.computed:
        classes = (request.num_classes, request.classes)
        y, found = parse_targets(rows, request.targets, request.task, *classes, Missing.of(request.missing))
        problems += found if request.on_error == "stop" else _tell_masked(rows, y, found)
    if request.weight is not None:
        weights, found = parse_weights(rows, request.weight, Missing.of(request.missing))
        problems += found
    problems += _split_problems(rows, request.split_column)
    recipe = Recipe(request.features, "smallest_rings" if request.computed else None, request.scaffold, canonical=True)
    arrays = read_molecules(rows.columns[request.smiles_column], recipe, track=track)
    problems += [RowProblem(kind, rows.lines[row], detail) for row, kind, detail in arrays.problems]
    _report(problems, rows, request)
    _tell_remarks(arrays, rows)
    bad = {problem.line for problem in problems}
    kept = np.array([place for place, row in enumerate(arrays.rows) if rows.lines[row] not in bad], dtype=np.int64)
    if len(kept) == 0:
        told = describe_problems(problems, rows.source, rows.num_rows, rows.unit)
        raise BadInput(f"{told}\nNo usable molecule is left.")
    molecules = _collect(request, rows, arrays, (y, weights), kept)
    molecules.left_out = rows.num_rows - len(kept)
    return molecules


def _tell_masked(rows: MoleculeRows, y: np.ndarray, problems: list[RowProblem]) -> list[RowProblem]:
    """Say which cells count as missing because their rows have another target; what is left are rows without any."""
    with_target = {
        line for line, values in zip(rows.lines, y, strict=True) if y.shape[1] > 1 and np.isfinite(values).any()
    }
    if masked := [problem for problem in problems if problem.line in with_target]:
        what = "have a target that counts as missing"
        logger.warning("%s", describe_problems(masked, rows.source, rows.num_rows, rows.unit, what))
    return [problem for problem in problems if problem.line not in with_target]


def read_split_labels(request: FileRequest) -> list[str]:
    """Read the split column of a file alone.

    Raises:
        BadInput: the file cannot be read, or has no such column.
    """
    assert request.split_column is not None
    return read_rows(request.file, request.smiles_column, [request.split_column]).columns[request.split_column]


def _split_problems(rows: MoleculeRows, column: str | None) -> list[RowProblem]:
    if column is None or all(
        label.removesuffix(".0").isdecimal() for label in rows.columns[column]
    ):  # numbers of folds
        return []
    return [
        RowProblem("the split is not train, val or test", line, shorten(label))
        for line, label in zip(rows.lines, rows.columns[column], strict=True)
        if label.lower() not in SPLIT_WORDS
    ]


def _report(problems: list[RowProblem], rows: MoleculeRows, request: FileRequest) -> None:
    if request.on_error == "stop":
        advice = "Correct these rows, or leave them out with on_error=skip."
        if len(request.targets) == 1 and not request.computed and not request.classes:
            hint = classes_hint(rows, request.targets[0], request.task == "classification")
            advice = f"{hint.strip()} Or: {advice[0].lower()}{advice[1:]}" if hint else advice
        if not request.computed and not request.classes:
            advice += missing_hint(rows, request.targets, Missing.of(request.missing))
        refuse_problems(problems, rows.source, rows.num_rows, advice, rows.unit)
    elif problems:
        told = describe_problems(problems, rows.source, rows.num_rows, rows.unit)
        logger.warning("%s\nThese rows are left out.", told)


def _tell_remarks(arrays: MoleculeArrays, rows: MoleculeRows) -> None:
    """Say what of the molecules no column shows, a line for each kind."""
    lines: dict[str, list[int]] = {}
    for row, remark in arrays.remarks:
        for kind in remark.split("; "):
            lines.setdefault(kind, []).append(rows.lines[row])
    for kind, found in lines.items():
        named = ", ".join(f"{line:,}" for line in found[:_NAMED]) + (", ..." if len(found) > _NAMED else "")
        count = f"{len(found):,} molecule{'s have' if len(found) > 1 else ' has'}"
        logger.warning("%s: %s marks of %s (%s %s)", rows.source, count, kind, rows.unit, named)


def _collect(
    request: FileRequest,
    rows: MoleculeRows,
    arrays: MoleculeArrays,
    numbers: tuple[np.ndarray, np.ndarray | None],
    kept: np.ndarray,
) -> UserMolecules:
    """Attach targets, weights and texts to the molecules `kept` (places among the readable ones)."""
    source, (y, weights) = arrays.rows[kept].tolist(), numbers
    names = rows.columns[request.id_column] if request.id_column else [str(line) for line in rows.lines]
    smiles = [rows.columns[request.smiles_column][row] for row in source]
    targets = combine_terms(arrays.terms[kept]).reshape(len(kept), -1) if request.computed else y[source]
    table = with_targets(subset(to_table(arrays), kept), targets, exact=True)
    table = table if weights is None else with_weights(table, weights[source])
    table = with_text(table, {"smiles": smiles, "id": [names[row] for row in source]})
    scaffolds, canonical = arrays.scaffold_list() if request.scaffold else [], arrays.canonical_list()
    labels = rows.columns[request.split_column] if request.split_column else []
    found = UserMolecules(
        table,
        [scaffolds[place] for place in kept.tolist()] if scaffolds else [],
        [canonical[place] for place in kept.tolist()],
        [labels[row].lower() for row in source] if labels else [],
    )
    _tell_repeats(found, targets, smiles, [rows.lines[row] for row in source], rows)
    return found


def _tell_repeats(
    molecules: UserMolecules, targets: np.ndarray, smiles: list[str], lines: list[int], rows: MoleculeRows
) -> None:
    """Say which molecules are there more than once; a warning where that can harm."""
    repeats = find_repeats(molecules.canonical, targets)
    if not repeats.rows:
        return
    told = describe_repeats(repeats, targets, smiles, lines, rows.source, rows.unit)
    logger.log(logging.WARNING if repeats.contradicting else logging.INFO, "%s", told)
    if molecules.split_labels:
        splits = [SPLIT_WORDS.get(label, f"fold {label}") for label in molecules.split_labels]
        if told := describe_leaks(repeats, splits, smiles, rows.source):
            logger.warning("%s", told)
