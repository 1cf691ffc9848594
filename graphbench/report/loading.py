"""Load run folders for the report: all readable files, and a sentence for each of the others.

A row of `metrics.csv` contains what was logged at one time, so most of its cells are empty. An empty cell means "not
logged", `nan` that the number was not finite. They are kept apart: a diverged run must not look like one that stopped
early.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import pandas as pd
import yaml

from graphbench.data.files.foreign import load_json, load_yaml
from graphbench.data.progress import track
from graphbench.errors import BadInput
from graphbench.runs import RunFolder
from graphbench.runs.folder import with_present_keys
from graphbench.runs.tables import GAP_COLUMNS, NUMBERS, SHOWN_OF_LAYERS, RunTable, load_table

log = logging.getLogger(__name__)

#: Number of runs that are read without showing progress.
_FEW = 10
#: Columns that are kept as text: an identifier such as 007 or 1e5 is not a number.
_TEXT = ("id", "smiles")
#: Logged name -> values, indexed by finished epochs (1.0 is the end of the first; within an epoch by steps).
Curves = dict[str, "pd.Series[float]"]


@dataclass(eq=False)
class Run:
    """Content of a run folder."""

    name: str  # the folder's, with as many parents as distinguish it from the other runs
    folder: RunFolder  # its path
    config: dict[str, Any] = field(default_factory=dict)  # the resolved configuration; empty if it cannot be read
    config_text: str = ""  # its original text
    results: dict[str, Any] = field(default_factory=dict)  # `results.json`
    environment: dict[str, Any] = field(default_factory=dict)  # `environment.json`
    #: `data.json`, a record of the data; empty for runs of earlier versions.
    data: dict[str, Any] = field(default_factory=dict)
    curves: Curves = field(default_factory=dict)  # `metrics.csv`
    #: name of a diagnostic -> its table by layer and epoch, never empty.
    layers: dict[str, pd.DataFrame] = field(default_factory=dict)
    gap: pd.DataFrame = field(default_factory=pd.DataFrame)  # table of the train-test gap, may be empty
    pictures: list[Path] = field(default_factory=list)  # files `*.png` and `*.svg` in `diagnostics/` and its folders
    #: `external/*.json`, scores on labelled files, by name.
    external: dict[str, dict[str, Any]] = field(default_factory=dict)
    predictions: pd.DataFrame | None = None  # `predictions-test.csv`, None without it
    problems: list[str] = field(default_factory=list)  # sentences about missing or broken files

    @property
    def benchmark(self) -> str:
        """Return the name of the benchmark, from the configuration if there are no results yet."""
        return str(self.results.get("benchmark") or _class_name(self.config.get("data")) or "unknown benchmark")

    @property
    def architecture(self) -> str:
        """Return the name of the architecture."""
        configured = _class_name(mapping(self.config.get("model")).get("architecture"))
        return str(self.results.get("architecture") or configured or "unknown architecture")

    @property
    def seed(self) -> str:
        """Return the seed as text, or "unknown"."""
        seed = self.results.get("seed", self.config.get("seed_everything"))
        return "unknown" if seed is None else str(seed)

    @property
    def best_epoch(self) -> int | None:
        """Return the finished epochs at the best checkpoint, counted from 1."""
        best = self.results.get("best_epoch")
        start = self.results.get("epochs_from", 0)  # older versions counted from 0 without recording it
        return int(best) + (start == 0) if is_number(best) and math.isfinite(best) else None

    @property
    def diverged(self) -> str:
        """Return why the fit stopped at a step that is not finite, or ""."""
        return str(self.results.get("diverged") or "")

    def scores(self, split: str) -> dict[str, float]:
        """Return scores of the best checkpoint on a split, by name without the split."""
        return numbers(self.results.get(split), split)

    @property
    def undefined(self) -> dict[str, str]:
        """Return `SPLIT/METRIC` -> the reason why it is undefined."""
        reasons = mapping(self.results.get("undefined"))
        return {str(name): reason for name, reason in reasons.items() if isinstance(reason, str)}

    @property
    def baselines(self) -> dict[str, dict[str, float]]:
        """Return baseline -> `SPLIT/METRIC` -> score, as `graphbench test` stored them."""
        return {
            str(name): {key: value for part in splits.values() for key, value in numbers(part).items()}
            for name, splits in mapping(self.results.get("baselines")).items()
            if isinstance(splits, dict)
        }

    @property
    def baseline_seconds(self) -> dict[str, float]:
        """Return baseline -> seconds of its features, fit and predictions, if measured."""
        return {name: float(seconds) for name, seconds in self._of_baselines("seconds").items() if is_number(seconds)}

    @property
    def baseline_notes(self) -> dict[str, str]:
        """Return baseline -> the part of the data it used, if not all."""
        return {name: str(note) for name, note in self._of_baselines("note").items() if note}

    def _of_baselines(self, key: str) -> dict[str, Any]:
        stored = mapping(self.results.get("baselines"))
        return {str(name): mapping(splits).get(key) for name, splits in stored.items()}


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value of a JSON file is a number; NaN is one."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def mapping(value: object) -> dict[Any, Any]:
    """Return a JSON object unchanged, and an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def numbers(scores: object, split: str = "") -> dict[str, float]:
    """Return the numbers of a JSON object; with a split, only those of the split and without its prefix."""
    prefix = f"{split}/" if split else ""
    return {
        key[len(prefix) :]: float(value)
        for key, value in mapping(scores).items()
        if is_number(value) and key.startswith(prefix)
    }


