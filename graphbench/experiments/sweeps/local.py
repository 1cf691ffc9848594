"""Run the trainings of a sweep here: one after the other, or several at a time on the local devices."""

from __future__ import annotations

import logging
import math
import os
import queue
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from graphbench.errors import GraphbenchError
from graphbench.experiments import CommandFailed, Training, graphbench, pass_on, results, train

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Failure:
    """A training that did not reach its scores.

    Args:
        training: which.
        reason: what is known.
    """

    training: Training
    reason: str

    @property
    def name(self) -> str:
        """As its folder is called."""
        return f"{self.training.name}-{self.training.seed}"


def run_all(trainings: Sequence[Training], output: Path, jobs: int = 1, logs: bool = True) -> list[Failure]:
    """Train and test all that is not finished; what fails is reported at the end and stops no other.

    Args:
        trainings: which.
        output: folder of the sweep.
        jobs: how many run at a time; each has a device of its own as far as there are enough.
        logs: whether what a training prints goes into `output/logs`.

    Returns:
        Those that failed, in the order of `trainings`.
    """
    missing = [training for training in trainings if not training.is_finished(output)]
    if len(missing) < len(trainings):
        log.info("%d of %d trainings are finished already.", len(trainings) - len(missing), len(trainings))
    numbers = {id(training): f"[{place}/{len(missing)}]" for place, training in enumerate(missing, 1)}
    if jobs == 1:
        failures = [_run(training, output, numbers[id(training)], {}, logs) for training in missing]
    else:
        failures = _in_parallel(missing, output, numbers, devices(jobs), logs)
    failures += [_diverged(training, output) for training in trainings if training not in missing]
    return [failure for failure in failures if failure is not None]


def _in_parallel(
    missing: Sequence[Training],
    output: Path,
    numbers: Mapping[int, str],
    places: Sequence[Mapping[str, str]],
    logs: bool,
) -> list[Failure | None]:
    """As many at a time as there are places, each of which serves one training after the other."""
    free: queue.SimpleQueue[Mapping[str, str]] = queue.SimpleQueue()
    for place in places:
        free.put(place)

    def run(training: Training) -> Failure | None:
        place = free.get()
        try:
            return _run(training, output, numbers[id(training)], place, logs)
        finally:
            free.put(place)

    with ThreadPoolExecutor(len(places)) as pool:
        try:
            return list(pool.map(run, missing))
        except BaseException as stop:  # a signal: what runs ends in good order, and nothing else begins
            pool.shutdown(wait=False, cancel_futures=True)
            pass_on(getattr(stop, "signum", signal.SIGTERM))
            raise


def _run(training: Training, output: Path, number: str, environment: Mapping[str, str], logs: bool) -> Failure | None:
    """One training; None when it went well."""
    folder = training.folder(output)
    path = output / "logs" / f"{folder.name}.log" if logs else None
    log.info("%s %s%s", number, folder.name, f": see {path}" if path is not None else "")
    options: dict[str, Any] = ({"log": path} if path is not None else {}) | (
        {"environment": environment} if environment else {}
    )
    try:
        train(folder, partial(training.arguments, output), partial(graphbench, **options))
    except CommandFailed as failed:
        return Failure(training, f"exit code {failed.returncode}{_last_line(path)}")
    except GraphbenchError as error:
        return Failure(training, str(error))
    if not training.is_finished(output):
        return Failure(training, "it left no scores")
    failure = _diverged(training, output)
    if failure is None:
        stored = results(folder)
        name = f"test/{stored['metric']}"
        log.info("%s %s: %s %.4f", number, folder.name, name, stored["test"][name])
    return failure


def _diverged(training: Training, output: Path) -> Failure | None:
    """A finished training whose score is no number."""
    stored = results(training.folder(output))
    score = stored["test"].get(f"test/{stored['metric']}")
    if isinstance(score, (int, float)) and math.isfinite(score):
        return None
    return Failure(training, f"it diverged: test {stored['metric']} is no number")


def _last_line(path: Path | None) -> str:
    """The last thing that a training said."""
    if path is None or not path.is_file():
        return ""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return f": {said[-1][:300]}" if said else ""


def devices(jobs: int) -> list[dict[str, str]]:
    """Environments of trainings that run at the same time: a GPU each where there are some, and a share of the cores.

    Args:
        jobs: how many; with more than there are GPUs several share one.
    """
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = named.split(",") if named else [str(number) for number in range(torch.cuda.device_count())]
    available: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    cores = len(available(0)) if available is not None else os.cpu_count() or 1
    threads = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(max(1, cores // jobs))}
    return [threads | ({"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} if gpus else {}) for number in range(jobs)]
