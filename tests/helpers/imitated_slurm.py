"""`sbatch`, `srun`, `scontrol requeue` and `squeue` of an imitated SLURM, whose jobs are local processes.

It supports arrays with a limit of concurrent tasks, `--dependency=afterany`, requeueing, and listing the queue.
Tests call `imitate`, which puts the tools first in PATH; `warn` sends SLURM's signal before the time limit.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_TOOLS = ("sbatch", "srun", "scontrol", "squeue")
_ENDED = ("COMPLETED", "FAILED", "CANCELLED")


def install(folder: Path) -> dict[str, str]:
    """Write the tools into a folder and return the environment in which they are found."""
    place = folder / "slurm"
    (place / "bin").mkdir(parents=True)
    for tool in _TOOLS:
        path = place / "bin" / tool
        path.write_text(f'#!/bin/bash\nexec {shlex.quote(sys.executable)} {shlex.quote(__file__)} {tool} "$@"\n')
        path.chmod(0o755)
    own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    return {**own, "PATH": f"{place / 'bin'}:{os.environ['PATH']}", "IMITATED_SLURM": str(place)}


def imitate(folder: Path, monkeypatch: Any, seconds: float) -> None:
    """Let submitit find the tools during a test, and launchers check jobs at this interval."""
    from graphbench.experiments.launchers import launching

    for name, value in install(folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(launching, "_SELDOM", seconds)
    monkeypatch.setattr(launching, "_QUEUE", seconds)


def scripts(folder: Path) -> list[str]:
    """Return the submitted scripts in order."""
    return [path.read_text() for path in sorted((folder / "slurm").glob("*.sh"))]


def states(folder: Path) -> dict[str, str]:
    """Return the state of every task by its number."""
    return {path.stem: path.read_text() for path in sorted((folder / "slurm").glob("*.state"))}


def warn(folder: Path, job: str, signum: signal.Signals = signal.SIGUSR2) -> None:
    """Send a signal to the processes of a task, as before its time limit."""
    os.kill(int((folder / "slurm" / f"{job}.pid").read_text()), signum)


def _place() -> Path:
    return Path(os.environ["IMITATED_SLURM"])


def _sbatch(words: list[str]) -> None:
    place, script = _place(), words[-1]
    number = 101 + len(list(place.glob("*.sh")))
    copy = place / f"{number}.sh"
    copy.write_text(Path(script).read_text())
    for name in _tasks(copy.read_text(), number)[0]:
        (place / f"{name}.state").write_text("PENDING")
    subprocess.Popen(
        [sys.executable, __file__, "run", str(copy)], start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    print(f"Submitted batch job {number}")


def _tasks(text: str, number: int) -> tuple[list[str], int]:
    """Return the numbers of a job's tasks, and how many run at a time."""
    array = re.search(r"#SBATCH --array=0-(\d+)%(\d+)", text)
    return ([f"{number}_{task}" for task in range(int(array[1]) + 1)], int(array[2])) if array else ([f"{number}"], 1)


def _run(words: list[str]) -> None:
    place, script = _place(), Path(words[0])
    names, at_once = _tasks(script.read_text(), int(script.stem))
    dependency = re.search(r"#SBATCH --dependency=afterany:([\d:]+)", script.read_text())
    before = dependency[1].split(":") if dependency else []
    while any(
        path.read_text() not in _ENDED
        for one in before
        for path in [*place.glob(f"{one}.state"), *place.glob(f"{one}_*.state")]
    ):
        time.sleep(0.1)
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda name: _run_task(place, script, name), names))


def _run_task(place: Path, script: Path, name: str) -> None:
    job, _, task = name.partition("_")
    variables = {"SLURM_JOB_ID": job, "SLURM_JOB_NAME": "graphbench", "SLURM_NTASKS": "1", "SLURM_JOB_NUM_NODES": "1"}
    if task:
        variables |= {"SLURM_ARRAY_JOB_ID": job, "SLURM_ARRAY_TASK_ID": task}
    state, again = place / f"{name}.state", place / f"{name}.again"
    while state.read_text() != "CANCELLED":
        state.write_text("RUNNING")
        with (place / f"{name}.runs").open("a") as runs:
            runs.write(".")
        code = subprocess.run(["bash", str(script)], env={**os.environ, **variables}, check=False).returncode
        if not again.exists():
            state.write_text("COMPLETED" if code == 0 else "FAILED")
            return
        again.unlink()
        state.write_text("REQUEUED")


def _srun(words: list[str]) -> None:
    job, task = os.environ["SLURM_JOB_ID"], os.environ.get("SLURM_ARRAY_TASK_ID", "")
    name = f"{job}_{task}" if task else job
    streams = {}
    while words[0].startswith("--"):
        option = words.pop(0)
        if option in ("--output", "--error"):
            path = words.pop(0).replace("%A", job).replace("%a", task).replace("%j", job).replace("%t", "0")
            streams[option] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    variables = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
    process = subprocess.Popen(
        words, stdout=streams["--output"], stderr=streams["--error"], env={**os.environ, **variables}
    )
    (_place() / f"{name}.pid").write_text(str(process.pid))
    sys.exit(process.wait() & 0xFF)


def _scontrol(words: list[str]) -> None:
    assert words[0] == "requeue"
    (_place() / f"{words[1]}.again").touch()


def _squeue(words: list[str]) -> None:
    for path in sorted(_place().glob("*.state")):
        if path.read_text() not in _ENDED:
            print(path.stem)


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file
    {"sbatch": _sbatch, "srun": _srun, "scontrol": _scontrol, "squeue": _squeue, "run": _run}[sys.argv[1]](sys.argv[2:])
