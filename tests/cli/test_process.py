"""Settings of a command's process: waiting threads, memory that glibc keeps, and neither for a library user."""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import sys

import pytest

import graphbench.cli
from graphbench.cli import main
from graphbench.cli.process import MALLOC_VARIABLE, WAIT_VARIABLE, cores_are_shared, keep_memory, settle_waiting
from graphbench.errors import BadInput

MANY = 64
#: Prints what an import of the library changes in a process: environment, signal handlers, thresholds of glibc.
IMPORTING = """
import ctypes, json, os, signal
calls = []
class Library(ctypes.CDLL):
    def __getattr__(self, name):
        calls.append(name)
        return super().__getattr__(name)
ctypes.CDLL = Library
numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
before = dict(os.environ), [signal.getsignal(number) for number in numbers]
import graphbench, graphbench.cli, graphbench.cli.lightning, graphbench.cli.process, graphbench.cli.ranks
for name in graphbench.__all__:
    getattr(graphbench, name)
after = dict(os.environ), [signal.getsignal(number) for number in numbers]
changed = {name for name in after[0] if name.startswith(("OMP_", "GRAPHBENCH_")) and name not in before[0]}
print(json.dumps([sorted(changed), before[1] == after[1], "mallopt" in calls]))
"""


@pytest.fixture(autouse=True)
def idle_machine(monkeypatch):
    """Pretend to have 64 idle cores."""
    monkeypatch.setenv(WAIT_VARIABLE, "")  # so that it is restored
    monkeypatch.delenv(WAIT_VARIABLE)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.3, 0.0, 0.0), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: MANY)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(MANY)), raising=False)


def test_a_library_user_gets_none_of_it(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")  # a command would let threads sleep
    done = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], True, False]


def test_threads_wait_awake_on_cores_of_their_own(tmp_path):
    assert not cores_are_shared(tmp_path)


@pytest.mark.parametrize(("load", "shared"), [(31.0, False), (33.0, True)])
def test_busy_cores_are_shared(monkeypatch, tmp_path, load, shared):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    assert cores_are_shared(tmp_path) is shared


@pytest.mark.parametrize(
    ("files", "shared"),
    [
        ({"cpu.max": "max 100000\n"}, False),
        ({"cpu.max": "200000 100000\n"}, True),
        ({"cpu.max": "6400000 100000\n"}, False),
        ({"cpu.max": "nonsense"}, False),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, False),
        ({"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, True),
    ],
)
def test_a_container_with_less_time_than_cores_shares_them(tmp_path, files, shared):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert cores_are_shared(tmp_path) is shared


def test_ranks_of_one_training_share_their_cores(monkeypatch, tmp_path):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert cores_are_shared(tmp_path)


def test_what_the_environment_says_is_kept(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    settle_waiting()
    assert os.environ[WAIT_VARIABLE] == "PASSIVE"
    monkeypatch.setenv(WAIT_VARIABLE, "ACTIVE")
    settle_waiting()
    assert os.environ[WAIT_VARIABLE] == "ACTIVE"


@pytest.mark.parametrize(("rank", "policy"), [("0", "PASSIVE"), (None, None)])
def test_every_command_settles_it(monkeypatch, capsys, rank, policy):
    monkeypatch.setattr("graphbench.cli.process._cpu_quota", lambda groups: MANY)
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", rank)
    assert main(["--help"]) == 0
    assert os.environ.get(WAIT_VARIABLE) == policy
    assert "fit" in capsys.readouterr().out


glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")

#: Prints the page faults of allocating and freeing 256 MB a few times, after a first time.
FAULTS = """
import ctypes, resource
from graphbench.cli.process import keep_memory
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
kept, before = keep_memory(), 0
for turn in range(5):
    if turn == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = libc.malloc(256 << 20)
    ctypes.memset(block, 1, 256 << 20)
    libc.free(block)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(monkeypatch: pytest.MonkeyPatch, **environment: str) -> tuple[bool, int]:
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True).stdout.split()
    return out[0] == "True", int(out[1])


@glibc
def test_memory_of_large_blocks_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, faults = _faults(monkeypatch)
    left, faults_before = _faults(monkeypatch, **{MALLOC_VARIABLE: "system"})
    assert kept
    assert not left
    assert faults_before >= 4 * (256 << 20) // (2 << 20), "every turn maps its pages again, by 2 MB at most"
    assert faults < faults_before / 4


@glibc
def test_settings_from_outside_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert not keep_memory()
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    assert not keep_memory()


def test_an_unknown_choice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MALLOC_VARIABLE, "jemalloc")
    with pytest.raises(BadInput, match=f"{MALLOC_VARIABLE}.*keep.*system.*jemalloc"):
        keep_memory()


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO])
def test_a_file_server_that_fails_is_one_line(code, monkeypatch, capsys):
    def fail(words):
        raise OSError(code, os.strerror(code), "runs/mine/config.yaml")

    monkeypatch.setattr(graphbench.cli, "_dispatch", fail)
    assert main(["test"]) == 1
    assert capsys.readouterr().err == f"graphbench: runs/mine/config.yaml cannot be used: {os.strerror(code)}.\n"


def test_a_closed_standard_input_is_empty(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["version"]) == 0
    assert sys.stdin.read() == ""


def test_a_current_folder_that_was_removed_is_one_line(tmp_path, monkeypatch, capsys):
    """MKL would abort the process."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["params", "--data", "ZINC", "--model.architecture", "GPS"]) == 1
    assert capsys.readouterr().err == "graphbench: The current folder was removed: change to another one.\n"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.11 brought the variable")
@pytest.mark.parametrize("name", ["graphbench", "mine.py"])
def test_processes_of_the_command_import_nothing_from_the_current_folder(tmp_path, name):
    """Trainings of a sweep could import a `numpy.py` from there; a user's own script still may."""
    (tmp_path / "bin").mkdir()
    script, canary = tmp_path / "bin" / name, tmp_path / "canary"
    script.write_text(
        "import subprocess, sys\nfrom graphbench.cli import main\nmain(['version'])\n"
        "subprocess.run([sys.executable, '-m', 'graphbench', 'version'])\n"
    )
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "graphbench.py").write_text(f"open({str(canary)!r}, 'w')\n")
    subprocess.run([sys.executable, str(script)], cwd=tmp_path / "here", check=True, stdout=subprocess.DEVNULL)
    assert canary.exists() == (name == "mine.py")
