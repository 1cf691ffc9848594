"""Read several files of molecules as one training set, with gaps if a file has no column of a target."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphbench.benchmarks.molecules.chemistry.files import read_times
from graphbench.benchmarks.molecules.chemistry.problems import find_repeats, quote
from graphbench.benchmarks.molecules.chemistry.reading import Track
from graphbench.benchmarks.molecules.chemistry.tables import TEXTS, join_tables, stored_text, with_text, without
from graphbench.benchmarks.molecules.chemistry.user_file import FileRequest, UserMolecules, read_user_file
from graphbench.contracts import Column, GraphTable
from graphbench.contracts.table import BOUNDS, GRAPH
from graphbench.data.parts.kept import KeptParts
from graphbench.errors import BadInput
from graphbench.tables.cells import Missing
from graphbench.tables.reader import MOLECULES, open_table
from graphbench.tables.texts import Texts

logger = logging.getLogger(__name__)

_NAMED, _ROWS = 5, 8  # molecules that a message names, and rows of each


def read_user_files(
    request: FileRequest,
    files: Sequence[Path],
    track: Track | None = None,
    gaps: bool = False,
    kept: Callable[[Path], KeptParts | None] = lambda path: None,
    joined: KeptParts | None = None,
) -> UserMolecules:
    """Read and check files with `read_user_file` and join them; by default molecules are named `FILE:LINE`.

    Without `gaps`, each target must have a column in one of them. `kept` has the parts of each file, `joined` receives
    the joined table if it is large.

    Raises:
        BadInput: an error of `read_user_file`; a file has none of the target columns, or a target is in no file.
    """
    parts = []
    for path, names in check_columns(request, files, gaps).items():
        logged = tuple(name for name in request.log10 if name in names)
        part = read_user_file(replace(request, file=path, targets=names, log10=logged), track, kept(path))
        parts.append(
            replace(part, table=_with_gaps(part.table, [request.targets.index(name) for name in names], request))
        )
    return _join(parts, files, request, joined)


def check_columns(request: FileRequest, files: Sequence[Path], gaps: bool = False) -> dict[Path, tuple[str, ...]]:
    """Check the headers of files, see `read_user_files`; return the targets for which each file has a column."""
    present = {path: _targets_of(request, path) for path in files}
    for target in request.targets:
        if not gaps and not any(target in names for names in present.values()):
            raise BadInput(f"target={target}: none of {', '.join(map(str, files))} has a column of this name.")
    for path, names in present.items():
        open_table(path, request.smiles_column, replace(request, targets=names).columns, MOLECULES, "molecules")
    return present


def _targets_of(request: FileRequest, path: Path) -> tuple[str, ...]:
    """Return the targets for which a file has a column; all if the target is computed."""
    if request.computed:
        return request.targets
    places = open_table(path, request.smiles_column, (), MOLECULES, "molecules", request.targets).places
    names = tuple(name for name in request.targets if name in places)
    if not names:
        raise BadInput(f"{path}: it has no column of any target ({', '.join(request.targets)}).")
    return names


def _with_gaps(table: GraphTable, places: Sequence[int], request: FileRequest) -> GraphTable:
    """Place targets and bounds in the columns of all targets, with NaN elsewhere."""
    if len(places) == len(request.targets):
        return table
    wide: dict[str, Tensor] = {}
    for name in ("y", *BOUNDS):
        if name in table.columns:
            narrow = table.columns[name]
            wide[name] = torch.full((len(narrow), len(request.targets)), torch.nan, dtype=narrow.dtype)
            wide[name][:, list(places)] = narrow
    return table.with_columns(wide, {name: Column(GRAPH) for name in wide})


def _join(
    parts: Sequence[UserMolecules], files: Sequence[Path], request: FileRequest, kept: KeptParts | None
) -> UserMolecules:
    short = len({path.name for path in files}) == len(files)
    # Tables are joined column by column: if one has bounds, all need them.
    bounded, tables = any(BOUNDS[0] in part.table.columns for part in parts), []
    for path, part in zip(files, parts, strict=True):
        table, texts = without(part.table, TEXTS), {name: stored_text(part.table, name) for name in TEXTS}
        if request.id_column is None:
            source = path.name if short else str(path)
            texts["id"] = Texts(f"{source}:{line}" for line in texts["id"])
        tables.append(with_text(_with_bounds(table) if bounded else table, texts))
    times, time_texts = _times(parts, request)
    joined = UserMolecules(
        join_tables(tables, kept),
        Texts(chain.from_iterable(part.scaffolds for part in parts)),
        Texts(chain.from_iterable(part.canonical for part in parts)),
        [label for part in parts for label in part.split_labels],
        sum(part.left_out for part in parts),
        times,
        time_texts,
    )
    file_of = np.repeat(np.arange(len(parts)), [len(part.canonical) for part in parts])
    _log_shared(joined, file_of, stored_text(joined.table, "id"))
    return joined


def _times(parts: Sequence[UserMolecules], request: FileRequest) -> tuple[np.ndarray, Texts]:
    """Read the times of all files as one column, since the years of one may be the dates of another."""
    texts = Texts(chain.from_iterable(part.time_texts for part in parts))
    if request.time_column is None:
        return np.zeros(0), texts
    times = read_times(list(texts), request.time_format, Missing.of(request.missing))
    if np.isnan(times).any():
        row = int(np.isnan(times).argmax())
        raise BadInput(
            f"time_column={request.time_column}: some files have numbers and others have dates, so {texts[row]!r} is "
            f"neither before nor after {texts[int(np.isfinite(times).argmax())]!r}. Write all of them in one form."
        )
    return times, texts


def _with_bounds(table: GraphTable) -> GraphTable:
    """Add empty columns of bounds if a table has none."""
    empty = torch.full_like(table.columns["y"], torch.nan)
    lacking = {name: empty for name in BOUNDS if name not in table.columns}
    return table.with_columns(lacking, {name: Column(GRAPH) for name in lacking})


def _log_shared(molecules: UserMolecules, file_of: np.ndarray, ids: Sequence[str]) -> None:
    """Count the molecules that are in several files, and list those with different values of a target."""
    repeats = find_repeats(molecules.canonical, molecules.table.columns["y"].numpy())
    shared = [number for number, rows in enumerate(repeats.rows) if len(set(file_of[rows])) > 1]
    if not shared:
        return
    contradicting = set(repeats.contradicting)
    differing = [repeats.rows[number] for number in shared if number in contradicting]
    text = f"{len(shared):,} molecules are in several files"
    if not differing:
        logger.info("%s, with no target that differs.", text)
        return
    named = []
    for rows in differing[:_NAMED]:
        more = f", and {len(rows) - _ROWS:,} more" if len(rows) > _ROWS else ""
        named.append(f"{quote(molecules.canonical[rows[0]])} ({', '.join(ids[row] for row in rows[:_ROWS])}{more})")
    more = f"; and {len(differing) - _NAMED:,} more" if len(differing) > _NAMED else ""
    count = f"{len(differing):,}"
    logger.warning("%s; %s of them with different targets: %s%s", text, count, "; ".join(named), more)
