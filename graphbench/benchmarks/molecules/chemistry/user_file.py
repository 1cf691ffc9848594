"""Read a user's file of molecules into a table; check every row and report all problems at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from graphbench.benchmarks.molecules.chemistry.clusters import check_pairs
from graphbench.benchmarks.molecules.chemistry.features import FeatureSet
from graphbench.benchmarks.molecules.chemistry.files import (
    MoleculeRows,
    TargetTask,
    classes_hint,
    missing_hint,
    parse_targets,
    parse_times,
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
from graphbench.benchmarks.molecules.chemistry.reading import MoleculeArrays, Recipe, Track
from graphbench.benchmarks.molecules.chemistry.tables import (
    GraphsOf,
    read_kept,
    read_share,
    with_bounds,
    with_targets,
    with_text,
    with_weights,
)
from graphbench.benchmarks.molecules.own_features import MoleculeFeatures, with_numbers
from graphbench.contracts import GraphTable
from graphbench.contracts.spec import METRICS
from graphbench.data.columns import to_float32
from graphbench.data.parts.kept import KeptParts
from graphbench.data.parts.shares import Share
from graphbench.data.splits import SPLIT_WORDS
from graphbench.errors import BadInput
from graphbench.tables.cells import Missing, split_signs
from graphbench.tables.texts import Texts

logger = logging.getLogger(__name__)

OnError = Literal["stop", "skip"]

#: Name of the computed target.
PENALIZED_LOGP = "penalized_logp"
_NAMED = 8  # lines that a message names for each remark


@dataclass(frozen=True)
class FileRequest:
    """Options of `Molecules` for reading a file.

    `targets` is `("penalized_logp",)` if that property is computed. `classes` is empty if the file has class numbers.
    `missing` is None for only the usual words, () for only empty cells. Targets in `log10` must be above 0. `scaffold`
    requests Murcko scaffolds, `time_column` the time of each molecule, in the format `time_format`. `paired` means
    that all molecules will be compared with each other.
    """

    file: Path
    smiles_column: str = "smiles"
    targets: tuple[str, ...] = (PENALIZED_LOGP,)
    task: TargetTask = "regression"
    num_classes: int = 2
    classes: tuple[str, ...] = ()
    id_column: str | None = None
    split_column: str | None = None
    time_column: str | None = None
    time_format: str | None = None
    scaffold: bool = False
    paired: bool = False
    on_error: OnError = "stop"
    weight: str | None = None
    features: FeatureSet = "ogb_cip"
    missing: tuple[Any, ...] | None = None
    log10: tuple[str, ...] = ()
    beside: MoleculeFeatures = MoleculeFeatures()  # noqa: RUF009 - frozen dataclass

    @property
    def computed(self) -> bool:
        """Return whether the target is computed from the molecule instead of read."""
        return self.targets == (PENALIZED_LOGP,)

    @property
    def columns(self) -> list[str]:
        """Return the columns to read in addition to the SMILES."""
        targets = () if self.computed else self.targets
        others = filter(None, (self.weight, self.id_column, self.split_column, self.time_column))
        return list(dict.fromkeys([*targets, *others, *self.beside.columns]))

    @property
    def numbers(self) -> list[str]:
        """Return the columns that contain numbers."""
        return [
            *(() if self.computed or self.classes else self.targets),
            *filter(None, (self.weight,)),
            *self.beside.numbers,
        ]


def count_classes(task: TargetTask, num_classes: int | None, classes: list[str] | None) -> int | None:
    """Return the number of classes; refuse names for another task, repeated names, or a different number of names."""
    if classes is None:
        return num_classes
    if task != "classification":
        raise BadInput(f"classes belongs to task=classification, not to task={task}.")
    if len(set(classes)) != len(classes):
        raise BadInput(f"classes: expected distinct names, got {classes}.")
    if num_classes not in (None, len(classes)):
        raise BadInput(f"num_classes={num_classes}, but classes names {len(classes)}: give one of the two.")
    return len(classes)


def check_targets(request: FileRequest, num_classes: int | None, metric: str | None) -> None:
    """Refuse targets or a metric that do not match the task."""
    targets, task = request.targets, request.task
    if request.log10 and (task != "regression" or request.computed or not set(request.log10) <= set(targets)):
        raise BadInput(
            f"log10={list(request.log10)}: expected target columns of a regression, of {', '.join(targets)} ({task})."
        )
    if not targets or len(set(targets)) != len(targets):
        raise BadInput(f"target: expected one or several distinct columns, got {list(targets)}.")
    if PENALIZED_LOGP in targets and (len(targets) > 1 or task != "regression"):
        raise BadInput(f"target={PENALIZED_LOGP} is computed: it must be the only target, of a regression.")
    if task == "classification" and (len(targets) > 1 or num_classes is None or num_classes < 2):
        raise BadInput(
            "task=classification needs one target column, and num_classes of 2 or more or the names of the classes "
            "(classes=[inactive, active])."
        )
    if task != "classification" and num_classes is not None:
        raise BadInput(f"num_classes belongs to task=classification, not to task={task}.")
    if metric is not None and metric not in METRICS[task]:
        raise BadInput(f"metric={metric}: a {task} is scored by {', '.join(METRICS[task])}.")
    if metric is not None and metric.startswith("scaled_") and len(targets) == 1 and not request.log10:
        raise BadInput(f"metric={metric} is for several targets; of one it is {metric.removeprefix('scaled_')}.")
    if metric == "AUROC" and task == "classification" and num_classes != 2:
        raise BadInput("metric=AUROC needs num_classes=2.")


@dataclass
class UserMolecules:
    """The usable molecules of a file.

    Args:
        table: features, `y`, `y_lower` and `y_upper` if the file has bounds, `weight` if requested, and the texts
            `smiles` and `id`.
        scaffolds: scaffold of each molecule, if requested.
        canonical: canonical SMILES of what the features show for each molecule; equal for equal molecules.
        split_labels: one of `SPLIT_WORDS` or a fold number for each molecule, if the file has a split column.
        left_out: rows of the file that cannot be used.
        times: number that is larger for later molecules, float64 `[M]`, and
        time_texts: its cell in the file, if the file has a column of times.
    """

    table: GraphTable
    scaffolds: Sequence[str]
    canonical: Sequence[str]
    split_labels: list[str]
    left_out: int = 0
    times: np.ndarray = field(default_factory=lambda: np.zeros(0))
    time_texts: Sequence[str] = ()


def recipe_of(request: FileRequest) -> Recipe:
    """Return the values to compute for every molecule of a file."""
    return Recipe(request.features, "smallest_rings" if request.computed else None, request.scaffold, canonical=True)


def read_file_share(request: FileRequest, share: Share, kept: KeptParts, track: Track | None = None) -> int:
    """Read a share of the molecules of a file for `read_user_file`; return the number of missing parts."""
    smiles = read_rows(request.file, request.smiles_column, []).columns[request.smiles_column]
    return read_share(smiles, recipe_of(request), kept, share, track)


def read_user_file(request: FileRequest, track: Track | None = None, kept: KeptParts | None = None) -> UserMolecules:
    """Read and check a file of molecules.

    The graphs of a large file stay in the `kept` parts in the store; without them all graphs are in memory.

    Raises:
        BadInput: there is a problem with the file as a whole, or (with `on_error="stop"`) with any row; the message
            counts the problems and names lines.
    """
    rows = read_rows(request.file, request.smiles_column, request.columns)
    if request.paired and request.on_error == "stop":  # else it depends on the rows that are left
        check_pairs(len(rows.lines))
    if request.computed and PENALIZED_LOGP in rows.header:
        raise BadInput(
            f"{request.file}: the target {PENALIZED_LOGP!r} is computed, but the file has a column of that name too. "
            "Rename the column: one word cannot mean both."
        )
    # Signs come before commas: ">0,5" is a number with a decimal comma only without its sign.
    signs = _take_signs(request, rows)
    points_for_commas(rows, request.numbers)
    if rows.notes:
        logger.info("%s: %s", request.file, ", ".join(rows.notes))
    y, weights, problems = _parse_numbers(request, rows)
    times: np.ndarray | None = None
    if request.time_column is not None:
        times, faults = parse_times(rows, request.time_column, request.time_format, Missing.of(request.missing))
        problems += faults
    beside, marred = request.beside.parse(rows.columns)
    problems += [RowProblem(fault, rows.lines[row], shorten(text)) for row, fault, text in marred]
    arrays, graphs = read_kept(rows.columns[request.smiles_column], recipe_of(request), track, kept)
    problems += [RowProblem(kind, rows.lines[row], detail) for row, kind, detail in arrays.problems]
    _report(problems, rows, request)
    _log_remarks(arrays, rows)
    bad = {problem.line for problem in problems}  # lines, since rows that could not be split into cells have no row
    usable = np.flatnonzero(~np.isin(np.asarray(rows.lines)[arrays.rows], list(bad)))
    if len(usable) == 0:
        description = describe_problems(problems, rows.source, rows.num_rows, rows.unit)
        raise BadInput(f"{description}\nNo usable molecule is left.")
    molecules = _collect(request, rows, arrays, graphs, (y, signs), weights, usable)
    if times is not None:
        source = arrays.rows[usable].tolist()
        molecules.times = times[source]
        molecules.time_texts = Texts(rows.columns[request.time_column or ""][row] for row in source)
    if request.beside.columns:
        chosen = to_float32(beside[arrays.rows[usable]], f"{rows.source}: features")
        molecules.table = with_numbers(molecules.table, torch.from_numpy(chosen))
    return molecules


def read_split_labels(request: FileRequest) -> Sequence[str]:
    """Read only the split column of a file, without labels that name no split."""
    assert request.split_column is not None
    labels = read_rows(request.file, request.smiles_column, [request.split_column]).columns[request.split_column]
    return list(compress(labels, _name_splits(labels)[0]))


def _take_signs(request: FileRequest, rows: MoleculeRows) -> np.ndarray | None:
    """Remove the signs of bounds from the targets in place, like `split_signs`; return None if there are none."""
    if request.computed or request.task != "regression":
        return None
    numbers, signs = split_signs({name: rows.columns[name] for name in request.targets})
    if not signs.any():
        return None
    rows.columns |= numbers
    return signs


def _parse_numbers(request: FileRequest, rows: MoleculeRows) -> tuple[np.ndarray, np.ndarray | None, list[RowProblem]]:
    """Parse targets, weights and split labels, with the problems of all rows so far."""
    problems, missing = list(rows.problems), Missing.of(request.missing)
    y, weights = np.zeros((len(rows.lines), 0)), None
    if not request.computed:
        y, faults = parse_targets(rows, request.targets, request.task, request.num_classes, request.classes, missing)
        faults += _not_positive(request, rows, y)
        problems += faults if request.on_error == "stop" else _mask_cells(rows, y, faults)
    if request.weight is not None:
        weights, faults = parse_weights(rows, request.weight, missing)
        problems += faults
    return y, weights, problems + _split_problems(rows, request.split_column)


def _not_positive(request: FileRequest, rows: MoleculeRows, y: np.ndarray) -> list[RowProblem]:
    """Name targets that have no logarithm, and mask them in place."""
    problems = []
    for name in request.log10:
        column = y[:, request.targets.index(name)]
        for row in np.flatnonzero(column <= 0).tolist():
            kind = f"target {name!r} is not above 0, so it has no log10"
            problems.append(RowProblem(kind, rows.lines[row], shorten(rows.columns[name][row])))
            column[row] = np.nan
    return problems


def _mask_cells(rows: MoleculeRows, y: np.ndarray, problems: list[RowProblem]) -> list[RowProblem]:
    """Warn about faulty cells in rows with another target, which count as missing; return the other problems."""
    with_target = {
        line for line, values in zip(rows.lines, y, strict=True) if y.shape[1] > 1 and np.isfinite(values).any()
    }
    if masked := [problem for problem in problems if problem.line in with_target]:
        what = "have a target that counts as missing"
        logger.warning("%s", describe_problems(masked, rows.source, rows.num_rows, rows.unit, what))
    return [problem for problem in problems if problem.line not in with_target]


def _split_problems(rows: MoleculeRows, column: str | None) -> list[RowProblem]:
    if column is None:
        return []
    named, expected = _name_splits(rows.columns[column])
    return [
        RowProblem(f"the split is not {expected}", line, shorten(label))
        for line, label, is_named in zip(rows.lines, rows.columns[column], named, strict=True)
        if not is_named
    ]


def _name_splits(labels: Sequence[str]) -> tuple[list[bool], str]:
    """Return which labels name a split, and what is expected: fold numbers if there are some and no words."""
    words = [label.lower() in SPLIT_WORDS for label in labels]
    folds = [label.removesuffix(".0").isdecimal() for label in labels]
    return (folds, "a fold number") if any(folds) and not any(words) else (words, "train, val or test")


def _report(problems: list[RowProblem], rows: MoleculeRows, request: FileRequest) -> None:
    if request.on_error == "stop":
        advice = "Correct these rows, or leave them out with --data.on_error skip."
        if len(request.targets) == 1 and not request.computed and not request.classes:
            hint = classes_hint(rows, request.targets[0], request.task == "classification")
            advice = f"{hint.strip()} Or: {advice[0].lower()}{advice[1:]}" if hint else advice
        if not request.computed and not request.classes:
            advice += missing_hint(rows, request.targets, Missing.of(request.missing))
        refuse_problems(problems, rows.source, rows.num_rows, advice, rows.unit)
    elif problems:
        description = describe_problems(problems, rows.source, rows.num_rows, rows.unit)
        logger.warning("%s\nThese rows are left out.", description)


def _log_remarks(arrays: MoleculeArrays, rows: MoleculeRows) -> None:
    """Warn about what the features do not show, one line for each kind."""
    lines: dict[str, list[int]] = {}
    for row, remark in arrays.remarks:
        for kind in remark.split("; "):
            lines.setdefault(kind, []).append(rows.lines[row])
    for kind, numbers in lines.items():
        count = f"{len(numbers):,} molecule{'s have' if len(numbers) > 1 else ' has'}"
        logger.warning("%s: %s marks of %s (%s %s)", rows.source, count, kind, rows.unit, _few(numbers))
    if salts := [rows.lines[row] for row in arrays.rows[arrays.num_fragments > 1].tolist()]:
        logger.info(
            "%s: %s of %s molecules consist of several parts, as salts and mixtures do, and are read whole (%s %s). A "
            "salt and its free base are two molecules, which may be in different splits.",
            rows.source, f"{len(salts):,}", f"{len(arrays):,}", rows.unit, _few(salts),
        )  # fmt: skip


def _few(numbers: Sequence[int]) -> str:
    return ", ".join(f"{line:,}" for line in numbers[:_NAMED]) + (", ..." if len(numbers) > _NAMED else "")


def _collect(
    request: FileRequest,
    rows: MoleculeRows,
    arrays: MoleculeArrays,
    graphs: GraphsOf,
    numbers: tuple[np.ndarray, np.ndarray | None],
    weights: np.ndarray | None,
    usable: np.ndarray,
) -> UserMolecules:
    """Attach targets with their signs, weights and texts to the molecules `usable` (indices into the readable ones)."""
    y, signs = numbers
    source = arrays.rows[usable]

    def texts(column: str) -> Texts:
        return Texts(rows.columns[column][row] for row in source)

    smiles, lines = texts(request.smiles_column), np.asarray(rows.lines)[source]
    targets = combine_terms(arrays.terms[usable]).reshape(len(usable), -1) if request.computed else y[source]
    table = with_targets(graphs(usable), targets, exact=True)
    if signs is not None:
        table = with_bounds(table, targets, signs[source])
    table = table if weights is None else with_weights(table, weights[source])
    ids = texts(request.id_column) if request.id_column else Texts(map(str, lines.tolist()))
    molecules = UserMolecules(
        with_text(table, {"smiles": smiles, "id": ids}),
        Texts(arrays.scaffolds[place] for place in usable) if request.scaffold else [],
        Texts(arrays.canonical[place] for place in usable),
        [label.lower() for label in texts(request.split_column)] if request.split_column else [],
        rows.num_rows - len(usable),
    )
    # As stored: a property computed from two spellings of a molecule differs in its last digits.
    _log_repeats(molecules, table.columns["y"].numpy(), smiles, lines, rows)
    return molecules


def _log_repeats(
    molecules: UserMolecules, targets: np.ndarray, smiles: Sequence[str], lines: Sequence[int], rows: MoleculeRows
) -> None:
    """Log which molecules are repeated, as a warning if this can be harmful."""
    repeats = find_repeats(molecules.canonical, targets)
    if not repeats.rows:
        return
    level = logging.WARNING if repeats.contradicting else logging.INFO
    logger.log(level, "%s", describe_repeats(repeats, targets, smiles, lines, rows.source, rows.unit))
    if molecules.split_labels:
        splits = [SPLIT_WORDS.get(label, f"fold {label}") for label in molecules.split_labels]
        if leaks := describe_leaks(repeats, splits, smiles, rows.source):
            logger.warning("%s", leaks)
