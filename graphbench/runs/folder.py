"""Name the files in the folder of a run, and read and write its small JSON records."""

from __future__ import annotations

import contextlib
import itertools
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
from graphbench.data.files.writing import finish_writing, remove_link, write_text
from graphbench.errors import BadInput, CorruptData
from graphbench.runs.holding import Place, locked

log = logging.getLogger(__name__)

_FOLDER_VARIABLE = "GRAPHBENCH_RUN"

#: Top-level keys of `results.json` in version 0.1.0 -> today's.
_OLD_KEYS = {"rivals": "baselines"}


class _Below:
    """A path below the folder of a run."""

    def __init__(self, *parts: str) -> None:
        self.parts = parts

    def __get__(self, run: RunFolder, owner: type[RunFolder]) -> Path:
        return run.path.joinpath(*self.parts)


@dataclass(frozen=True)
class RunFolder:
    """Paths in the folder `path` of a run."""

    path: Path

    #: The resolved configuration.
    config = _Below("config.yaml")
    #: Everything that was logged, one row per step or epoch.
    metrics = _Below("metrics.csv")
    checkpoints = _Below("checkpoints")
    #: Weights with the best validation metric.
    best = _Below("checkpoints", "best.ckpt")
    #: Everything needed to resume.
    last = _Below("checkpoints", "last.ckpt")
    #: The checkpoint before the last, in case the last is damaged.
    previous = _Below("checkpoints", "previous.ckpt")
    #: Tables and figures of the diagnostics.
    diagnostics = _Below("diagnostics")
    attention_maps = _Below("diagnostics", "attention_maps")
    #: Scores on labelled files, `NAME.json` each, and their predictions, `NAME.csv`.
    external = _Below("external")
    #: The page that shows this run.
    report = _Below("report.html")
    #: Scores.
    results = _Below("results.json")
    #: Hardware and software.
    environment = _Below("environment.json")
    #: Record of the training data.
    data = _Below("data.json")
    #: Sizes and feature values of the training graphs.
    training = _Below("training.json")
    #: The runs of trackers that belong to this run.
    trackers = _Below("trackers.json")

    @classmethod
    def existing(cls, path: str | Path) -> RunFolder:
        """Open the folder of an earlier run; refuse a folder without one."""
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
        """Create a folder under `runs/`, named after benchmark, architecture and time, so that no other run uses it.

        The name is the same on every rank: processes that Lightning starts for other devices inherit it through the
        environment.

        Raises:
            BadInput: another program started the processes, which could not agree on a name.
        """
        if "LOCAL_RANK" in os.environ and _FOLDER_VARIABLE in os.environ:
            return cls(Path(os.environ[_FOLDER_VARIABLE]))
        if int(os.environ.get("WORLD_SIZE", 1)) > 1 and "LOCAL_RANK" in os.environ:
            raise BadInput("Name the folder with --run: several processes could not agree on one named after the time.")
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        name = f"{benchmark}-{architecture}-{stamp}".lower()
        for number in itertools.count(1):  # another run may have started in the same second
            path = Path("runs", name if number == 1 else f"{name}-{number}")
            with contextlib.suppress(FileExistsError):
                path.mkdir(parents=True)
                break
        os.environ[_FOLDER_VARIABLE] = str(path)
        return cls(path)

    @classmethod
    def temporary(cls) -> RunFolder:
        """Create a folder, the same on every rank, for a run that leaves no files; its first process removes it."""
        if "LOCAL_RANK" not in os.environ or _FOLDER_VARIABLE not in os.environ:
            os.environ[_FOLDER_VARIABLE] = tempfile.mkdtemp(prefix="graphbench-")
        return cls(Path(os.environ[_FOLDER_VARIABLE]))

    @contextlib.contextmanager
    def held(self, new: bool = False) -> Iterator[Place]:
        """Lock the folder, created if missing, until the block or the process ends, see `locked`.

        Yield its place, which detects that the folder was moved or removed.

        Args:
            new: the folder was created for this run; like one created here, it is removed if the block leaves nothing
                in it to continue or to read.
        """
        new = new or not self.path.exists()
        with locked(self.path) as place:
            try:
                self._sweep()
                self.finish_writing()
                yield place
            finally:
                # Otherwise a command that fails before its first row would leave a folder for each attempt.
                if new and place.is_there() and not self.is_begun and not self.metrics.is_file():
                    shutil.rmtree(self.path, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove incomplete files of a killed process, and a link in place of a file that Lightning writes directly."""
        remove_link(self.path / "hparams.yaml")
        for folder in (self.path, self.checkpoints):
            for name in (self.config.name, self.metrics.name, self.report.name, "*.json", "*.ckpt", ".holder"):
                for torn in folder.glob(f".{name}-*"):
                    torn.unlink(missing_ok=True)

    def finish_writing(self) -> None:
        """Move files that a killed command completed to their places, see `graphbench.data.files.writing`."""
        try:
            finish_writing(self.path)
        except OSError as error:
            log.warning("%s contains files of a killed command that cannot be moved: %s.", self.path, error)

    def clear(self) -> None:
        """Remove the files of a run that stopped before its first checkpoint; other files stay."""
        written = (self.metrics, self.environment, self.data, self.training, self.trackers, self.results, self.report)
        for path in (*written, *self.path.glob("events.out.tfevents.*")):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.diagnostics, ignore_errors=True)

    @property
    def is_begun(self) -> bool:
        """Return whether there is a checkpoint to continue from or a score to read."""
        return any(path.is_file() for path in (self.last, self.previous, self.best, self.results))

    @property
    def resumable(self) -> Path | None:
        """Return the checkpoint to resume from: the last one, else the previous one, else None."""
        return next((path for path in (self.last, self.previous) if path.is_file()), None)

    @property
    def tables(self) -> list[Path]:
        """Return the tables of all diagnostics, sorted by name."""
        return sorted(self.diagnostics.glob("*.csv"))

    def table(self, name: str) -> Path:
        """Return the path of the table of one diagnostic."""
        return self.diagnostics / f"{name}.csv"

    def predictions(self, split: str) -> Path:
        """Return the default path of the predictions of a split."""
        return self.path / f"predictions-{split}.csv"

    def note_environment(self, step: int, now: Mapping[str, Any]) -> None:
        """Record the code and versions `now` with which a run resumes at a step, if they have changed."""
        try:
            stored = load_json(self.environment)
            last = [stored, *stored.get("continued", [])][-1]
            if all(last.get(name) == now.get(name) for name in ("commit", "packages")):
                return
            part = {name: now[name] for name in ("started", "commit", "packages")} | {"step": step}
            stored["continued"] = [*stored.get("continued", []), part]
        except (OSError, ValueError, AttributeError):  # from an earlier version, or damaged
            return
        write_text(self.environment, json.dumps(stored, indent=2) + "\n")

    def read_results(self) -> dict[str, Any]:
        """Read the scores recorded so far.

        Raises:
            CorruptData: the file was not written by `write_results`.
        """
        self.finish_writing()
        if not self.results.is_file():
            return {}
        try:
            loaded = load_json(self.results)
        except (OSError, ValueError, RecursionError) as error:
            raise CorruptData(f"{self.results} cannot be read: {error}. Remove it to have it rewritten.") from error
        if not isinstance(loaded, dict):
            raise CorruptData(f"{self.results} is not a JSON object. Remove it to have it rewritten.")
        return with_present_keys(loaded)

    def write_results(self, values: Mapping[str, Any]) -> None:
        """Replace `results.json`, with null for scores that are not finite, which JSON cannot write."""
        write_text(self.results, json.dumps(_finite(dict(values)), indent=2, allow_nan=False) + "\n")

    def update_results(self, values: Mapping[str, Any]) -> None:
        """Add or replace top-level entries of `results.json`."""
        self.write_results(self.read_results() | dict(values))


def with_present_keys(results: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the keys of a `results.json` of an earlier version."""
    return {_OLD_KEYS.get(key, key): value for key, value in results.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
