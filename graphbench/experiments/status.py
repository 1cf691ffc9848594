"""Report the progress of the units of a sweep, a study, a published table or a prediction, using only files.

Nothing is locked or written, so checking from another machine is safe. Whether a process is alive is known on its own
machine; on others from its last heartbeat, if it has one.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from graphbench.data.files.foreign import load_json
from graphbench.data.files.sharing import locked, process_exists
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput, CorruptData
from graphbench.experiments.launchers.launching import ROOM, read_jobs
from graphbench.experiments.launchers.units import STOPPED, read_notes, record_of
from graphbench.experiments.tuning.storage import JOURNAL, RECORD, SQLITE
from graphbench.runs import RunFolder
from graphbench.runs.holding import claim_of

State = Literal["done", "running", "waiting", "failed", "stopped"]
STATES: tuple[State, ...] = get_args(State)
#: The planned units of a sweep or a table.
PLAN = "plan.json"
#: Seconds without a heartbeat after which a unit on another machine counts as stopped; clients of file servers show
#: times that are up to a minute old.
STALE = 150.0
#: Seconds since a run on another machine last wrote something, after which this is shown.
_SILENT = 600.0
#: Number of log lines that show why a unit failed, and of characters to read from its end.
LAST_LINES, _TAIL = 5, 4096
# A pattern, since a sweep may have a thousand configurations, and YAML takes ten milliseconds or more for each.
_MAX_EPOCHS = re.compile(r"^trainer:\n(?:[ #].*\n)*?  max_epochs: (\d+)$", re.MULTILINE)
#: Finished epochs in `metrics.csv`.
_EPOCH = re.compile(r"\d{1,9}(\.0)?")
_SHARE = re.compile(r"\.?share-(\d+)-of-(\d+)")


@dataclass(frozen=True)
class UnitStatus:
    """State of a unit, and its time if known."""

    name: str  # of its folder; 3/8 for a share of a prediction
    state: State  # waiting ones have not started, stopped ones resume if the command is run again
    #: of training if done, since its start if running; None if unknown.
    seconds: float | None = None
    epoch: str = ""  # as `12 of 100`; "" if unknown
    note: str = ""  # a reason, or where it runs or waits
    lines: tuple[str, ...] = ()  # end of its log if it failed


@dataclass(frozen=True)
class _Planned:
    """A planned unit of a folder."""

    name: str
    folders: tuple[str, ...]  # possible folders of its run, relative to that of all units, which may therefore be moved
    end: str = "test"  # split whose score finishes it
    by_other: bool = False  # planned by a call other than the last one


def write_plan(folder: Path, units: Iterable[tuple[str, Sequence[Path]]], end: str = "test") -> None:
    """Write the planned units of a folder with their possible run folders, and the split whose score finishes them.

    Units of other calls stay, since some may still be waiting.
    """
    plan = [_Planned(name, tuple(str(one.relative_to(folder)) for one in folders), end) for name, folders in units]
    names, path = {unit.name for unit in plan}, folder / PLAN
    with locked(path.with_name(f".{PLAN}.lock"), f"Another process is writing {path}."):
        with contextlib.suppress(CorruptData):
            plan += [replace(unit, by_other=True) for unit in _plan(path) if unit.name not in names]
        write_text(path, json.dumps({"units": [asdict(unit) for unit in plan]}, indent=1) + "\n")


def write_trials(folder: Path, trials: int) -> None:
    """Write the planned number of trials of a study."""
    write_text(folder / PLAN, json.dumps({"trials": trials}) + "\n")


def summarize(units: Sequence[UnitStatus]) -> str:
    """Count units by state.

    Examples:
        >>> summarize([UnitStatus("a", "done"), UnitStatus("b", "waiting"), UnitStatus("c", "done")])
        '3 units: 2 done, 1 waiting'
    """
    counts = Counter(unit.state for unit in units)
    states = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    return f"{len(units)} unit{'s' * (len(units) != 1)}: {states}"


def read_status(folder: Path) -> list[UnitStatus]:
    """Return the units of a sweep, a study, a table, a prediction in parts, or of one run."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: there is no such folder. Name that of a sweep, a study, a table or a prediction.")
    if (count := shares_of(folder)) or (folder / "_manifest.json").is_file():
        return _of_prediction(folder, count)
    if (folder / RECORD).is_file() or (folder / SQLITE).is_file():
        return _of_study(folder)
    if (folder / PLAN).is_file() or (folder / "runs").is_dir():
        return _of_runs(folder)
    if (folder / "config.yaml").is_file():
        return [_of_run(folder, folder.name, None)]
    raise BadInput(
        f"{folder} is not the folder of a sweep, a study, a table, a prediction in parts or a run. Name that of "
        "--output or --run."
    )


# -- runs --------------------------------------------------------------------------------------------------------------


