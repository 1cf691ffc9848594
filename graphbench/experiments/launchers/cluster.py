"""Options `--launcher.NAME` of a command, and the executor of submitit or Ray that they describe."""

from __future__ import annotations

import argparse
import importlib
import logging
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphbench.errors import BadInput, check_choice, check_range
from graphbench.experiments.launchers.tasks import RayExecutor

if TYPE_CHECKING:
    import submitit

log = logging.getLogger(__name__)

LAUNCHERS = ("local", "submitit", "ray")
CLUSTERS = ("slurm", "local", "debug")
#: Option -> its help.
OPTIONS: dict[str, str] = {
    "launcher": "local (default): here; submitit: as jobs of a SLURM cluster, which are watched and requeued; ray: "
    "as tasks of a Ray cluster",
    "launcher.time": "time of a job, such as 4:00:00 or 2-00:00:00, or minutes; longer work is requeued and resumes",
    "launcher.gpus": "GPUs of a job (default: none)",
    "launcher.cpus": "for ray: number of processors that a job reserves (default: 1)",
    "launcher.partition": "partition of the cluster",
    "launcher.account": "account of the cluster",
    "launcher.sbatch": "other options of sbatch, such as 'mem=32G cpus-per-task=8 qos=long'",
    "launcher.setup": "shell line to run before each job, such as 'module load cuda'",
    "launcher.at_once": "jobs at a time; workers of a study; shares of a prediction or preparation",
    "launcher.per_task": "short trainings that share a job, one after another (default: 1)",
    "launcher.cluster": "for submitit: slurm (default); local: processes here, debug: this process, to try it out",
}
#: Launcher -> options that belong to another launcher.
_FOREIGN = {
    "submitit": ("launcher.cpus",),
    "ray": tuple(f"launcher.{name}" for name in ("time", "partition", "account", "sbatch", "setup", "cluster")),
}
#: How often a job may run out of time before it counts as failed; submitit's default of 3 is for trainings of a day.
_TIMEOUTS = 100
#: SLURM warns a job 90 seconds before its end, and up to a minute earlier, since it checks once a minute. A job of two
#: minutes is warned while starting, and would be requeued repeatedly without training a step.
_LEAST_MINUTES = 5
#: Since SLURM 22.05 srun ignores its job's cpus-per-task, and may bind the task to a single processor.
_CPUS = '[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK'


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `OPTIONS` to the parser of a command."""
    for name, text in OPTIONS.items():
        names = dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}"))
        parser.add_argument(*names, dest=name, help=text, metavar="NAME" if name == "launcher" else "VALUE")


@dataclass(frozen=True)
class Cluster:
    """Resources that a job requests.

    Args:
        kind: submitit's executor (slurm, local or debug), or ray.
        minutes: after which a job is requeued.
        gpus: of each job.
        cpus: of each task of Ray.
        partition: of the cluster.
        account: of the cluster.
        sbatch: other options of sbatch, without dashes.
        setup: shell line to run before each job.
        at_once: maximum number of jobs at a time; None leaves it to the cluster.
        per_task: number of units in a job.
    """

    kind: str = "slurm"
    minutes: int = 60
    gpus: int = 0
    cpus: int = 1
    partition: str | None = None
    account: str | None = None
    sbatch: Mapping[str, str | bool] = field(default_factory=dict)
    setup: str | None = None
    at_once: int | None = None
    per_task: int = 1

    @classmethod
    def of(cls, options: argparse.Namespace) -> Cluster | None:
        """Read the options of a command; None if its units run without a launcher.

        Raises:
            BadInput: a value is not one of those expected, an option belongs to another launcher, a time limit is
                missing, submitit or Ray is not installed, or SLURM is not available.
        """
        given = {name: value for name in OPTIONS if (value := getattr(options, name, None)) is not None}
        launcher = given.pop("launcher", "local")
        check_choice("--launcher", launcher, LAUNCHERS)
        if launcher == "local":
            if given:
                raise BadInput(f"--{next(iter(given))} describes jobs of a cluster: add --launcher submitit or ray.")
            return None
        if foreign := [name for name in given if name in _FOREIGN[launcher]]:
            raise BadInput(f"--{foreign[0]} is not an option of --launcher {launcher}: leave it out.")
        counts = cls(
            kind="ray",
            gpus=_whole(given, "gpus", at_least=0) or 0,
            cpus=_whole(given, "cpus", at_least=1) or 1,
            at_once=_whole(given, "at_once", at_least=1),
            per_task=_whole(given, "per_task", at_least=1) or 1,
        )
        if launcher == "ray":
            require("ray", "ray")
            return counts
        kind = given.get("launcher.cluster", "slurm")
        check_choice("--launcher.cluster", kind, CLUSTERS)
        for name in ("partition", "account", "sbatch") if kind != "slurm" else ():
            if f"launcher.{name}" in given:
                # Only a warning, so that a cluster's command can be tried here unchanged.
                log.warning("--launcher.%s has no effect with --launcher.cluster %s: nothing is queued.", name, kind)
        if "launcher.time" not in given:
            raise BadInput("--launcher submitit needs --launcher.time: the time of a job, such as 4:00:00, or minutes.")
        minutes = minutes_of(given["launcher.time"])
        if kind == "slurm" and minutes < _LEAST_MINUTES:
            raise BadInput(
                f"--launcher.time {given['launcher.time']}: SLURM warns a job up to 150 seconds before its end, which "
                f"here is while it starts. Give {_LEAST_MINUTES} minutes or more."
            )
        cluster = replace(
            counts,
            kind=kind,
            minutes=minutes,
            partition=given.get("launcher.partition"),
            account=given.get("launcher.account"),
            sbatch=further_options(given.get("launcher.sbatch", "")),
            setup=given.get("launcher.setup"),
        )
        require("submitit", "cluster")
        if kind == "slurm" and shutil.which("sbatch") is None:
            raise BadInput(
                "--launcher submitit: there is no `sbatch` here. Run the command on a cluster's login node, or "
                "try it out with --launcher.cluster local."
            )
        return cluster

    def number(self, what: str) -> int:
        """Return the number of jobs if nothing else decides it.

        Raises:
            BadInput: it is missing.
        """
        if self.at_once is None:
            raise BadInput(f"--launcher needs --launcher.at_once here: the number of {what}.")
        return self.at_once

    def executor(self, folder: Path, name: str, after: Sequence[str] = ()) -> submitit.AutoExecutor | RayExecutor:
        """Return the executor of submitit or Ray for jobs of this kind.

        Args:
            folder: folder for its files.
            name: of the jobs.
            after: numbers of jobs that must have finished first, successfully or not.
        """
        if self.kind == "ray":
            return RayExecutor(name, self.cpus, self.gpus)
        import submitit

        if self.kind != "slurm":
            setup = {"local_setup": [self.setup]} if self.setup and self.kind == "local" else {}
            executor = submitit.AutoExecutor(folder, cluster=self.kind)
            executor.update_parameters(timeout_min=self.minutes, gpus_per_node=self.gpus, name=name, **setup)
            return executor
        executor = submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=_TIMEOUTS)
        # After our own, so that the user's sbatch options take precedence.
        further: dict[str, Any] = {"requeue": True, **self.sbatch}
        if after:
            further["dependency"] = ":".join(["afterany", *after])
        executor.update_parameters(
            name=name,
            timeout_min=self.minutes,
            gpus_per_node=self.gpus or None,
            slurm_partition=self.partition,
            slurm_account=self.account,
            slurm_setup=[_CPUS, *([] if self.setup is None else [self.setup])],
            slurm_array_parallelism=self.at_once,
            slurm_additional_parameters=further,
        )
        return executor


def require(package: str, extra: str) -> None:
    """Import the package of a launcher, or refuse the launcher."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise BadInput(f"--launcher {package} needs {package}: pip install 'graphbench-lightning[{extra}]'.") from error


