"""Load run folders for the report: all files that can be read, and a sentence for each that cannot."""

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
from graphbench.errors import BadInput
from graphbench.runs import RunFolder
from graphbench.runs.folder import with_present_keys
from graphbench.runs.tables import GAP_COLUMNS, NUMBERS, SHOWN_OF_LAYERS, RunTable, load_table

#: Logged name -> values, indexed by finished epochs (1.0 is the end of the first; within an epoch by steps).
Curves = dict[str, "pd.Series[float]"]


def logged_in(table: RunTable) -> pd.DataFrame:
    """The rows as text, "" where nothing was logged.

    Raises:
        ValueError: there is no table, or it has no column `step` or `epoch`.
    """
    missing = {"step", "epoch"} - set(table.columns)
    if missing:
        raise ValueError(f"no column {' and '.join(sorted(missing))}")
    return pd.DataFrame(table.rows, columns=list(table.columns), dtype=str)


def curves_of(logged: pd.DataFrame) -> Curves:
    """Every logged number by finished epochs; empty where no epoch was finished.

    What is logged once per epoch lies on whole numbers. What is logged more often, or beside no epoch, is placed by its
    step: step s of a run with S steps per epoch at `(s + 1) / S`.

    Args:
        logged: see `logged_in`.
    """
    step, epoch = (pd.to_numeric(logged[name], errors="coerce") for name in ("step", "epoch"))
    epoch = epoch + 1 if bool((epoch == 0).any()) else epoch  # older versions counted from 0
    steps_per_epoch = ((step + 1) / epoch).max()
    if pd.isna(steps_per_epoch):
        return {}
    curves: Curves = {}
    for name in logged.columns.difference(["step", "epoch"]):
        here = logged[name].ne("")
        once = bool(epoch[here].notna().all()) and epoch[here].is_unique
        position = epoch[here] if once else (step[here] + 1) / steps_per_epoch
        values = pd.Series(
            pd.to_numeric(logged[name][here], errors="coerce").to_numpy(float), index=position, name=name
        )
        if len(values):
            curves[name] = values[~values.index.duplicated(keep="last")].sort_index()
    return curves


log = logging.getLogger(__name__)


@dataclass(eq=False)
class Run:
    """What a run folder holds.

    Args:
        name: of the folder, with as many parents as tell it from the other runs.
        folder: where it lies.
        config: the resolved configuration; empty where it cannot be read.
        config_text: the same as it was written.
        results: `results.json`.
        environment: `environment.json`.
        data: `data.json`, what it was trained on; empty for runs of earlier versions.
        curves: logged name -> values by finished epochs, see `graphbench.report.loading`.
        layers: name of a diagnostic -> its table by layer and epoch, never empty.
        gap: table of the train-test gap, maybe empty.
        pictures: files `*.png` and `*.svg` in `diagnostics/` and its folders.
        external: what `external/*.json` say of labelled files, by name.
        predictions: `predictions-test.csv`, None where there is none.
        problems: sentences about what is missing or broken.
    """

    name: str
    folder: RunFolder
    config: dict[str, Any] = field(default_factory=dict)
    config_text: str = ""
    results: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    curves: Curves = field(default_factory=dict)
    layers: dict[str, pd.DataFrame] = field(default_factory=dict)
    gap: pd.DataFrame = field(default_factory=pd.DataFrame)
    pictures: list[Path] = field(default_factory=list)
    external: dict[str, dict[str, Any]] = field(default_factory=dict)
    predictions: pd.DataFrame | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def benchmark(self) -> str:
        """Name of the benchmark; the configuration knows it before there are results."""
        return str(self.results.get("benchmark") or _class_name(self.config.get("data")) or "unknown benchmark")

    @property
    def architecture(self) -> str:
        """Name of the architecture."""
        model = self.config.get("model")
        named = _class_name(model.get("architecture")) if isinstance(model, dict) else ""
        return str(self.results.get("architecture") or named or "unknown architecture")

    @property
    def seed(self) -> str:
        """The seed as text, or "unknown"."""
        seed = self.results.get("seed", self.config.get("seed_everything"))
        return "unknown" if seed is None else str(seed)

    @property
    def best_epoch(self) -> int | None:
        """Finished epochs at the best checkpoint, counted from 1."""
        best = self.results.get("best_epoch")
        start = self.results.get("epochs_from", 0)  # runs of older versions count from 0 and say nothing
        return int(best) + (start == 0) if is_number(best) and math.isfinite(best) else None

    def scores(self, split: str) -> dict[str, float]:
        """Scores of the best checkpoint on a split, by name without the split; empty where it was not scored."""
        return numbers(self.results.get(split), split)

    @property
    def undefined(self) -> dict[str, str]:
        """`SPLIT/METRIC` -> why it has no number."""
        found = self.results.get("undefined")
        if not isinstance(found, dict):
            return {}
        return {str(name): reason for name, reason in found.items() if isinstance(reason, str)}

    @property
    def baselines(self) -> dict[str, dict[str, float]]:
        """Baseline -> `SPLIT/METRIC` -> score, as the benchmark offered them to `graphbench test`."""
        found = self.results.get("baselines")
        if not isinstance(found, dict):
            return {}
        return {
            str(name): {key: value for part in splits.values() for key, value in numbers(part).items()}
            for name, splits in found.items()
            if isinstance(splits, dict)
        }


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value of a JSON file is a number; NaN is one."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def numbers(scores: object, split: str = "") -> dict[str, float]:
    """The numbers of a JSON object; with a split, only its own and without its name in front."""
    if not isinstance(scores, dict):
        return {}
    prefix = f"{split}/" if split else ""
    kept = {key: value for key, value in scores.items() if is_number(value) and key.startswith(prefix)}
    return {key[len(prefix) :]: float(value) for key, value in kept.items()}


