"""The sbatch file trains on two tasks and resumes when queued again; a stand-in for `srun` sets SLURM's variables."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command_line import SMALL_MODEL

FILE = Path(__file__).parents[2] / "configs" / "slurm" / "fit.sbatch"

#: Two tasks on two nodes that are both this machine.
SRUN = """#!/bin/bash
for task in 0 1; do
    SLURM_PROCID=$task SLURM_NODEID=$task SLURM_LOCALID=0 SLURM_STEP_ID=0 "$@" > "$OUTPUT-$task.txt" 2>&1 &
done
wait -n && wait -n
"""


def _environment(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    srun = folder / "srun"
    srun.write_text(SRUN)
    srun.chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    return own | {
        "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OUTPUT": str(tmp_path / "task"),
        "SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "graphbench", "SLURM_NTASKS": "2", "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NNODES": "2", "SLURM_NTASKS_PER_NODE": "1", "SLURM_CPUS_PER_TASK": "1",
        "SLURM_JOB_NODELIST": "localhost", "SLURM_NODELIST": "localhost",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
    }  # fmt: skip


def test_the_file_says_what_it_needs() -> None:
    done = subprocess.run(["bash", str(FILE)], capture_output=True, text=True)
    assert done.returncode != 0
    assert "usage: sbatch fit.sbatch CONFIG RUN" in done.stderr
    directives = [line.split()[1] for line in FILE.read_text().splitlines() if line.startswith("#SBATCH")]
    for needed in ("--signal=USR1@90", "--requeue", "--open-mode=append"):
        assert needed in directives


@pytest.mark.slow
def test_a_fit_on_two_tasks_and_again_when_queued_again(data_options, tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    run = tmp_path / "run"
    config = tmp_path / "small.yaml"
    config.write_text("seed_everything: 0\n")
    for epochs in ("1", "2"):
        options = [*data_options, *SMALL_MODEL, "--trainer.max_epochs", epochs]
        command = ["bash", str(FILE), str(config), str(run), *map(str, options)]
        done = subprocess.run(command, env=_environment(tmp_path), capture_output=True, text=True, timeout=300)
        said = "\n".join(path.read_text()[-2000:] for path in sorted(tmp_path.glob("task-*.txt")))
        assert done.returncode == 0, f"{done.stderr}\n{said}"
        checkpoint = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
        assert checkpoint["epoch"] == int(epochs) - 1, said
        assert len(checkpoint["callbacks"]["ExactResume"]["ranks"]) == 2, "both tasks trained in one group"
