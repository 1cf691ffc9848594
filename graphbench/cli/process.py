"""Configure a command's process: signals, exit codes, waiting threads and memory.

Only `graphbench.cli.main` switches them on; importing graphbench, or this file, changes nothing. While a fit trains,
`graphbench.cli.ranks` handles signals instead and lets the current step finish first.
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

#: OpenMP reads it once, when torch is imported.
WAIT_VARIABLE = "OMP_WAIT_POLICY"
#: `keep` (default) or `system`, which leaves glibc's thresholds unchanged.
MALLOC_VARIABLE = "GRAPHBENCH_MALLOC"
#: Python's variable that keeps the current folder, and a script's, off the import path.
SAFE_PATH = "PYTHONSAFEPATH"
#: Process id of the command that may have started this one for another device.
_STARTER = "GRAPHBENCH_STARTER"
_CONTROL_GROUPS = Path("/sys/fs/cgroup")

# Options of mallopt, see `malloc.h` of glibc.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_LARGEST = (1 << 31) - 1  # mallopt takes an int
_TOP_PAD = 64 << 20

_started_by_command = False


# -- signals and exit codes --------------------------------------------------------------------------------------------


class Stopped(BaseException):
    """A signal stops the command at once.

    Not a `SystemExit`: code that imports a plug-in or calls foreign code catches that one.

    Args:
        signum: the signal; the exit code is 128 more.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


def handled() -> list[signal.Signals]:
    """Return the signals that stop a command: SIGTERM, SIGINT, SIGHUP and, under SLURM, its warning SIGUSR1."""
    signals = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # ignored under nohup
        signals.append(signal.SIGHUP)
    if "SLURM_JOB_ID" in os.environ and hasattr(signal, "SIGUSR1"):
        signals.append(signal.SIGUSR1)
    return signals


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` on a signal within the block; outside the main thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def stop(signum: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            by_default(signum)
            return
        leave_terminal()
        for other in handled():  # launchers forward what the terminal or scheduler has already sent
            signal.signal(other, signal.SIG_IGN)
        raise Stopped(signum)

    previous = {number: signal.getsignal(number) for number in handled()}
    for number in previous:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def by_default(signum: int) -> None:
    """Do what a signal does to a process without handlers; used in a process forked from ours."""
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


@contextlib.contextmanager
def hushed_threads() -> Iterator[None]:
    """Print no traceback of a thread that runs out of disk space: TensorBoard's thread passes its error on to us."""
    before = threading.excepthook

    def show(arguments: threading.ExceptHookArgs) -> None:
        from graphbench.data.files.writing import no_room

        if not no_room(arguments.exc_value):
            before(arguments)

    threading.excepthook = show
    try:
        yield
    finally:
        threading.excepthook = before


def leave_terminal() -> None:
    """Redirect standard streams to the null device if their terminal is closed, since writing would raise."""
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


def name_starter() -> None:
    """Note which command started this process, and pass our own id to the processes that we start."""
    global _started_by_command
    _started_by_command = os.environ.get(_STARTER) == str(os.getppid()) and os.environ.get("LOCAL_RANK", "0") != "0"
    os.environ[_STARTER] = str(os.getpid())


def keep_folder_out() -> None:
    """Keep processes started by a `graphbench` on the PATH from importing modules of the current folder.

    `python -m` and the processes of `multiprocessing` look there first, before the standard library: the trainings of a
    sweep would run a `numpy.py` in the folder of a run that someone sent. Python before 3.11 ignores the variable.
    """
    if Path(sys.argv[0]).stem == "graphbench":  # not `python -m graphbench`, which itself looks there
        os.environ.setdefault(SAFE_PATH, "1")


def exit_code(signum: int) -> int:
    """Return the exit code after a signal, see `shared_exit_code`."""
    return shared_exit_code(128 + signum)


def shared_exit_code(code: int) -> int:
    """Return the exit code of a training in which all processes stop together.

    It is 0 in a process that another of ours started for another device: Lightning's first process kills itself and all
    others when one of them exits with a nonzero code.
    """
    return 0 if _started_by_command else code


# -- waiting threads ---------------------------------------------------------------------------------------------------


def settle_waiting() -> None:
    """Let waiting threads sleep on shared cores, unless the environment sets a policy.

    Spinning threads continue at once; sleeping ones must be woken: on two idle cores a step of GPS on small molecules
    takes three times as long with sleeping threads. On busy cores a spinning thread takes the core from the thread that
    it waits for: steps took up to eight times as long.
    """
    if cores_are_shared():
        os.environ.setdefault(WAIT_VARIABLE, "PASSIVE")


def cores_are_shared(groups: Path = _CONTROL_GROUPS) -> bool:
    """Return whether other processes compute on our cores.

    They do if this is one of several ranks, if a container grants less time than it has cores, or if the load of the
    last minute is unknown or more than half a process per core.
    """
    if "LOCAL_RANK" in os.environ or not hasattr(os, "getloadavg"):
        return True
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _cpu_quota(groups) < cores or os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1)


def _cpu_quota(groups: Path) -> float:
    """Return the most cores' worth of time that a container may use; infinite without a limit."""
    try:
        if (groups / "cpu.max").exists():
            quota, period = (groups / "cpu.max").read_text().split()
        else:
            quota, period = ((groups / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return float(quota) / float(period) if quota != "max" and float(quota) > 0 else float("inf")
    except (OSError, ValueError):
        return float("inf")


# -- memory ------------------------------------------------------------------------------------------------------------


def keep_memory() -> bool:
    """Let glibc keep the memory of large tensors between training steps, in this process and those it forks.

    On a CPU, PyTorch allocates every tensor with the C library. Above 32 MB, glibc maps fresh pages and returns them as
    soon as the tensor is freed, so a step over large batches spends much of its time on page faults. In exchange, a
    process keeps its peak memory, and more if sizes do not match; `speed/allocator.py` measures both.

    Returns:
        Whether the thresholds were raised: not without glibc, if the environment sets `MALLOC_*` or glibc's tunables,
        or with `GRAPHBENCH_MALLOC=system`.
    """
    from graphbench.errors import check_choice

    choice = os.environ.get(MALLOC_VARIABLE, "keep")
    check_choice(f"the environment variable {MALLOC_VARIABLE}", choice, ("keep", "system"))
    set_by_user = any(name.startswith("MALLOC_") for name in os.environ)
    set_by_user |= "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if choice == "system" or set_by_user or platform.libc_ver()[0] != "glibc":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # a static interpreter, or another allocator in place of glibc's
        return False
    options = ((_M_MMAP_THRESHOLD, _LARGEST), (_M_TRIM_THRESHOLD, _LARGEST), (_M_TOP_PAD, _TOP_PAD))
    return all(mallopt(option, value) == 1 for option, value in options)
