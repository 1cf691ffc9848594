"""Work on all cores: in the order of the jobs, a few ahead of the reader, with errors that arrive.

No torch here: a process that is started afresh for other work must start fast.
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
    """`function(job)` of every job, in the order of the jobs, with a progress bar.

    Args:
        function: see `ordered_map`.
        jobs: what to work on; taken one by one.
        num_jobs: how many there are.
        description: what is done, for the progress bar.
        unit: what a job is, for the progress bar.
        workers: processes; by default one per core. With one, or one job, everything happens in this process.

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
    """`function(job)` of every job, in the order of the jobs, never more than a few jobs ahead of the reader.

    The result must depend on the job alone, so that it does not depend on the number of processes. All processes are
    started when the first result is asked for, before a progress bar starts a thread: a fork copies one thread alone.

    Args:
        function: importable, takes and returns NumPy arrays (tensors would each take a file descriptor).
        jobs: what to work on; taken one by one.
        workers: processes. With one or none, and in a process that may not have children, all happens in this one.
        description: what is done, for messages.
        initializer: called at the start of each process; what is loaded before they start is theirs too on Linux.
        context: how processes start, if not in the way of `worker_context`.

    Raises:
        GraphbenchError: a process was ended from outside. Errors of `function` pass unchanged.
    """
    if workers <= 1 or multiprocessing.current_process().daemon:  # a daemon may not have children
        yield from map(function, jobs)
        return
    pool = ProcessPoolExecutor(workers, context or worker_context(), _start_worker, (initializer,))
    waiting = iter(jobs)
    ahead: deque[Future[Result]] = deque()
    try:
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


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_context() -> BaseContext:
    """How processes start: forked on Linux, where they share what is loaded and need no importable `__main__`; spawned
    elsewhere, where a fork is not safe.
    """
    return multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")


def _start_worker(initializer: Callable[[], object] | None) -> None:
    """One thread per process, an end with its parent, and what the work asks for."""
    threadpool_limits(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if initializer is not None:
        initializer()


def _end_with_parent() -> None:
    """A killed parent leaves nobody behind: workers hold its lock on the store as long as they live."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
