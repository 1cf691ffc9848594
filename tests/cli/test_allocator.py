"""The C library's thresholds: set where they can be, left alone where somebody set them."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from graphbench.cli.allocator import VARIABLE, keep_memory
from graphbench.errors import BadInput

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")

#: How many page faults freeing and taking 256 MB a few times costs, after a first time.
FAULTS = """
import ctypes, resource
from graphbench.cli.allocator import keep_memory
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
    left, faults_before = _faults(monkeypatch, **{VARIABLE: "system"})
    assert kept
    assert not left
    assert faults_before >= 4 * (256 << 20) // (2 << 20), "every turn maps its pages anew, by 2 MB at most"
    assert faults < faults_before / 4


@glibc
def test_settings_from_outside_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert not keep_memory()
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    assert not keep_memory()


def test_an_unknown_choice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "jemalloc")
    with pytest.raises(BadInput, match=f"{VARIABLE}.*keep.*system.*jemalloc"):
        keep_memory()
