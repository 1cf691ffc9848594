"""Explain errors caused by a lack of memory, in this process or in a data worker."""

from __future__ import annotations

import multiprocessing
import re
import sys

#: Message of torch's DataLoader about a worker that exited.
_ENDED = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (?:is killed by signal: ([\w ]+)|exited unexpectedly)"
)
_IN_WORKER = re.compile(r"Caught \w+ in DataLoader worker process \d+")
#: Messages of torch's allocators and threads, and of the system, about a lack of memory.
_NO_MEMORY = ("can't allocate memory", "out of memory", "Cannot allocate memory", "can't start new thread", "bad_alloc")
#: Messages of torch when shared memory, through which workers send batches, is exhausted.
_NO_SHARED_MEMORY = ("unable to allocate shared memory", "unable to resize file </torch_")
_WORKERS = "--data.num_workers: fewer processes take less memory, and 0 cuts batches in this one"


def explain_memory(error: BaseException) -> str | None:
    """Return what to do about an error caused by a lack of memory or a killed worker; None for any other error.

    torch reports the death of a data worker wherever the program happens to be, often within an unrelated logger.

    Examples:
        >>> explain_memory(RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")).partition(":")[0]
        'A process that cuts batches (7) was ended from outside (Killed)'
        >>> explain_memory(RuntimeError("shapes do not fit")) is None
        True
    """
    chain = list(_chain(error))
    texts = [str(one) for one in chain]
    ended = next((match for text in texts if (match := _ENDED.search(text))), None)
    if ended is not None:
        how = f" ({ended[2].strip()})" if ended[2] else ""
        return (
            f"A process that cuts batches ({ended[1].strip()}) was ended from outside{how}: most likely by the kernel, "
            f"for lack of memory{_peak_of_workers()}. Free some memory, or set {_WORKERS}."
        )
    if any(phrase in text for phrase in _NO_SHARED_MEMORY for text in texts):
        return (
            "A process that cuts batches found no room for one in shared memory (/dev/shm). Give a container more "
            f"of it (docker run --shm-size 1g), or set {_WORKERS}."
        )
    if not any(
        isinstance(one, MemoryError) or any(phrase in text for phrase in _NO_MEMORY)
        for one, text in zip(chain, texts, strict=True)
        if isinstance(one, (MemoryError, RuntimeError, OSError))
    ):
        return None
    if any(_IN_WORKER.search(text) for text in texts):
        where, what = "A process that cuts batches has no memory left", f"set {_WORKERS}"
    else:
        lower = "set --data.batch_size lower (one large graph: train on parts, as with --data.sampler random)"
        where, what = "There is no memory left", f"{lower}, or --data.num_workers to 0"
    return f"{where}{_limit()}. Free some memory, or {what}."


def _chain(error: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


def _peak_of_workers() -> str:
    """Describe the peak memory of child processes that have exited, as the system counts it."""
    if sys.platform == "win32":
        return ""
    import resource

    multiprocessing.active_children()  # reaps processes that have exited, which are counted only then
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if not peak:
        return ""
    return f" (the largest held up to {peak / 1e6:,.0f} MB, with what it shares with the process that started it)"


def _limit() -> str:
    """Describe the limit of this process's address space, if `ulimit -v` set one."""
    if sys.platform == "win32":
        return ""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return "" if limit == resource.RLIM_INFINITY else f" (`ulimit -v` allows {limit / 1e6:,.0f} MB)"