def _class_name(entry: object) -> str:
    """Last part of a `class_path`, whether written out or short."""
    path = entry.get("class_path") if isinstance(entry, Mapping) else entry
    return path.rpartition(".")[2] if isinstance(path, str) else ""


def load_runs(folders: Sequence[RunFolder]) -> list[Run]:
    """Read every folder once, in the given order; those that stopped before their first checkpoint are left out.

    Raises:
        BadInput: no folder is left.
    """
    unique = list({folder.path.resolve(): folder for folder in folders}.values())
    names = _names([folder.path.resolve() for folder in unique])
    runs = [load_run(folder, name) for folder, name in zip(unique, names, strict=True)]
    begun = [run for run in runs if run.folder.is_begun or run.curves]
    for run in runs:
        if run not in begun:
            log.warning("%s is left out: it stopped before its first checkpoint and has no scores.", run.folder.path)
    if runs and not begun:
        raise BadInput(
            f"{', '.join(str(run.folder.path) for run in runs)}: there is no checkpoint and no score to report."
        )
    return begun


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest endings of the paths that differ from each other."""
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def load_run(folder: RunFolder, name: str) -> Run:
    """Read a folder; nothing that is missing or broken in it is an error."""
    run = Run(name, folder)
    _read_config(run)
    run.results = with_present_keys(_read_json(run, folder.results, "so it has no scores: its fit has not finished"))
    _leave_out_negative(run)
    _tell_undefined(run)
    run.environment = _read_json(run, folder.environment, "so its hardware and software are unknown")
    run.data = _read_data(run)
    _read_metrics(run)
    _read_diagnostics(run)
    _read_predictions(run)
    found = {path.stem: _read_json(run, path, "") for path in sorted(folder.external.glob("*.json"))}
    run.external = {name: one for name, one in found.items() if one}
    return run


def _tell_undefined(run: Run) -> None:
    """Scores that targets or predictions do not define, those of one reason together."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in run.undefined.items():
        by_reason.setdefault(reason, []).append(name)
    run.problems += [f"{', '.join(names)}: undefined, {reason}." for reason, names in by_reason.items()]


def _read_config(run: Run) -> None:
    try:
        run.config_text = run.folder.config.read_text(encoding="utf-8")
        loaded = load_yaml(run.config_text)
        if not isinstance(loaded, dict):
            raise ValueError("it holds no options")
        run.config = loaded
    except (OSError, ValueError, yaml.YAMLError) as error:
        run.problems.append(
            f"config.yaml cannot be read ({_first_line(error)}), so this run shares a row with no other."
        )


