"""Run the trainings of a sweep one after another, or several at a time on the local devices."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from graphbench.errors import GraphbenchError
from graphbench.experiments import CommandFailed, TrainedElsewhere, Training, graphbench, results, train
from graphbench.experiments.commands import run_in_parallel, visible_gpus
from graphbench.experiments.launchers.units import Note, read_notes, record_of
from graphbench.runs.tables import show_number

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Failure:
    """A training without scores, and the reason."""

    training: Training
    reason: str

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return f"{self.training.name}-{self.training.seed}"


def run_all(trainings: Sequence[Training], output: Path, jobs: int = 1, logs: bool = True) -> list[Failure]:
    """Train and test all unfinished trainings, `jobs` at a time; failures do not stop the others.

    A training that another call works on is skipped and counts as a failure of this one. With `logs`, the output of a
    training goes to `output/logs`.

    Returns:
        The failures: of this call, then of earlier ones.
    """
    finished: list[Training] = []
    missing: list[Training] = []
    for training in trainings:
        (finished if training.is_finished(output) else missing).append(training)
    if finished:
        log.info("%d of %d trainings are already finished.", len(finished), len(trainings))
    numbered = [(training, f"[{place}/{len(missing)}]") for place, training in enumerate(missing, 1)]

    def run(item: tuple[Training, str], environment: Mapping[str, str]) -> Failure | None:
        return _run(*item, output, environment, logs)

    failures = run_in_parallel(run, numbered, [{}] if jobs == 1 else devices(jobs))
    failed = [failure for failure in failures if failure is not None]
    # Trainings skipped for another call may have finished by now.
    finished += [failure.training for failure in failed if failure.training.is_finished(output)]
    failed = [failure for failure in failed if failure.training not in finished]
    return failed + [failure for one in finished if (failure := _diverged(one, output)) is not None]


def failures_of(trainings: Sequence[Training], output: Path) -> list[Failure]:
    """Return trainings without a score, with the recorded reasons."""
    failures = []
    for training in trainings:
        if training.is_finished(output):
            failures.append(_diverged(training, output))
            continue
        path = output / "logs" / f"{training.folder(output).name}.log"
        notes = read_notes(record_of(path))
        code = notes.get("code")
        reason = notes.get("problem") or ("it has not ended" if code is None else f"exit code {code}{_last_line(path)}")
        failures.append(Failure(training, str(reason)))
    return [failure for failure in failures if failure is not None]


def _run(training: Training, number: str, output: Path, environment: Mapping[str, str], logs: bool) -> Failure | None:
    """Run one training, and return its failure."""
    folder = training.folder(output)
    path = output / "logs" / f"{folder.name}.log" if logs else None
    log.info("%s %s%s", number, folder.name, f": see {path}" if path is not None else "")
    note = Note(None if path is None else record_of(path))  # the caller that runs only this one records how it ends
    failure, code = _outcome(training, output, path, environment, note)
    note.end(code, "" if code is None or failure is None else failure.reason)
    if code is None:
        log.info("%s %s is skipped: another process works on it", number, folder.name)
    if failure is None:
        stored = results(folder)
        name = f"test/{stored['metric']}"
        log.info("%s %s: %s %s", number, folder.name, name, show_number(stored["test"][name]))
    return failure


def _outcome(
    training: Training, output: Path, path: Path | None, environment: Mapping[str, str], note: Note
) -> tuple[Failure | None, int | None]:
    """Train and test, and return the failure and the exit code, None if another process trains it."""
    command = partial(graphbench, log=path, environment=environment or None)
    try:
        train(training.folder(output), partial(training.arguments, output), command, begin=note.begin)
    except TrainedElsewhere as elsewhere:
        return Failure(training, f"{elsewhere.holder} works on it"), None
    except CommandFailed as failed:
        return Failure(training, f"exit code {failed.returncode}{_last_line(path)}"), failed.returncode
    except GraphbenchError as error:
        return Failure(training, str(error)), 1
    if not training.is_finished(output):
        return Failure(training, "it has no scores"), 1
    return _diverged(training, output), 0


def _diverged(training: Training, output: Path) -> Failure | None:
    """Return the failure of a finished training whose score is not a number."""
    stored = results(training.folder(output))
    score = stored["test"].get(f"test/{stored['metric']}")
    if isinstance(score, (int, float)) and math.isfinite(score):
        return None
    return Failure(training, f"it diverged: test {stored['metric']} is not a number")


def _last_line(path: Path | None) -> str:
    """Return the last line of a log, as the end of a sentence."""
    if path is None or not path.is_file():
        return ""
    line = path.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2].strip()
    return f": {line[:300]}" if line else ""


def devices(jobs: int) -> list[dict[str, str]]:
    """Return environments for `jobs` trainings at a time: a share of the cores, and GPUs in turn if there are any."""
    gpus = visible_gpus()
    available: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    cores = len(available(0)) if available is not None else os.cpu_count() or 1
    # Otherwise every training uses all cores, and they wait for each other.
    threads = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(max(1, cores // jobs))}
    return [threads | ({"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} if gpus else {}) for number in range(jobs)]
