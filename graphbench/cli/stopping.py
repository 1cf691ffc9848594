"""What a signal does to a command: it ends in words, with the exit code that belongs to the signal.

While a fit trains, `graphbench.cli.signals` takes over and lets the step in progress end first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

#: Names the process that may have started this one for a further device.
_STARTER = "GRAPHBENCH_STARTER"
_started = False


class Stopped(BaseException):
    """A signal ends the command at once.

    No `SystemExit`: whoever imports a plug-in or calls foreign code takes that for their end, not for the command's.

    Args:
        signum: the signal; the exit code is 128 more.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


def handled() -> list[signal.Signals]:
    """Signals that ask for an end: SIGTERM, Ctrl-C, and under SLURM its warning before the time is over."""
    asked = [signal.SIGTERM, signal.SIGINT]
    if "SLURM_JOB_ID" in os.environ and hasattr(signal, "SIGUSR1"):
        asked.append(signal.SIGUSR1)
    return asked


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` where a signal meets the block; outside of a process's main thread nothing is changed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def stop(signum: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            by_default(signum)
            return
        for other in handled():  # a launcher passes on what the terminal or the scheduler has sent already
            signal.signal(other, signal.SIG_IGN)
        raise Stopped(signum)

    before = {number: signal.getsignal(number) for number in handled()}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def by_default(signum: int) -> None:
    """What a signal does to a process that never heard of handlers: here, to one that was forked from ours."""
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


def name_starter() -> None:
    """Tell processes that this one starts for further devices who started them."""
    global _started
    _started = os.environ.get(_STARTER) == str(os.getppid()) and os.environ.get("LOCAL_RANK", "0") != "0"
    os.environ[_STARTER] = str(os.getpid())


def exit_code(signum: int) -> int:
    """128 more than the signal; 0 in a process that another of ours started for a further device.

    Lightning's first process kills itself and all others when one of them ends with an exit code, so those must end
    with 0 where all of them were asked to leave.
    """
    return 0 if _started else 128 + signum
