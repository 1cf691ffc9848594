"""Write trainings as an array job of SLURM, one per task, which resumes when it is requeued."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

_SCRIPT = """\
#!/bin/bash
{notes}#SBATCH --job-name={name}
#SBATCH --array={tasks}
#SBATCH --output={logs}
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@90
{directives}set -euo pipefail
cd {folder}
# `exec`: SLURM's warning before the time is over reaches the training, which writes a checkpoint and is queued again.
exec {command} {option} "$SLURM_ARRAY_TASK_ID"
"""


def array_script(
    command: Sequence[str],
    option: str,
    numbers: Sequence[int],
    logs: Path,
    folder: Path,
    *,
    name: str = "graphbench",
    notes: Sequence[str] = (),
    at_once: int | None = None,
    directives: Sequence[str] = (),
) -> str:
    """Return the text of the script.

    Args:
        command: words of the command that runs one training.
        option: of that command; it takes the training's number.
        numbers: of the trainings and tasks, ascending.
        logs: folder of the tasks' logs, which must exist when the script is submitted.
        folder: working directory.
        name: of the job.
        notes: comments in the script.
        at_once: largest number of tasks at the same time; None leaves it to SLURM.
        directives: further ones, such as `--gpus=1`.

    Examples:
        >>> text = array_script(["tool", "a b"], "--only", [0, 1, 4], Path("/logs"), Path("/here"), at_once=2)
        >>> print(text.splitlines()[2], text.splitlines()[-1], sep="; ")
        #SBATCH --array=0-1,4%2; exec tool 'a b' --only "$SLURM_ARRAY_TASK_ID"
    """
    return _SCRIPT.format(
        notes="".join(f"# {line}\n" for note in notes for line in note.splitlines()),
        name=shlex.quote(name),
        tasks=ranges(numbers) + ("" if at_once is None else f"%{at_once}"),
        logs=shlex.quote(str((logs / "slurm-%a.log").absolute())),
        directives="".join(f"#SBATCH {directive}\n" for directive in directives),
        folder=shlex.quote(str(folder.absolute())),
        command=shlex.join(command),
        option=option,
    )


def ranges(numbers: Sequence[int]) -> str:
    """Format numbers as SLURM writes them.

    Examples:
        >>> ranges([0, 1, 2, 5, 7, 8])
        '0-2,5,7-8'
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
