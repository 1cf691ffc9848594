"""The folder of a run: what lies where, and the small JSON records in it.

config.yaml  metrics.csv  events.out.tfevents.*  checkpoints/{best,last,previous}.ckpt
diagnostics/*.csv  predictions-*.csv  external/*  results.json  environment.json  data.json  training.json  report.html
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from graphbench.data.files.foreign import load_json
from graphbench.data.files.writing import finish_writing, write_text
from graphbench.errors import BadInput, CorruptData
from graphbench.runs.holding import Place, locked

log = logging.getLogger(__name__)

_FOLDER_VARIABLE = "GRAPHBENCH_RUN"

#: Top-level keys of `results.json` that version 0.1.0 called otherwise.
_OLD_KEYS = {"rivals": "baselines"}


@dataclass(frozen=True)
class RunFolder:
    """Paths of a run.

    Args:
        path: the folder.
    """

    path: Path

    @classmethod
    def existing(cls, path: str | Path) -> RunFolder:
        """The folder of an earlier run.

        Raises:
            BadInput: there is no run in it.
        """
        run = cls(Path(path))
        run.finish_writing()
        if not run.config.is_file():
            raise BadInput(
                f"{path} is not the folder of a run: it has no config.yaml. Give the folder that `graphbench fit` "
                "named in its first lines."
            )
        return run

    @classmethod
    def fresh(cls, benchmark: str, architecture: str) -> RunFolder:
        """A new folder under `runs/`, named after what is run and when; it is made, so that nobody else gets it.

        The name is the same on every rank: processes that Lightning starts for further devices inherit it through the
        environment.

        Raises:
            BadInput: another program started the processes, which could not agree on a name.
        """
        if "LOCAL_RANK" in os.environ and _FOLDER_VARIABLE in os.environ:
            return cls(Path(os.environ[_FOLDER_VARIABLE]))
        if int(os.environ.get("WORLD_SIZE", 1)) > 1 and "LOCAL_RANK" in os.environ:
            raise BadInput("Name the folder with --run: several processes could not agree on one made up by the clock.")
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        first = path = Path(f"runs/{benchmark}-{architecture}-{stamp}".lower())
        number = 1
        while True:
            try:
                path.mkdir(parents=True)
                break
            except FileExistsError:  # started in the same second
                number += 1
                path = first.with_name(f"{first.name}-{number}")
        os.environ[_FOLDER_VARIABLE] = str(path)
        return cls(path)

    @classmethod
    def temporary(cls) -> RunFolder:
        """A folder for a run that leaves nothing; its first process removes it. The same on every rank."""
        if "LOCAL_RANK" not in os.environ or _FOLDER_VARIABLE not in os.environ:
            os.environ[_FOLDER_VARIABLE] = tempfile.mkdtemp(prefix="graphbench-")
        return cls(Path(os.environ[_FOLDER_VARIABLE]))

    @contextlib.contextmanager
    def held(self, new: bool = False) -> Iterator[Place]:
        """Let nobody else write here until the block ends; the lock ends with the process, however that ends.

        The folder is made where it is missing. The block gets its place, which tells when somebody moves or removes it.

        Args:
            new: the folder was made for this run; like one made here it is removed where the block left nothing in it
                to continue or to read.

        Raises:
            BadInput: another process writes here, which is named; or nobody can.
        """
        new = new or not self.path.exists()
        with locked(self.path) as place:
            try:
                self._sweep()
                self.finish_writing()
                yield place
            finally:
                if new and place.is_there() and not self.is_begun and not self.metrics.is_file():
                    shutil.rmtree(self.path, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove what a killed process left half written."""
        for folder in (self.path, self.checkpoints):
            for name in (self.config.name, self.metrics.name, self.report.name, "*.json", "*.ckpt", ".holder"):
                for torn in folder.glob(f".{name}-*"):
                    torn.unlink(missing_ok=True)

    def finish_writing(self) -> None:
        """Let what a killed command had ready take its place, see `graphbench.data.files.writing`."""
        try:
            finish_writing(self.path)
        except OSError as error:
            log.warning("%s holds files of a command that was killed, which cannot be moved: %s.", self.path, error)

    def clear(self) -> None:
        """Remove what a run left that stopped before its first checkpoint; other files stay."""
        written = (self.metrics, self.environment, self.data, self.training, self.results, self.report)
        for path in (*written, *self.path.glob("events.out.tfevents.*")):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.diagnostics, ignore_errors=True)

    @property
    def is_begun(self) -> bool:
        """Whether there is something to continue or to read: a checkpoint or scores."""
        return any(path.is_file() for path in (self.last, self.previous, self.best, self.results))

    @property
    def resumable(self) -> Path | None:
        """The checkpoint to go on from: the last one, or the one before where the last is gone; None without any."""
        return next((path for path in (self.last, self.previous) if path.is_file()), None)

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """Everything logged, one row per step or epoch."""
        return self.path / "metrics.csv"

    @property
    def checkpoints(self) -> Path:
        """Folder of `best.ckpt` and `last.ckpt`."""
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        """Weights with the best validation metric."""
        return self.checkpoints / "best.ckpt"

    @property
    def last(self) -> Path:
        """Everything needed to go on."""
        return self.checkpoints / "last.ckpt"

    @property
    def previous(self) -> Path:
        """The checkpoint before the last, for the case that the last is damaged."""
        return self.checkpoints / "previous.ckpt"

    @property
    def diagnostics(self) -> Path:
        """Folder of the diagnostics' tables."""
        return self.path / "diagnostics"

    def table(self, name: str) -> Path:
        """The table of one diagnostic."""
        return self.diagnostics / f"{name}.csv"

    @property
    def tables(self) -> list[Path]:
        """The tables of all diagnostics, by name."""
        return sorted(self.diagnostics.glob("*.csv"))

    @property
    def attention_maps(self) -> Path:
        """Folder of the pictures of attention."""
        return self.diagnostics / "attention_maps"

    def predictions(self, split: str) -> Path:
        """Predictions of a split, where no other file was named for them."""
        return self.path / f"predictions-{split}.csv"

    @property
    def external(self) -> Path:
        """Folder of the scores on labelled files, `NAME.json` each, and of the predictions, `NAME.csv`."""
        return self.path / "external"

    @property
    def report(self) -> Path:
        """The page that shows this run."""
        return self.path / "report.html"

    @property
    def results(self) -> Path:
        """Scores: `results.json`."""
        return self.path / "results.json"

    @property
    def environment(self) -> Path:
        """Hardware and software of the run: `environment.json`."""
        return self.path / "environment.json"

    @property
    def data(self) -> Path:
        """What the run was trained on: `data.json`."""
        return self.path / "data.json"

    @property
    def training(self) -> Path:
        """Sizes and feature values of the training graphs: `training.json`."""
        return self.path / "training.json"

    def note_environment(self, step: int, now: Mapping[str, Any]) -> None:
        """Note code and versions with which a run goes on, where they are others than before.

        Args:
            step: at which it goes on.
            now: as `describe_environment` gives it.
        """
        try:
            stored = json.loads(self.environment.read_text(encoding="utf-8"))
            last = [stored, *stored.get("continued", [])][-1]
            if all(last.get(name) == now.get(name) for name in ("commit", "packages")):
                return
            part = {name: now[name] for name in ("started", "commit", "packages")} | {"step": step}
            stored["continued"] = [*stored.get("continued", []), part]
        except (OSError, ValueError, AttributeError):  # of an earlier version, or damaged: nothing is known of before
            return
        write_text(self.environment, json.dumps(stored, indent=2) + "\n")

    def read_results(self) -> dict[str, Any]:
        """Scores recorded so far; empty before the first.

        Raises:
            CorruptData: the file is not what `write_results` wrote.
        """
        self.finish_writing()
        if not self.results.is_file():
            return {}
        try:
            loaded = load_json(self.results)
        except (OSError, ValueError, RecursionError) as error:
            raise CorruptData(f"{self.results} cannot be read: {error}. Remove it to have it written anew.") from error
        if not isinstance(loaded, dict):
            raise CorruptData(f"{self.results} holds no JSON object. Remove it to have it written anew.")
        return with_present_keys(loaded)

    def write_results(self, values: Mapping[str, Any]) -> None:
        """Replace `results.json`; JSON has no word for a score that is not finite, so it becomes null."""
        write_text(self.results, json.dumps(_finite(dict(values)), indent=2, allow_nan=False) + "\n")

    def update_results(self, values: Mapping[str, Any]) -> None:
        """Add or replace top-level entries of `results.json`."""
        self.write_results(self.read_results() | dict(values))


def with_present_keys(results: Mapping[str, Any]) -> dict[str, Any]:
    """Content of a `results.json` by the names that its keys have today, whichever version wrote it."""
    return {_OLD_KEYS.get(key, key): value for key, value in results.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