def minutes_of(text: str) -> int:
    """Parse a time as SLURM writes it, rounded up to minutes.

    Examples:
        >>> [minutes_of(text) for text in ("90", "4:00:00", "1-12:00:00", "1-12:00", "1-12", "30:01")]
        [90, 240, 2160, 2160, 2160, 31]
    """
    if not re.fullmatch(r"(\d{1,4}-)?\d{1,7}(:\d{1,6}){0,2}", text, re.ASCII):
        raise BadInput(f"--launcher.time must be a time such as 4:00:00 or 2-00:00:00, or minutes, but got {text!r}.")
    days, dash, clock = text.rpartition("-")
    numbers = [int(number) for number in clock.split(":")]
    # The first number is hours after days and if there are three, else minutes.
    units = (3600, 60, 1) if dash or len(numbers) == 3 else (60, 1)
    seconds = int(days or 0) * 86_400 + sum(number * unit for number, unit in zip(numbers, units, strict=False))
    total = -(-seconds // 60)
    check_range("--launcher.time", total, at_least=1)
    return total


def further_options(text: str) -> dict[str, str | bool]:
    """Parse options of sbatch, with or without their dashes.

    Examples:
        >>> further_options("mem=32G --exclusive")
        {'mem': '32G', 'exclusive': True}
    """
    options: dict[str, str | bool] = {}
    for word in shlex.split(text):
        name, sign, value = word.removeprefix("--").partition("=")
        if not re.fullmatch(r"[a-z][a-z-]*", name) or (sign and not value):
            raise BadInput(f"--launcher.sbatch: expected options such as 'mem=32G qos=long', but got {word!r}.")
        options[name] = value if sign else True
    return options


def _whole(given: Mapping[str, str], name: str, at_least: int) -> int | None:
    if (text := given.get(f"launcher.{name}")) is None:
        return None
    number = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else text
    check_range(f"--launcher.{name}", number, at_least=at_least, whole=True)
    return int(number)