def _class_name(entry: object) -> str:
    """Return the last part of a `class_path`, written in full or short."""
    path = entry.get("class_path") if isinstance(entry, Mapping) else entry
    return path.rpartition(".")[2] if isinstance(path, str) else ""


def load_runs(folders: Sequence[RunFolder]) -> list[Run]:
    """Load every folder once, in the given order, without those that stopped before their first checkpoint."""
    # `runs/*` and another name may give a folder twice
    unique = list({folder.path.resolve(): folder for folder in folders}.values())
    names = _names([folder.path.resolve() for folder in unique])
    named = list(zip(unique, names, strict=True))
    shown = track(named, "Reading", unit="runs") if len(named) > _FEW else named
    runs = [load_run(folder, name) for folder, name in shown]
    begun = [run for run in runs if run.folder.is_begun or run.curves]
    for run in runs:
        if run not in begun:
            log.warning("%s is skipped: it stopped before its first checkpoint and has no scores.", run.folder.path)
    if runs and not begun:
        raise BadInput(
            f"{', '.join(str(run.folder.path) for run in runs)}: there is no checkpoint and no score to report."
        )
    return begun


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest distinct suffixes of the paths."""
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def load_run(folder: RunFolder, name: str) -> Run:
    """Load a folder; missing and broken files become sentences in `problems`."""
    run = Run(name, folder)
    _load_config(run)
    _load_results(run)
    run.environment = _load_json(run, folder.environment, "so its hardware and software are unknown")
    _load_data(run)
    _load_metrics(run)
    _load_diagnostics(run)
    if folder.predictions("test").is_file() and not (table := _load_numbers(run, folder.predictions("test"))).empty:
        run.predictions = table
    external = {path.stem: _load_json(run, path, "") for path in sorted(folder.external.glob("*.json"))}
    run.external = {stem: record for stem, record in external.items() if record}
    return run


def _load_config(run: Run) -> None:
    try:
        run.config_text = run.folder.config.read_text(encoding="utf-8")
        loaded = load_yaml(run.config_text)
        if not isinstance(loaded, dict):
            raise ValueError("it has no options")
        run.config = loaded
    except (OSError, ValueError, yaml.YAMLError) as error:
        run.problems.append(f"config.yaml cannot be read ({_first_line(error)}), so this run has a separate row.")


def _load_results(run: Run) -> None:
    path = run.folder.results
    run.results = with_present_keys(_load_json(run, path, "so it has no scores: its fit has not finished"))
    for key in ("fit_seconds", "peak_memory_mb", "parameters", "epochs", "steps"):
        value = run.results.get(key)
        if is_number(value) and value < 0:
            run.problems.append(f"{path.name}: {key} is {value:g}, which is impossible; it is skipped.")
            del run.results[key]
    if run.diverged:
        run.problems.append(f"The run diverged. {run.diverged.partition('. ')[0]}.")
    by_reason: dict[str, list[str]] = {}
    for name, reason in run.undefined.items():
        by_reason.setdefault(reason, []).append(name)
    run.problems += [f"{', '.join(names)}: undefined, {reason}." for reason, names in by_reason.items()]


def _load_data(run: Run) -> None:
    if not run.folder.data.is_file():
        return
    record = _load_json(run, run.folder.data, "")
    splits = record.get("splits")
    sizes = [mapping(one).get("graphs") for one in splits.values()] if isinstance(splits, dict) else []
    if sizes and all(is_number(size) and math.isfinite(size) for size in (*sizes, record.get("left_out", 0))):
        run.data = record
    elif record:
        run.problems.append(f"{run.folder.data.name} has no split sizes, or others than numbers; it is skipped.")


def _load_json(run: Run, path: Path, consequence: str) -> dict[str, Any]:
    if not path.is_file():
        run.problems.append(f"There is no {path.name}, {consequence}.")
        return {}
    try:
        loaded = load_json(path)
    except (OSError, ValueError) as error:
        run.problems.append(f"{path.name} cannot be read ({_first_line(error)}); it is skipped.")
        return {}
    if not isinstance(loaded, dict):
        run.problems.append(f"{path.name} is not a JSON object; it is skipped.")
    return mapping(loaded)


def _load_metrics(run: Run) -> None:
    path = run.folder.metrics
    if not path.is_file():
        run.problems.append("There is no metrics.csv, so it has no learning curves.")
        return
    try:
        run.curves = curves_of(_load_rows(run, path))
    except (OSError, ValueError, KeyError) as error:
        run.problems.append(f"metrics.csv cannot be read ({_first_line(error)}), so it has no learning curves.")
        return
    if not run.curves:
        run.problems.append("metrics.csv has no finished epoch, so it has no learning curves.")
    for name in sorted({"train/loss", "val/loss"} & run.curves.keys()):
        values = run.curves[name]
        broken = values[~np.isfinite(values)]
        if len(broken):
            run.problems.append(
                f"{name} is not a finite number in {len(broken)} of {len(values)} epochs, first in epoch "
                f"{broken.index[0]:g}: the run diverged."
            )


def curves_of(table: RunTable) -> Curves:
    """Return every logged number by finished epochs; empty if no epoch was finished.

    Scores logged once per epoch are at integers. Scores logged more often, or without an epoch, are placed by their
    step: step s of a run with S steps per epoch at `(s + 1) / S`.

    Raises:
        ValueError: the table has no column `step`.
    """
    if "step" not in table.columns:
        raise ValueError("no column step")
    if "epoch" not in table.columns:  # stopped or diverged within the first epoch
        return {}
    cells = np.array(table.rows, dtype=object).reshape(-1, len(table.columns))
    logged = cells != ""
    numbers_of = np.full(cells.shape, np.nan)
    # All at once: a model of many targets logs hundreds of columns, which would each take milliseconds.
    numbers_of[logged] = pd.to_numeric(pd.Series(cells[logged], dtype=str), errors="coerce")
    step, epoch = (numbers_of[:, table.columns.index(name)] for name in ("step", "epoch"))
    epoch = epoch + 1 if bool((epoch == 0).any()) else epoch  # older versions counted from 0
    # The maximum over rows: within an epoch, rows have the epoch's number and fewer steps.
    ratios = (step + 1) / epoch
    if np.isnan(ratios).all():
        return {}
    curves: Curves = {}
    for column in np.argsort(table.columns):
        name, mask = table.columns[column], logged[:, column]
        if name in ("step", "epoch") or not mask.any():
            continue
        once = not np.isnan(epoch[mask]).any() and len(np.unique(epoch[mask])) == mask.sum()
        position = epoch[mask] if once else (step[mask] + 1) / np.nanmax(ratios)
        # Reversed, as `unique` takes the first: a continued run logs some steps twice, and the later value counts.
        places, last = np.unique(position[::-1], return_index=True)
        curves[name] = pd.Series(numbers_of[mask, column][::-1][last], index=places, name=name)
    return curves


def _load_diagnostics(run: Run) -> None:
    if not run.folder.diagnostics.is_dir():
        return
    run.pictures = [path for path in sorted(run.folder.diagnostics.rglob("*")) if path.suffix in (".png", ".svg")]
    for path in run.folder.tables:
        table = _load_numbers(run, path)
        if {"epoch", *GAP_COLUMNS} <= set(table):
            run.gap = table
        elif set(SHOWN_OF_LAYERS) <= set(table):
            if len(table):
                run.layers[path.stem] = table
        elif len(table.columns):
            columns = ", ".join(SHOWN_OF_LAYERS)
            run.problems.append(f"diagnostics/{path.name} is not shown: it lacks the columns {columns}.")


def _load_rows(run: Run, path: Path) -> RunTable:
    """Load the complete rows of a table, and report an incomplete one."""
    table = load_table(path)
    if table.torn is not None and table.columns:
        place = path.relative_to(run.folder.path).as_posix()
        run.problems.append(f"{place}: line {table.torn} is incomplete; it is skipped with all that follow.")
    return table


def _load_numbers(run: Run, path: Path) -> pd.DataFrame:
    """Load a table with numeric columns parsed; empty if it cannot be read."""
    try:
        table = _load_rows(run, path)
        if not table.columns:
            raise ValueError("no header")
    except (OSError, ValueError) as error:
        run.problems.append(f"{path.parent.name}/{path.name} cannot be read ({_first_line(error)}); it is skipped.")
        return pd.DataFrame()
    frame = pd.DataFrame(table.rows, columns=list(table.columns))
    columns: dict[str, pd.Series[Any]] = {}
    for name in table.columns:
        columns[name] = cells = frame[name]
        if name in _TEXT:
            continue
        columns[name] = cells = cells.mask(cells == "")
        with contextlib.suppress(ValueError):
            columns[name] = pd.to_numeric(cells, errors="coerce" if name in NUMBERS else "raise")
    # Not column by column into the frame, which pandas warns of from a hundred classes or targets on.
    return pd.DataFrame(columns)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
