"""Shared parts of all timing scripts: alternating calls, rows for one table of all scripts, and provenance.

A script runs its contenders alternately (`in_turns`), so a busy moment of the machine affects all equally, prints its
own table, and records every comparison (`note`). If the environment variable GRAPHBENCH_SPEED names a file, the records
are written there as JSON; `speed/suite.py` collects those of all scripts.
"""

from __future__ import annotations

import atexit
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

VARIABLE = "GRAPHBENCH_SPEED"


@dataclass(frozen=True)
class Comparison:
    """A contender's time and that of the contender it is compared with, over the same rounds.

    Args:
        script: which script measured it.
        case: what was measured: data, sizes, direction.
        contender: the contender of these seconds.
        against: the other contender.
        seconds: median of the contender.
        low, high: quartiles of the contender's seconds.
        other: median seconds of the other.
        ratio: median over rounds of the contender's seconds divided by the other's.
        rounds: number of rounds.
        unit: unit of the seconds: s, or MB if memory is compared.
    """

    script: str
    case: str
    contender: str
    against: str
    seconds: float
    low: float
    high: float
    other: float
    ratio: float
    rounds: int
    unit: str = "s"


_NOTES: list[Comparison] = []


def in_turns(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    warm_up: int = 1,
    rarely: Iterable[str] = (),
) -> dict[str, list[float]]:
    """Return the seconds of each call in each round.

    Args:
        calls: contender -> function to time; on a GPU it must wait for the device itself.
        rounds: timed rounds.
        clock: wall time, or `time.process_time`, which other programs disturb less.
        warm_up: rounds before the timed ones.
        rarely: slow contenders that take part only in the first two rounds.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(-warm_up, rounds):
        for name, call in calls.items():
            if name in rarely and number > 1:
                continue
            start = clock()
            call()
            if number >= 0:
                seconds[name].append(clock() - start)
    return seconds


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """Return the median of each contender."""
    return {name: statistics.median(values) for name, values in seconds.items()}


def ratio(contender: list[float], other: list[float]) -> float:
    """Return the median ratio of the contender's seconds to the other's, over their common rounds."""
    return statistics.median(a / b for a, b in zip(contender, other, strict=False))


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the peak of the bytes allocated by torch's CPU allocator during a call."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler logs when it starts and stops
    import torch

    with torch.profiler.profile(profile_memory=True) as profiler:
        call()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    changes = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]")
    held = peak = 0
    for _, change in changes:
        held += change
        peak = max(peak, held)
    return peak


def note(case: str, contender: str, against: str, seconds: Mapping[str, list[float]]) -> float:
    """Record a comparison for the table of all scripts; return its ratio."""
    own, other = seconds[contender], seconds[against]
    quartiles = statistics.quantiles(own, n=4) if len(own) > 1 else [own[0]] * 3
    found = ratio(own, other)
    script = Path(sys.argv[0]).stem
    values = (quartiles[1], quartiles[0], quartiles[2], statistics.median(other), found, len(own))
    _NOTES.append(Comparison(script, case, contender, against, *values))
    return found


def note_memory(case: str, contender: str, against: str, own: int, other: int) -> float:
    """Record a comparison of bytes, which are counted and have no spread; return their ratio."""
    megabytes, held_against = own / 1e6, other / 1e6
    script, values = Path(sys.argv[0]).stem, (megabytes, megabytes, megabytes, held_against, own / other, 1)
    _NOTES.append(Comparison(script, case, contender, against, *values, unit="MB"))
    return own / other


@atexit.register
def _write() -> None:
    path = os.environ.get(VARIABLE)
    if path and _NOTES:
        Path(path).write_text(json.dumps([asdict(comparison) for comparison in _NOTES], indent=1) + "\n")


def provenance(threads: int | None = None) -> dict[str, Any]:
    """Return machine and versions, for a table that is read later."""
    import torch
    import torch_geometric

    from graphbench.runs.environment import describe_environment

    said = describe_environment()
    return {
        "when": datetime.now().astimezone().isoformat(timespec="minutes"),
        "commit": said["commit"],
        "processor": said["processor"],
        "cores": said["cores"],
        "gpus": said["gpus"],
        "threads": torch.get_num_threads() if threads is None else threads,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch-geometric": torch_geometric.__version__,
        "load": round(os.getloadavg()[0], 1),
    }
