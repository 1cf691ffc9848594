"""Query SLURM for the job around this process, and requeue it."""

from __future__ import annotations

import logging
import os
import subprocess

log = logging.getLogger(__name__)


def job_number() -> str:
    """Return the number of the job around this process, with its array task; "" outside a job."""
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
    """Requeue a job that is preempted, in the first process of a step.

    SLURM does so itself. But if a partition has a grace time, the processes get SIGTERM when it begins, and a job that
    exits before it is over counts as failed and is not requeued.
    """
    if job_number() and os.environ.get("SLURM_PROCID") == "0" and _is_preempted():
        queue_again()


def _is_preempted() -> bool:
    """Return whether the grace time of a preemption is running; a cancelled job is no longer called running."""
    try:
        command = ["scontrol", "--oneliner", "show", "job", job_number()]
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):  # the controller does not answer
        return False
    fields = dict(word.partition("=")[::2] for word in answer.split())
    return fields.get("JobState") == "RUNNING" and fields.get("PreemptTime", "None") not in ("None", "Unknown")
