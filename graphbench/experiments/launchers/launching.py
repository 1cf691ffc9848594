"""Submit missing units, several per job, and watch them until all have finished."""

from __future__ import annotations

import getpass
import json
import logging
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from graphbench.data.files.foreign import load_json
from graphbench.data.files.sharing import locked
from graphbench.data.files.writing import write_text
from graphbench.errors import CorruptData, GraphbenchError
from graphbench.experiments.commands import visible_gpus
from graphbench.experiments.launchers.cluster import Cluster
from graphbench.experiments.launchers.tasks import RayJob
from graphbench.experiments.launchers.units import Bundle, Unit, read_notes

if TYPE_CHECKING:
    import submitit

log = logging.getLogger(__name__)

#: Folder for submitit's scripts, logs and results in that of the units; its dot hides it from Parquet readers.
ROOM = ".launch"
#: Numbers of the submitted jobs, with the names of their units.
_JOBS = "jobs.json"
#: Seconds between two checks of local jobs, of the results of a cluster's jobs, and of its queue.
_OFTEN, _SELDOM, _QUEUE = 0.5, 5.0, 60.0
#: Shortest time between two checks, as a multiple of the time that one takes.
_REST = 9


def launch(
    stages: Sequence[Sequence[Unit]],
    cluster: Cluster,
    folder: Path,
    last: Unit | None = None,
    describe: Callable[[], str] = lambda: "",
) -> list[Unit]:
    """Run units as jobs, and wait until all have finished, successfully or not.

    Jobs of an earlier call that are still queued or running are not submitted again, but waited for. On a SLURM
    cluster, jobs continue if this process exits.

    Args:
        stages: missing units; a stage starts when the units of earlier stages have finished.
        cluster: resources for jobs.
        folder: the folder that all units write to.
        last: runs when all others have finished.
        describe: returns the state of all units as a line, which is logged when it changes.

    Returns:
        The units, including `last`, that have not succeeded.

    Raises:
        GraphbenchError: the cluster refuses the jobs.
    """
    jobs = Jobs(cluster, folder, describe)
    # Two simultaneous commands would both find the same units missing.
    with locked(folder / ROOM / "lock", f"Waiting for another process that submits jobs for {folder}."):
        submitted = jobs.recover()
        if submitted:
            log.info("%d jobs of an earlier call still exist.", len(jobs.open))
        new = [[unit for unit in stage if unit.name not in submitted] for stage in stages]
        for stage in filter(None, new):
            jobs.submit(stage)
        if last is not None and (any(new) or last.name not in submitted):
            jobs.submit([last])
    try:
        jobs.wait()
    except BaseException:
        if cluster.kind == "slurm":
            numbers = " ".join(dict.fromkeys(map(_base, jobs.open)))
            log.warning("The jobs continue; the same command watches them again, `scancel %s` stops them.", numbers)
        else:
            jobs.cancel()
        raise
    every = [*chain.from_iterable(stages), *([] if last is None else [last])]
    failed = [unit for unit in every if read_notes(unit.record).get("code") != 0]
    # A report over failed trainings exits with their code, although only the trainings failed.
    if last is not None and (failed == [last] or "ended" not in read_notes(last.record)):
        log.error("%s has not succeeded: see %s, or run the command again.", last.name, last.log)
    return failed


