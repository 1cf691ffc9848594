"""Make graphs on all cores, in order, with a progress bar."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing.connection import wait
from typing import TypeVar

from threadpoolctl import threadpool_limits

from graphbench.data.progress import progress, track
from graphbench.errors import GraphbenchError

Job = TypeVar("Job")
Result = TypeVar("Result")


def map_in_processes(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    num_jobs: int,
    description: str,
    *,
    unit: str = "chunks",
    workers: int | None = None,
) -> Iterator[Result]:
    """`function(job)` of every job, in the order of the jobs, never more than a few jobs ahead of the reader.

    The result must depend on the job alone, so that it does not depend on the number of processes.

    Args:
        function: importable, takes and returns NumPy arrays (tensors would each take a file descriptor).
        jobs: what to work on; taken one by one.
        num_jobs: how many there are.
        description: what is done, for the progress bar.
        unit: what a job is, for the progress bar.
        workers: processes; by default one a core. With one, or one job, everything happens in this process.

    Raises:
        GraphbenchError: a process was ended from outside. Errors of `function` pass unchanged.
    """
    workers = min(available_cores() if workers is None else workers, num_jobs)
    if workers <= 1 or multiprocessing.current_process().daemon:  # a daemon may not have children
        for job in track(jobs, description, num_jobs, unit):
            yield function(job)
        return
    method = "fork" if sys.platform == "linux" else "spawn"
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context(method), _start_worker)
    waiting = iter(jobs)
    ahead: deque[Future[Result]] = deque()
    try:
        # submitted before the bar starts a thread of its own: a fork copies this thread alone
        ahead.extend(pool.submit(function, job) for job in islice(waiting, 2 * workers))
        with progress(description, num_jobs, unit) as advance:
            while ahead:
                yield ahead.popleft().result()
                ahead.extend(pool.submit(function, job) for job in islice(waiting, 1))
                advance(1)
    except BrokenProcessPool as error:
        raise GraphbenchError(
            f"{description}: a process was ended from outside, most likely for lack of memory ({workers} of them ran "
            "side by side). Free some memory or allow fewer cores (taskset), then start again."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start_worker() -> None:
    """One thread a worker, and an end with its parent."""
    threadpool_limits(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed parent leaves nobody behind: workers hold its lock on the store as long as they live."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
