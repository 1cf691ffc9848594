"""Run the jobs of a plan one after another, one on each device, or as units of a launcher."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from graphbench.experiments import CommandFailed, TrainedElsewhere, graphbench
from graphbench.experiments.commands import run_in_parallel
from graphbench.experiments.launchers import Unit
from graphbench.experiments.launchers.units import Note, record_of
from graphbench.experiments.reproduce.plan import Job

log = logging.getLogger(__name__)


def missing(jobs: Sequence[Job], output: Path) -> list[int]:
    """Return the numbers of jobs that neither have a score nor diverged."""
    return [number for number, job in enumerate(jobs) if not job.is_finished(output) and not job.diverged(output)]


def stages(jobs: Sequence[Job], numbers: Sequence[int]) -> list[list[int]]:
    """Split jobs into those that need no other, and those that start from one; each stage can run in parallel."""
    first = [number for number in numbers if jobs[number].before is None]
    second = [number for number in numbers if jobs[number].before is not None]
    return [stage for stage in (first, second) if stage]


def run_here(jobs: Sequence[Job], numbers: Sequence[int], output: Path, after_each: Callable[[], None]) -> list[int]:
    """Run jobs one after another; return the numbers of those that failed, or that another process works on.

    A diverged training has not failed.
    """
    failed = []
    for place, number in enumerate(numbers, 1):
        job, training = jobs[number], jobs[number].training
        if not missing([job], output):  # another process has run it in the meantime
            after_each()
            continue
        log.info("%d of %d: %s, seed %d", place, len(numbers), training.name, training.seed)
        note = Note(record_of(_log(job, output)))
        code: int | None = 0
        problem = ""
        try:
            job.run(output, note.begin)
        except TrainedElsewhere as elsewhere:
            log.warning("%s, seed %d, is skipped: %s", training.name, training.seed, elsewhere)
            failed.append(number)
            code = None
        except CommandFailed as error:  # signals to this command raise other exceptions, which propagate
            if job.diverged(output):
                log.warning("%s diverged; to train it again, remove its folder.", training.name)
            else:
                log.error("%s: %s", training.name, error)
                failed.append(number)
                code, problem = error.returncode, str(error)
        note.end(code, problem)
        after_each()
    still = missing(jobs, output)  # without those that other processes have finished by now
    return [number for number in failed if number in still]


def run_beside(
    jobs: Sequence[Job], numbers: Sequence[int], devices: Sequence[str], command: Sequence[str]
) -> list[int]:
    """Run some jobs of a plan on several devices, each in its own process; return the numbers of those that failed.

    `devices` are values of `CUDA_VISIBLE_DEVICES`, and `command` the words after `graphbench` that create this plan.
    """

    def run(number: int, device: str) -> int | None:
        log.info("%s, seed %d, on device %s", jobs[number].training.name, jobs[number].training.seed, device)
        try:
            graphbench(*command, "--job", str(number), environment={"CUDA_VISIBLE_DEVICES": device})
        except CommandFailed:
            return number
        return None

    outcomes = [one for stage in stages(jobs, numbers) for one in run_in_parallel(run, stage, devices)]
    return [number for number in outcomes if number is not None]


def units(jobs: Sequence[Job], numbers: Sequence[int], output: Path, command: Sequence[str]) -> list[list[Unit]]:
    """Return jobs of a plan as units for a launcher, in stages; see `run_beside` for the command."""
    return [
        [Unit(_name(jobs[one], output), (*command, "--job", str(one)), _log(jobs[one], output)) for one in stage]
        for stage in stages(jobs, numbers)
    ]


def planned(jobs: Sequence[Job], output: Path) -> list[tuple[str, list[Path]]]:
    """Return name and possible run folders of each job: one for each seed of its initial weights."""

    def folders(job: Job) -> list[Path]:
        starts = [replace(job.training, seed=one.seed).folder(output) for one in job.trials()]
        return starts or [job.training.folder(output)]

    return [(_name(job, output), folders(job)) for job in jobs]


def _name(job: Job, output: Path) -> str:
    return job.training.folder(output).name


def _log(job: Job, output: Path) -> Path:
    return output / "logs" / f"{_name(job, output)}.log"