def _of_runs(folder: Path) -> list[UnitStatus]:
    """Return the planned units, then additional runs in the folder."""
    jobs = {name: number for number, names in read_jobs(folder).items() for name in names}
    units, planned, plan = [], set(), _plan(folder / PLAN)
    for one in plan:
        folders = [folder / place for place in one.folders]
        planned.update(folders)
        begun = [path for path in folders if (path / "config.yaml").is_file()]
        unit = _of_run(begun[-1] if begun else folders[0], one.name, folder / "logs" / f"{one.name}.log", one.end)
        if unit.state == "waiting":
            note = f"job {jobs[one.name]}" if one.name in jobs else "for another call" if one.by_other else ""
            unit = replace(unit, note=note)
        units.append(unit)
    rest = (path.parent for room in ("runs", "trials") for path in folder.glob(f"{room}/*/config.yaml"))
    end = plan[0].end if plan else "test"  # that of the last call
    return units + [
        _of_run(path, path.name, folder / "logs" / f"{path.name}.log", end) for path in sorted(set(rest) - planned)
    ]


def _plan(path: Path) -> list[_Planned]:
    """Return the planned units of a folder."""
    if not path.is_file():
        return []
    try:
        plan = load_json(path)
        end = plan.get("end", "test")  # for all, as written by earlier versions
        return [_Planned(**{"end": end, **unit, "folders": tuple(unit["folders"])}) for unit in plan["units"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptData(f"{path} does not list units ({error}). Remove it to see only the runs.") from error


def _of_run(folder: Path, name: str, log: Path | None, end: str = "test") -> UnitStatus:
    """Return the state of a run whose commands may have a log; `end` is the split whose score finishes the unit."""
    run = RunFolder(folder)
    results = read_notes(run.results)
    unit = UnitStatus(name, "waiting", epoch=_epoch(run))
    if end in results:
        return replace(unit, state="done", seconds=results.get("fit_seconds"), note=_score(results, end))
    notes = {} if log is None else read_notes(record_of(log))
    if (running := _running(run, None if log is None else record_of(log), notes)) is not None:
        seconds, note = running
        return replace(unit, state="running", seconds=seconds, note=note)
    code = notes.get("code")
    if results.get("diverged"):
        return replace(unit, state="failed", note=f"diverged: {results['diverged']}")
    if code not in (None, 0, *STOPPED):
        assert log is not None
        problem = str(notes.get("problem") or f"exit code {code}")
        return replace(unit, state="failed", note=problem, lines=last_lines(log))
    if code is not None or run.config.is_file() or "began" in notes:
        return replace(unit, state="stopped", note="resumes with the same command")
    return unit


def _running(run: RunFolder, record: Path | None, notes: Mapping[str, Any]) -> tuple[float, str] | None:
    """Return how long a run has been written to, and by whom; None if it is not being written to."""
    # The process that writes to it, or between its commands the one that runs them.
    holders = (read_notes(path) for path in (run.path / ".holder", claim_of(run.path)))
    for holder in (one for one in holders if {"host", "process", "since"} <= one.keys()):
        if holder["host"] == socket.gethostname():
            if _lives(holder["process"]):
                return _since(holder["since"]), ""
        elif record is None or "began" not in notes or _age(record) < STALE:  # its own job has a heartbeat
            silent = min(_age(run.metrics), _age(run.path / ".holder"))
            last = f", last written {silent / 60:.0f} minutes ago" if silent > _SILENT else ""
            return _since(holder["since"]), f"on {holder['host']}{last}"
    # A unit imports torch for several seconds before its run has a holder.
    if "began" in notes and "ended" not in notes and record is not None:
        here = notes.get("host") == socket.gethostname()
        if _lives(notes.get("process")) if here else _age(record) < STALE:
            return _since(str(notes["began"])), "" if here else f"on {notes.get('host')}"
    return None


def _lives(process: object) -> bool:
    """Return whether a process of this machine exists, given its number in a file."""
    return str(process).isdigit() and process_exists(int(str(process)))


def _age(path: Path) -> float:
    """Return the seconds since a file was written; infinite without one."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")


def _since(text: str) -> float:
    try:
        return max(0.0, time.time() - datetime.fromisoformat(text).timestamp())
    except ValueError:
        return 0.0


def _epoch(run: RunFolder) -> str:
    """Return the number of trained epochs out of those to train."""
    try:
        with run.metrics.open("rb") as file:
            column = file.readline().decode().rstrip("\r\n").split(",").index("epoch")
            # Only the end: metrics have a row per twenty steps, and a sweep may have a thousand tables.
            file.seek(max(file.tell(), run.metrics.stat().st_size - _TAIL))
            # The last line may be incomplete, and the first one may start in the middle.
            rows = file.read().decode(errors="replace").split("\n")[:-1]
    except (OSError, ValueError):
        return ""
    cells = [row.split(",")[column] for row in rows if row.count(",") >= column]
    last = next((int(float(cell)) for cell in reversed(cells) if _EPOCH.fullmatch(cell)), None)
    if last is None:
        return ""
    with contextlib.suppress(OSError):
        if match := _MAX_EPOCHS.search(run.config.read_text(encoding="utf-8", errors="replace")):
            return f"{last} of {match[1]}"
    return str(last)


def _score(results: Mapping[str, Any], split: str) -> str:
    """Return the score of a split as text; "" if it is not a number."""
    name = f"{split}/{results.get('metric')}"
    value = results[split].get(name) if isinstance(results[split], Mapping) else None
    return f"{name} {value:.4g}" if isinstance(value, (int, float)) else ""


def last_lines(path: Path) -> tuple[str, ...]:
    """Return the end of a log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return ()
    return tuple(line.rstrip()[-300:] for line in text.splitlines() if line.strip())[-LAST_LINES:]


# -- studies and predictions -------------------------------------------------------------------------------------------


def _of_study(folder: Path) -> list[UnitStatus]:
    """Return the trials of a study; its journal states how they ended."""
    ended = _ended_trials(folder / JOURNAL)
    numbers = {int(path.parent.name) for path in folder.glob("trials/[0-9]*/config.yaml")}
    # A trial that has just begun has no configuration yet, although a later one may.
    planned = range(read_notes(folder / PLAN).get("trials", 0))
    units = []
    for number in sorted({*numbers, *ended, *planned}):
        unit = _of_run(folder / "trials" / str(number), str(number), None, end="val")
        state, note = ended.get(number, (unit.state, unit.note))
        units.append(replace(unit, state=state, note=note or unit.note))
    # Launched workers are not units, but without a running one the trials wait forever.
    for record in sorted(folder.glob("logs/worker-*.json")):
        if (code := read_notes(record).get("code")) not in (None, 0, *STOPPED):
            lines = last_lines(record.with_suffix(".log"))
            units.append(UnitStatus(record.stem, "failed", note=f"exit code {code}", lines=lines))
    return units


def _ended_trials(path: Path) -> dict[int, tuple[State, str]]:
    """Return state and reason of finished trials, by number; empty if the study is in a database."""
    if not path.is_file():
        return {}
    try:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        storage = JournalStorage(JournalFileBackend(str(path)))  # it locks the file only for writing
        trials = [trial for study in storage.get_all_studies() for trial in storage.get_all_trials(study._study_id)]
    except ImportError as error:
        raise BadInput("A study needs Optuna: pip install 'graphbench-lightning[tune]'.") from error
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        raise CorruptData(f"{path} cannot be read as a study: {type(error).__name__}: {error}") from error
    ended: dict[int, tuple[State, str]] = {}
    for trial in trials:
        match trial.state.name:
            case "PRUNED":
                epoch = trial.user_attrs.get("pruned_in_epoch")
                ended[trial.number] = "done", "pruned" if epoch is None else f"pruned after epoch {epoch + 1}"
            case "FAIL":
                ended[trial.number] = "failed", str(trial.user_attrs.get("problem", ""))
            case "COMPLETE":
                ended[trial.number] = "done", ""
    return ended


def shares_of(folder: Path) -> int:
    """Return the number of shares of a prediction, as last started, else as last submitted; 0 if none."""
    begun = [*folder.glob(".share-*.json"), *(folder / ROOM).glob("share-*.json")]
    last = sorted(begun, key=lambda path: path.stat().st_mtime)
    names = [path.stem for path in reversed(last)] or [name for names in read_jobs(folder).values() for name in names]
    return next((int(match[2]) for name in names if (match := _SHARE.fullmatch(name))), 0)


def _of_prediction(folder: Path, count: int) -> list[UnitStatus]:
    """Return the shares of a prediction in parts."""
    if not count:  # from an earlier version
        complete = bool(read_notes(folder / "_manifest.json").get("complete"))
        return [UnitStatus("1/1", "done" if complete else "stopped")]
    parts = [int(path.stem[5:]) for path in folder.glob("part-*.parquet") if path.stem[5:].isdigit()]
    units = []
    for number in range(1, count + 1):
        name = f"share-{number}-of-{count}"
        written = sum(part % count == number - 1 for part in parts)
        unit = UnitStatus(f"{number}/{count}", "waiting", note=f"{written} parts")
        units.append(_of_share(unit, read_notes(folder / f".{name}.json"), folder / ROOM / f"{name}.log"))
    return units


def _of_share(unit: UnitStatus, notes: Mapping[str, Any], log: Path) -> UnitStatus:
    launched = read_notes(record_of(log))
    if notes.get("done"):
        return replace(unit, state="done", seconds=notes.get("seconds"))
    starting = {} if "ended" in launched else launched  # it imports torch before it writes its record
    for who in filter(None, (notes, starting)):
        here = who.get("host") == socket.gethostname()
        if _lives(who.get("process")) if here else "began" not in launched or _age(record_of(log)) < STALE:
            where = "" if here else f", on {who.get('host')}"
            since = _since(str(who.get("since") or who.get("began")))
            return replace(unit, state="running", seconds=since, note=unit.note + where)
    code = launched.get("code")
    if code not in (None, 0, *STOPPED):
        return replace(unit, state="failed", note=f"{unit.note}, exit code {code}", lines=last_lines(log))
    return replace(unit, state="stopped") if notes or launched else unit