def _read_data(run: Run) -> dict[str, Any]:
    """What the run was trained on; a file without the sizes of its splits is broken."""
    if not run.folder.data.is_file():
        return {}
    found = _read_json(run, run.folder.data, "")
    splits = found.get("splits", {})
    sound = isinstance(splits, dict) and all(
        isinstance(one, dict) and is_number(one.get("graphs")) for one in splits.values()
    )
    if found and not (sound and splits):
        run.problems.append(f"{run.folder.data.name} names no sizes of splits; it is left out.")
    return found if sound and splits else {}


def _read_json(run: Run, path: Path, consequence: str) -> dict[str, Any]:
    if not path.is_file():
        run.problems.append(f"There is no {path.name}, {consequence}.")
        return {}
    try:
        loaded = load_json(path)
    except (OSError, ValueError) as error:
        run.problems.append(f"{path.name} cannot be read ({_first_line(error)}); it is left out.")
        return {}
    if not isinstance(loaded, dict):
        run.problems.append(f"{path.name} holds no JSON object; it is left out.")
        return {}
    return loaded


def _leave_out_negative(run: Run) -> None:
    """Times and sizes below 0, which no fit writes."""
    for key in ("fit_seconds", "peak_memory_mb", "parameters", "epochs", "steps"):
        value = run.results.get(key)
        if is_number(value) and value < 0:
            run.problems.append(f"{run.folder.results.name}: {key} is {value:g}, which cannot be; it is left out.")
            del run.results[key]


def _read_metrics(run: Run) -> None:
    path = run.folder.metrics
    if not path.is_file():
        run.problems.append("There is no metrics.csv, so it has no learning curves.")
        return
    try:
        run.curves = curves_of(logged_in(_load_table(run, path)))
    except (OSError, ValueError, KeyError) as error:
        run.problems.append(f"metrics.csv cannot be read ({_first_line(error)}), so it has no learning curves.")
        return
    if not run.curves:
        run.problems.append("metrics.csv holds no finished epoch, so it has no learning curves.")
    for name in sorted({"train/loss", "val/loss"} & run.curves.keys()):
        values = run.curves[name]
        broken = values[~np.isfinite(values)]
        if len(broken):
            run.problems.append(
                f"{name} is not a finite number in {len(broken)} of {len(values)} epochs, first in epoch "
                f"{broken.index[0]:g}: the run diverged."
            )


def _read_diagnostics(run: Run) -> None:
    if not run.folder.diagnostics.is_dir():
        return
    run.pictures = [path for path in sorted(run.folder.diagnostics.rglob("*")) if path.suffix in (".png", ".svg")]
    for path in run.folder.tables:
        table = _read_table(run, path)
        if {"epoch", *GAP_COLUMNS} <= set(table):
            run.gap = table
        elif set(SHOWN_OF_LAYERS) <= set(table):
            if len(table):
                run.layers[path.stem] = table
        elif len(table.columns):
            columns = ", ".join(SHOWN_OF_LAYERS)
            run.problems.append(f"diagnostics/{path.name} is not shown: it has not the columns {columns}.")


def _load_table(run: Run, path: Path) -> RunTable:
    """A table of the run; says where rows are left out because one of them is torn."""
    table = load_table(path)
    if table.torn is not None and table.columns:
        place = path.relative_to(run.folder.path).as_posix()
        run.problems.append(f"{place}: line {table.torn} is torn; it is left out with all that follows.")
    return table


def _read_table(run: Run, path: Path) -> pd.DataFrame:
    """A CSV table; columns of numbers as numbers."""
    try:
        table = _load_table(run, path)
        if not table.columns:
            raise ValueError("no header")
    except (OSError, ValueError) as error:
        run.problems.append(f"{path.parent.name}/{path.name} cannot be read ({_first_line(error)}); it is left out.")
        return pd.DataFrame()
    frame = pd.DataFrame(table.rows, columns=list(table.columns))
    for place, name in enumerate(table.columns):
        cells = frame.iloc[:, place].mask(frame.iloc[:, place] == "")
        with contextlib.suppress(ValueError):
            cells = pd.to_numeric(cells, errors="coerce" if name in NUMBERS else "raise")
        frame.isetitem(place, cells)
    return frame


def _read_predictions(run: Run) -> None:
    path = run.folder.predictions("test")
    if not path.is_file():
        return
    table = _read_table(run, path)
    if not table.empty:
        run.predictions = table


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
