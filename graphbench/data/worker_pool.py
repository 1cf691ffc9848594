"""Map a function over jobs on all cores, in order, at most a few jobs ahead of the reader.

Do not import torch here: a process that is spawned for other work must start fast.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from itertools import islice
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from typing import TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from graphbench.data.progress import progress
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
    """Yield `function(job)` for every job, in order, with a progress bar.

    Args:
        function: see `ordered_map`.
        jobs: consumed one by one.
        num_jobs: number of jobs.
        description: description of the work, for the progress bar.
        unit: name of the jobs, for the progress bar.
        workers: number of processes; by default one per core. One worker, or a single job, runs in this process.

    Raises:
        GraphbenchError: a process was ended from outside. Errors of `function` pass unchanged.

    Examples:
        >>> list(map_in_processes(len, ["a", "bc"], num_jobs=2, description="lengths", workers=1))
        [1, 2]
    """
    workers = min(available_cores() if workers is None else workers, num_jobs)
    with (
        progress(description, num_jobs, unit) as advance,
        closing(ordered_map(function, jobs, workers, description)) as results,
    ):
        for result in results:
            yield result
            advance(1)


def ordered_map(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    workers: int,
    description: str,
    initializer: Callable[[], object] | None = None,
    context: BaseContext | None = None,
) -> Generator[Result, None, None]:
    """Yield `function(job)` for every job, in order, at most a few jobs ahead of the reader.

    The result must depend only on the job, and not on the number of processes. All processes start with the first
    result, before a progress bar starts a thread, because a fork copies only one thread.

    Args:
        function: importable, from NumPy arrays to NumPy arrays (each tensor would need a file descriptor).
        jobs: consumed one by one.
        workers: number of processes; with at most one, or if children are not allowed, jobs run in this process.
        description: description of the work, for messages.
        initializer: function called at the start of each process, and not if jobs run in this one.
        context: start method; that of `worker_context` by default.

    Raises:
        GraphbenchError: a process was ended from outside. Errors of `function` pass unchanged.
    """
    if workers <= 1 or multiprocessing.current_process().daemon:  # a daemon may not have children
        yield from map(function, jobs)
        return
    # Not multiprocessing.Pool, which waits forever for the result of a worker that the kernel has killed.
    pool = ProcessPoolExecutor(workers, context or worker_context(), _start_worker, (initializer,))
    waiting = iter(jobs)
    ahead: deque[Future[Result]] = deque()
    try:
        # Two jobs per worker: no worker waits for the reader, and there are few unread results.
        ahead.extend(pool.submit(function, job) for job in islice(waiting, 2 * workers))
        while ahead:
            result = ahead.popleft().result()
            ahead.extend(pool.submit(function, job) for job in islice(waiting, 1))
            yield result
    except BrokenProcessPool as error:
        raise GraphbenchError(
            f"{description}: a process was ended from outside, most likely for lack of memory ({workers} of them ran "
            "side by side). Free some memory or allow fewer cores (taskset), then start again."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def random_state(*seeds: int) -> np.random.RandomState:
    """Return the generator of a job, which depends only on the seeds; they may be negative, as users write them.

    NumPy guarantees the same stream in every version for `RandomState`, but not for its newer generators.
    """
    return np.random.RandomState([seed % (1 << 32) for seed in seeds])


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_context() -> BaseContext:
    """Return the start method of processes: fork on Linux, so that they share loaded data, and spawn elsewhere."""
    return multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")


def _start_worker(initializer: Callable[[], object] | None) -> None:
    """Limit a worker to one thread, make it exit with its parent, and call the initializer."""
    threadpool_limits(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if initializer is not None:
        initializer()


def _end_with_parent() -> None:
    """Exit if the parent is killed: workers keep its lock on the store as long as they live."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        # Not `sys.exit`, which would only end this thread.
        os._exit(1)
