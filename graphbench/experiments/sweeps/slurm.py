"""A sweep as an array job of SLURM: a training per task, each of which goes on where it was cut off."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

_SCRIPT = """\
#!/bin/bash
# Submit with: sbatch [--partition ... --gres gpu:1 --cpus-per-task ... --time ...] {file}
# When the array has ended, the sweep's command without --slurm runs what failed, and writes the report.
#SBATCH --job-name={name}
#SBATCH --array=0-{last}{limit}
#SBATCH --output={logs}
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@90
set -euo pipefail
cd {folder}
# `exec`: SLURM's warning before the time is over reaches the training, which writes a checkpoint and is queued again.
exec {command} --only "$SLURM_ARRAY_TASK_ID"
"""


def array_script(
    command: Sequence[str], count: int, output: Path, folder: Path, file: Path, at_once: int | None = None
) -> str:
    """The text of the script.

    Args:
        command: words of the sweep's command.
        count: trainings; the tasks are numbered from 0.
        output: folder of the sweep.
        folder: where the command is to be given.
        file: where the script will lie, for its first line.
        at_once: tasks that may run at the same time; None leaves it to SLURM.
    """
    return _SCRIPT.format(
        file=shlex.quote(str(file)),
        name=shlex.quote(f"sweep-{output.name}"),
        last=count - 1,
        limit="" if at_once is None else f"%{at_once}",
        logs=shlex.quote(str((output / "logs" / "slurm-%a.log").absolute())),
        folder=shlex.quote(str(folder.absolute())),
        command=shlex.join(command),
    )
