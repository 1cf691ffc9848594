"""Ask SLURM about the job around this process, and to queue it again."""

from __future__ import annotations

import logging
import os
import subprocess

log = logging.getLogger(__name__)


def job_number() -> str:
    """Return the number of the job around this process, with its task of an array; "" outside of one."""
    array, task = (os.environ.get(f"SLURM_ARRAY_{name}_ID", "") for name in ("JOB", "TASK"))
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID", "")


def queue_again() -> None:
    """Ask SLURM to queue this job again, which then runs its script from the beginning."""
    try:
        subprocess.run(["scontrol", "requeue", job_number()], check=True)
        log.info("SLURM queues job %s again.", job_number())
    except (OSError, subprocess.CalledProcessError) as error:
        log.warning("SLURM does not queue job %s again: %s", job_number(), error)


def queue_again_if_preempted() -> None:
    """Queue a job again that has to make room for another one, in the first process of a step.

    SLURM does so itself. But where a partition has a grace time, the processes get SIGTERM at its beginning, and a job
    that has ended by the end of it counts as failed and is not queued again.
    """
    if job_number() and os.environ.get("SLURM_PROCID") == "0" and _is_preempted():
        queue_again()


def _is_preempted() -> bool:
    """Return whether the grace time of a preemption runs; a job that was cancelled is not called running any more."""
    try:
        command = ["scontrol", "--oneliner", "show", "job", job_number()]
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):  # the controller is away
        return False
    fields = dict(word.partition("=")[::2] for word in answer.split())
    return fields.get("JobState") == "RUNNING" and fields.get("PreemptTime", "None") not in ("None", "Unknown")