class Jobs:
    """The unfinished jobs of a folder; arguments as in `launch`."""

    def __init__(self, cluster: Cluster, folder: Path, describe: Callable[[], str]) -> None:
        self.cluster, self.folder, self._describe = cluster, folder, describe
        self._shown, self._asked = "", time.monotonic()
        self.open: dict[str, submitit.Job[Any] | RayJob] = {}
        self._units: dict[str, list[str]] = {}
        self._cards: dict[str, str | None] = {}

    def recover(self) -> set[str]:
        """Find unfinished jobs of earlier calls; return the names of their units."""
        if self.cluster.kind != "slurm":  # they stop with the command that started them
            return set()
        import submitit

        earlier = read_jobs(self.folder)
        queued = queued_jobs() if earlier else set()
        for number, names in earlier.items():
            job: submitit.Job[Any] = submitit.SlurmJob(folder=self.folder / ROOM, job_id=number)
            if not self._has_ended(job) and (queued is None or number in queued):
                self.open[number], self._units[number] = job, names
        return {name for number in self.open for name in self._units[number]}

    def submit(self, units: Sequence[Unit]) -> None:
        """Submit units to run after all open jobs."""
        for unit in units:
            unit.log.parent.mkdir(parents=True, exist_ok=True)
            # The record of an earlier end would be mistaken for this job's.
            unit.record.unlink(missing_ok=True)
        size = self.cluster.per_task
        bundles = [Bundle(units[start : start + size], Path.cwd()) for start in range(0, len(units), size)]
        if self.cluster.kind != "slurm":
            self._submit_here(bundles)
            return
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        after = list(dict.fromkeys(map(_base, self.open)))
        executor = cast("submitit.AutoExecutor", self.cluster.executor(self.folder / ROOM, self.folder.name, after))
        try:
            jobs = executor.submit_array(bundles)
        except (FailedJobError, FailedSubmissionError, OSError) as error:
            raise GraphbenchError(f"The cluster accepts no jobs: {' '.join(str(error).split())[-500:]}") from error
        self._note(jobs, bundles)
        log.info("Submitted %d units in %d jobs: %s", len(units), len(jobs), jobs[0].job_id.partition("_")[0])
        write_text(self.folder / ROOM / _JOBS, json.dumps(self._units, indent=1) + "\n")

    def _submit_here(self, bundles: Sequence[Bundle]) -> None:
        """Start local processes or Ray tasks, at most `at_once` at a time, when earlier ones have finished.

        Without `at_once`, one process runs at a time, or as many tasks as Ray has room for.
        """
        self.wait()
        executor = self.cluster.executor(self.folder / ROOM, self.folder.name)
        most = self.cluster.at_once or (len(bundles) if self.cluster.kind == "ray" else 1)
        # Ray itself assigns GPUs.
        groups = [] if self.cluster.kind == "ray" else _card_groups(self.cluster.gpus)
        try:
            for bundle in bundles:
                self.wait(below=most)
                # submitit itself shows the first GPUs to every process.
                used = [self._cards[number] for number in self.open]
                bundle.cards = min(groups, key=used.count, default=None)
                self._note([executor.submit(bundle)], [bundle])
        except BaseException:
            self.cancel()
            raise

    def _note(self, jobs: Sequence[submitit.Job[Any] | RayJob], bundles: Sequence[Bundle]) -> None:
        for job, bundle in zip(jobs, bundles, strict=True):
            self.open[job.job_id] = job
            self._units[job.job_id] = [unit.name for unit in bundle.units]
            self._cards[job.job_id] = bundle.cards

    def wait(self, below: int = 1) -> None:
        """Wait until fewer than `below` jobs are open."""
        while True:
            began = time.monotonic()
            self.open = {number: job for number, job in self.open.items() if not self._has_ended(job)}
            self._forget_lost()
            if (text := self._describe()) != self._shown:
                log.info("%s", text)
                self._shown = text
            if len(self.open) < below:
                return
            # Looking at the files of a thousand units takes a second, or many on a file server.
            usual = _SELDOM if self.cluster.kind == "slurm" else _OFTEN
            time.sleep(max(usual, _REST * (time.monotonic() - began)))

    def _has_ended(self, job: submitit.Job[Any] | RayJob) -> bool:
        # `done` calls `sacct`, which some clusters lack, and which does not report tasks cancelled in the queue.
        slurm = self.cluster.kind == "slurm"
        return cast("submitit.Job[Any]", job).paths.result_pickle.exists() if slurm else job.done()

    def _forget_lost(self) -> None:
        """Close jobs that were cancelled or killed, which leave the queue without a result."""
        if self.cluster.kind != "slurm" or not self.open or time.monotonic() < self._asked + _QUEUE:
            return
        self._asked = time.monotonic()
        queued = queued_jobs()
        for number in set() if queued is None else self.open.keys() - queued:
            if not self._has_ended(self.open.pop(number)):
                log.warning("Job %s has left the queue without a result: it was cancelled or killed.", number)

    def cancel(self) -> None:
        """Stop processes that were started here; their commands write a checkpoint."""
        for job in self.open.values():
            job.cancel()


def read_jobs(folder: Path) -> dict[str, list[str]]:
    """Read the jobs submitted last, and the names of their units."""
    path = folder / ROOM / _JOBS
    if not path.is_file():
        return {}
    try:
        stored: Mapping[str, list[str]] = load_json(path)
        return {str(number): [str(name) for name in names] for number, names in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise CorruptData(
            f"{path} does not say which jobs were submitted ({error}). Remove it to submit again."
        ) from error


def queued_jobs() -> set[str] | None:
    """Return the numbers of the user's queued or running jobs; None if the controller does not answer."""
    # Of all partitions: without the option, squeue omits jobs in hidden ones.
    command = ["squeue", "--all", "--noheader", "--array", "--format=%i", f"--user={getpass.getuser()}"]
    try:
        return set(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split())
    except (OSError, subprocess.SubprocessError):
        return None


def _card_groups(size: int) -> list[str]:
    """Return values of `CUDA_VISIBLE_DEVICES` with this many GPUs each; empty without GPUs."""
    cards = visible_gpus() if size else []
    return [",".join(cards[start : start + size]) for start in range(0, len(cards) - size + 1, size)] if cards else []


def _base(number: str) -> str:
    """Return the number of the array that a task belongs to."""
    return number.partition("_")[0]
