"""How threads that compute together wait for each other; OpenMP reads it when torch is imported, and never again."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "OMP_WAIT_POLICY"
_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def settle_waiting() -> None:
    """Let waiting threads sleep where cores are shared, unless the environment says how they wait.

    A thread that waits awake goes on at once, one that sleeps must be woken: on two idle cores a step of GPS on small
    molecules takes three times as long with sleeping threads. But where another process wants the core, a thread that
    waits awake takes it from the very thread that it waits for, and steps took up to eight times as long.
    """
    if cores_are_shared():
        os.environ.setdefault(VARIABLE, "PASSIVE")


def cores_are_shared(groups: Path = _CONTROL_GROUPS) -> bool:
    """Whether this process is one of several ranks, may use only a part of its cores' time, or finds them busy.

    Busy are cores with a load of more than one half each over the last minute, or one that cannot be told.

    Args:
        groups: where Linux says what share of time a container has.
    """
    if "LOCAL_RANK" in os.environ or not hasattr(os, "getloadavg"):
        return True
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _granted(groups) < cores or os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1)


def _granted(groups: Path) -> float:
    """Cores' worth of time that a container may use at most; infinite without a limit."""
    try:
        if (groups / "cpu.max").exists():
            quota, period = (groups / "cpu.max").read_text().split()
        else:
            quota, period = ((groups / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return float(quota) / float(period) if quota != "max" and float(quota) > 0 else float("inf")
    except (OSError, ValueError):  # no such file, or one of another form
        return float("inf")
