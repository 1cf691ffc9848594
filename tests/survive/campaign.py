"""Kill real fits at random moments, resume them, and compare the result with an uninterrupted run.

    python tests/survive/campaign.py --kills 20 --terms 20 --cases 10000

Prints one line per trial. The exit code is 1 if a trial lost something or if one of the hostile cases of `cases.py`,
which run last, is wrong. Every trial is a `graphbench fit` in separate processes. All of them get SIGKILL after a
random time: in steps, ends of epochs, validations, writes of checkpoints (temporary files are on another file system
if there is one) or the preparation of data. Later trials send SIGTERM instead: all processes must then exit within
30 seconds with code 143, or 0 if the fit had finished.

The processes are forked from this one, which has imported everything already. Signals therefore hit work, not
imports, and a trial takes seconds. Two processes find each other through the variables that torchrun sets. `--cold`
starts a new `python -m graphbench` for each fit, and Lightning starts the second process, as for a user. Half the
signals then fall within imports.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Protocol

import torch

import graphbench.cli
import graphbench.cli.commands.fit

SMALL = ["--model.architecture.hidden_dim", "16", "--model.architecture.num_layers", "2"]
MOLECULES = ["--data", "Molecules", "--data.target", "length", "--data.file", "molecules.csv"]
#: Data and architecture of every subject: small, so that a trial takes seconds.
SUBJECTS: dict[str, list[str]] = {
    "GPS": [*MOLECULES, "--model.architecture", "GPS", *SMALL],
    "SFT": [*MOLECULES, "--model.architecture", "SFT", *SMALL],
    "DeepGraph": [*MOLECULES, "--model.architecture", "DeepGraph", *SMALL],
    "ElectricFlow": ["--data", "ElectricFlow", "--model.architecture", "LinearTransformer"],
}
COMMON = [
    "--trainer.accelerator", "cpu", "--trainer.max_epochs", "3", "--trainer.limit_train_batches", "12",
    "--trainer.limit_val_batches", "6", "--data.batch_size", "16",
    "--trainer.callbacks+=LastCheckpoint", "--trainer.callbacks.every_n_steps", "5",
]  # fmt: skip


class Started(Protocol):
    """A fit that leads a group of processes."""

    pid: int

    def wait(self, timeout: float) -> int:
        """Return the exit code, negative for a signal; raises subprocess.TimeoutExpired."""


class Forked:
    """A command in processes that are forked from this one.

    Args:
        arguments: arguments of `graphbench`.
        folder: working directory.
        environment: all environment variables.
        log: file to which the output is appended.
        processes: number of processes; the first leads the group.
    """

    def __init__(
        self, arguments: list[str], folder: Path, environment: dict[str, str], log: Path, processes: int
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        fork = multiprocessing.get_context("fork")
        self._process = fork.Process(target=self._lead, args=(arguments, folder, environment, log, processes, port))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(self.pid, self.pid)  # also here: a signal to the group may come first

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("graphbench fit", timeout)
        return self._process.exitcode

    @staticmethod
    def _lead(
        arguments: list[str], folder: Path, environment: dict[str, str], log: Path, processes: int, port: int
    ) -> None:
        """Start the other processes of the command and become the first."""
        with contextlib.suppress(PermissionError):
            os.setpgid(0, 0)
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None  # use that of the environment, not the parent's
        if processes > 1:
            places = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": processes, "GROUP_RANK": 0}
            places |= {"LOCAL_WORLD_SIZE": processes, "TORCHELASTIC_RUN_ID": "campaign"}
            os.environ.update({name: str(value) for name, value in places.items()})
            rank = 0
            while rank + 1 < processes and os.fork() == 0:
                rank += 1
            os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank)})
        sys.exit(graphbench.cli.main(arguments))


class Fits:
    """Start fits of one subject.

    Args:
        folder: contains runs and stores.
        subject: a key of `SUBJECTS`.
        processes: 1 or 2.
        options: further options of `graphbench fit`.
        cold: whether every fit starts a new interpreter.
    """

    def __init__(self, folder: Path, subject: str, processes: int, options: list[str], cold: bool = False) -> None:
        self.folder, self.processes, self.cold = folder / f"{subject}-{processes}", processes, cold
        self.options = [*SUBJECTS[subject], *COMMON, *options]
        if processes > 1:
            self.options += ["--trainer.strategy", "ddp", "--trainer.devices", str(processes)]
        self.environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.environment.pop("GRAPHBENCH_RUN", None)
        other = Path("/dev/shm")
        if other.is_dir() and other.stat().st_dev != folder.stat().st_dev:
            self.environment["TMPDIR"] = str(other)

    def start(self, run: Path, store: Path) -> Started:
        """Start the command that a job queue would repeat after each interruption."""
        data = ["--data.root", str(store), "--run", str(run), "--if-exists", "resume"]
        command, log = ["fit", *self.options, *data], run.parent / f"{run.name}.log"
        run.parent.mkdir(parents=True, exist_ok=True)
        if not self.cold:
            return Forked(command, self.folder.parent, self.environment, log, self.processes)
        with log.open("ab") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "graphbench", *command],
                cwd=self.folder.parent, env=self.environment, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip

    def finish(self, run: Path, store: Path) -> None:
        """Start a fit and wait for it.

        Raises:
            AssertionError: the fit failed.
        """
        code = self.start(run, store).wait(900)
        assert code == 0, f"exit code {code}: {(run.parent / f'{run.name}.log').read_text(errors='replace')[-1500:]}"


def write_molecules(folder: Path, number: int = 240) -> None:
    """Write `molecules.csv`: molecules of RDKit's NCI file with the length of their SMILES as target."""
    from rdkit import RDConfig

    lines = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()
    smiles = [s for s in (line.split()[0] for line in lines) if 6 <= len(s) <= 30 and not set(s) & set(".[]")]
    rows = [f"{s},{len(s)}" for s in smiles[:number]]
    (folder / "molecules.csv").write_text("\n".join(["smiles,length", *rows]) + "\n")


