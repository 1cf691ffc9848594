"""What a signal does to a command: it ends in words, with the exit code that belongs to the signal.

While a fit trains, `graphbench.cli.signals` takes over and lets the step in progress end first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
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
    """Signals that ask for an end: SIGTERM, Ctrl-C, a closed terminal, and under SLURM its warning before the time is
    over. Whoever starts a command with `nohup` has it ignore a closed terminal.
    """
    asked = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        asked.append(signal.SIGHUP)
    if "SLURM_JOB_ID" in os.environ and hasattr(signal, "SIGUSR1"):
        asked.append(signal.SIGUSR1)
    return asked


def leave_terminal() -> None:
    """Send what is still written to nowhere where the terminal is gone: each write to it is an error now."""
    if sys.platform == "win32":
        return
    import termios

    for handle in (0, 1, 2):
        try:
            termios.tcgetattr(handle)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, handle)
                os.close(null)


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
        leave_terminal()
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
    """128 more than the signal; see `shared_exit_code`."""
    return shared_exit_code(128 + signum)


def shared_exit_code(code: int) -> int:
    """The exit code where all processes of a training leave together: 0 in one that another of ours started for a
    further device.

    Lightning's first process kills itself and all others when one of them ends with another exit code.
    """
    return 0 if _started else code
