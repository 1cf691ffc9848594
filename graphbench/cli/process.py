"""What a signal does to a command: it ends in words, with the exit code that belongs to the signal.

While a fit trains, `graphbench.cli.ranks` takes over and lets the step in progress end first.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
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


WAIT_VARIABLE = "OMP_WAIT_POLICY"
_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def settle_waiting() -> None:
    """Let waiting threads sleep where cores are shared, unless the environment says how they wait.

    A thread that waits awake goes on at once, one that sleeps must be woken: on two idle cores a step of GPS on small
    molecules takes three times as long with sleeping threads. But where another process wants the core, a thread that
    waits awake takes it from the very thread that it waits for, and steps took up to eight times as long.
    """
    if cores_are_shared():
        os.environ.setdefault(WAIT_VARIABLE, "PASSIVE")


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


#: `keep` (default) or `system`, which leaves glibc as it is.
MALLOC_VARIABLE = "GRAPHBENCH_MALLOC"

# Options of mallopt, see `malloc.h` of glibc.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_LARGEST = (1 << 31) - 1  # mallopt takes an int
_TOP_PAD = 64 << 20


def keep_memory() -> bool:
    """Raise glibc's thresholds for this process and those it forks.

    Returns:
        Whether they were: not without glibc, not where the environment sets `MALLOC_*` or glibc's tunables itself or
        asks for `GRAPHBENCH_MALLOC=system`.

    Raises:
        BadInput: the environment variable has another value.
    """
    from graphbench.errors import check_choice

    choice = os.environ.get(MALLOC_VARIABLE, "keep")
    check_choice(f"the environment variable {MALLOC_VARIABLE}", choice, ("keep", "system"))
    set_outside = any(name.startswith("MALLOC_") for name in os.environ)
    set_outside |= "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if choice == "system" or set_outside or platform.libc_ver()[0] != "glibc":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # a static interpreter, or another allocator in glibc's place
        return False
    options = ((_M_MMAP_THRESHOLD, _LARGEST), (_M_TRIM_THRESHOLD, _LARGEST), (_M_TOP_PAD, _TOP_PAD))
    return all(mallopt(option, value) == 1 for option, value in options)