def end_all(process: Started, signum: int) -> None:
    """Send a signal to the process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signum)


def losses(run: Path, whole: Path) -> list[str]:
    """Return the differences between a resumed run and the uninterrupted run."""
    said = []
    one, two = (torch.load(r / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"] for r in (whole, run))
    said += [f"{name} differs" for name in one if not torch.equal(one[name], two[name])][:1]
    scores = [json.loads((r / "results.json").read_text())["val"] for r in (whole, run)]
    said += ["validation scores differ"] if scores[0] != scores[1] else []
    tables = []
    for r in (whole, run):
        with (r / "metrics.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        names = [name for name in rows[0] if name.startswith(("train/", "val/")) and name != "train/loss_step"]
        tables.append({(name, row["epoch"]): row[name] for row in rows for name in names if row[name]})
    differing = sorted(key for key in tables[0].keys() | tables[1].keys() if tables[0].get(key) != tables[1].get(key))
    said += [f"metrics.csv: {name} of epoch {epoch}" for name, epoch in differing[:3]]
    said += [f"{path.name} stays" for path in run.rglob(".*-*")]
    return said


def trial(fits: Fits, whole: Path, number: int, signum: int, seconds: float) -> list[str]:
    """Stop a fit after this many seconds, resume it, and return what was lost."""
    run = fits.folder / f"{signal.Signals(signum).name}-{number}"
    fresh = number % 5 == 4  # every fifth also prepares its data
    store = fits.folder / (f"store-{signum}-{number}" if fresh else "store")
    process = fits.start(run, store)
    said = []
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        end_all(process, signum)
        try:
            code = process.wait(30)
            told = (run.parent / f"{run.name}.log").read_text(errors="replace")
            done = code == 0 and "Best epoch" in told  # the fit had already finished
            if signum == signal.SIGTERM and code != 128 + signum and not done:
                said.append(f"exit code {code}")
        except subprocess.TimeoutExpired:
            said.append("still there after 30 seconds")
            end_all(process, signal.SIGKILL)
            process.wait(30)
        time.sleep(1)  # wait for processes that the kernel has yet to end
        end_all(process, signal.SIGKILL)
    try:
        fits.finish(run, store)
        said += losses(run, whole)
    except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
        said.append(str(error))
    if not said:
        shutil.rmtree(run)
    if fresh:
        shutil.rmtree(store, ignore_errors=True)
    return said


def campaign(
    folder: Path,
    subjects: list[str],
    processes: list[int],
    counts: dict[int, int],
    options: list[str],
    seed: int,
    cold: bool = False,
) -> int:
    """Run all trials.

    Args:
        folder: contains the runs; those that lost something are kept.
        subjects: keys of `SUBJECTS`.
        processes: numbers of processes.
        counts: signal -> trials of each subject and number of processes.
        options: further options of `graphbench fit`.
        seed: seed of the random times.
        cold: whether every fit starts a new interpreter.

    Returns:
        Number of trials that lost something.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    write_molecules(folder)
    rng, lost = random.Random(seed), 0
    for subject in subjects:
        for devices in processes:
            fits = Fits(folder, subject, devices, options, cold)
            whole = fits.folder / "whole"
            fits.finish(whole, fits.folder / "store")
            started = time.monotonic()
            fits.finish(fits.folder / "timed", fits.folder / "store")
            lasts = time.monotonic() - started
            for signum, count in counts.items():
                for number in range(count):
                    seconds = rng.uniform(0.1, 1.0) * lasts
                    said = trial(fits, whole, number, signum, seconds)
                    lost += bool(said)
                    name = signal.Signals(signum).name
                    outcome = "; ".join(said) or "equal"
                    print(f"{subject} on {devices}: {name} {number + 1} after {seconds:.1f} s: {outcome}", flush=True)
    return lost


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="SIGKILLs of each subject and number of processes")
    parser.add_argument("--terms", type=int, default=20, help="SIGTERMs of each")
    parser.add_argument("--subjects", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--cases", type=int, default=0, help="hostile cases after them, see cases.py")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cold", action="store_true", help="a new interpreter for every fit")
    parser.add_argument("--folder", type=Path, help="of runs; a temporary one by default")
    own, options = parser.parse_known_args()
    folder = own.folder or Path(tempfile.mkdtemp(prefix="survive-"))
    counts = {signal.SIGKILL: own.kills, signal.SIGTERM: own.terms}
    lost = 0
    if own.kills or own.terms:
        lost = campaign(folder, own.subjects, own.processes, counts, options, own.seed, own.cold)
    trials = len(own.subjects) * len(own.processes) * (own.kills + own.terms)
    print(f"{trials - lost} of {trials} lost nothing." + (f" The others: {folder}" if lost else ""))
    if not lost and own.folder is None:
        shutil.rmtree(folder)
    if own.cases:
        command = [sys.executable, str(Path(__file__).with_name("cases.py"))]
        lost += subprocess.run([*command, "--cases", str(own.cases), "--seed", str(own.seed)]).returncode
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
