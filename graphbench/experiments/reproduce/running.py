"""Run the jobs of a plan one after the other, one on each device, or as arrays of a SLURM cluster."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from graphbench.data.files.writing import write_text
from graphbench.experiments import CommandFailed, graphbench
from graphbench.experiments.reproduce.plan import Job
from graphbench.experiments.slurm import array_script
from graphbench.experiments.trainings import run_in_parallel

log = logging.getLogger(__name__)

_SUBMIT = """#!/bin/bash
# Submits the arrays one behind the other; then write the tables with
#   {command} --no-train
set -e
last=
for script in {scripts}; do
    last=$(sbatch --parsable ${{last:+--dependency=afterok:$last}} "$script")
    echo "$script: job $last"
done
"""


def missing(jobs: Sequence[Job], output: Path) -> list[int]:
    """Return numbers of the jobs that neither have a score nor diverged."""
    return [number for number, job in enumerate(jobs) if not job.is_finished(output) and not job.diverged(output)]


def stages(jobs: Sequence[Job], numbers: Sequence[int]) -> list[list[int]]:
    """Split jobs into those that need no other, then those that start from one; each stage can run in parallel."""
    first = [number for number in numbers if jobs[number].before is None]
    second = [number for number in numbers if jobs[number].before is not None]
    return [stage for stage in (first, second) if stage]


def run_here(jobs: Sequence[Job], numbers: Sequence[int], output: Path, after_each: Callable[[], None]) -> list[int]:
    """Run jobs one after the other, and call `after_each` after each.

    Returns:
        Numbers of the jobs that failed; a training that diverged has not.
    """
    failed = []
    for place, number in enumerate(numbers):
        log.info(
            "%d of %d: %s, seed %d", place + 1, len(numbers), jobs[number].training.name, jobs[number].training.seed
        )
        try:
            jobs[number].run(output)
        except CommandFailed as error:  # signals to this command are other exceptions, and propagate
            if jobs[number].diverged(output):
                log.warning("%s diverged; to train it again, remove its folder.", jobs[number].training.name)
            else:
                log.error("%s: %s", jobs[number].training.name, error)
                failed.append(number)
        after_each()
    return failed


def run_beside(
    jobs: Sequence[Job], numbers: Sequence[int], devices: Sequence[str], command: Sequence[str]
) -> list[int]:
    """Run jobs on several devices, each in its own process.

    Args:
        jobs: the plan.
        numbers: of the jobs to run.
        devices: values of `CUDA_VISIBLE_DEVICES`, one for each device.
        command: the words after `graphbench` that make this plan.

    Returns:
        Numbers of the jobs that failed.
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


def write_slurm(jobs: Sequence[Job], numbers: Sequence[int], output: Path, command: Sequence[str]) -> list[Path]:
    """Write the missing jobs as arrays, and a script that submits them in order.

    Args:
        jobs: the plan.
        numbers: of the jobs to run.
        output: folder of the runs; the scripts go to OUTPUT/slurm.
        command: the words after `graphbench` that make this plan.

    Returns:
        The scripts; the last one submits the others.
    """
    folder = output / "slurm"
    folder.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "graphbench", *command]
    note = "A task that is queued again goes on where it stopped. Set partition, time and memory as the cluster wants."
    paths = []
    for place, stage in enumerate(stages(jobs, numbers)):
        paths.append(folder / f"array-{place + 1}.sh")
        text = array_script(words, "--job", stage, folder, Path.cwd(), notes=[note], directives=["--gpus=1"])
        write_text(paths[-1], text)
    scripts = " ".join(shlex.quote(str(path.absolute())) for path in paths)
    submit = folder / "submit.sh"
    write_text(submit, _SUBMIT.format(scripts=scripts, command=shlex.join(words)))
    return [*paths, submit]
