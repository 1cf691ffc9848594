"""Compiled kernels on disk: only of this source, CPU and user, complete or absent; a full disk is not an error."""

from __future__ import annotations

import errno
import importlib.util
import json
import logging
import os
import platform
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

numba = pytest.importorskip("numba")
if os.open not in os.supports_dir_fd:
    pytest.skip("this system cannot tell whether others write to a folder", allow_module_level=True)

from numba.core import caching, codegen, compiler  # noqa: E402

from graphbench_kernels import disk_cache  # noqa: E402

SOURCE = """
from graphbench_kernels import cpu_kernel
@cpu_kernel
def scale(first, last, x, out):
    for i in range(first, last):
        out[i] = {factor} * x[i]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    place = tmp_path / "kernels"
    monkeypatch.setenv(disk_cache.VARIABLE, str(place))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(disk_cache, "_warned", [])
    return place


@pytest.fixture
def kernel(folder, tmp_path, monkeypatch):
    """Return a function that imports the module of a kernel as a new process would."""

    def load(factor="2.0", source=SOURCE):
        file = tmp_path / "scale_numba.py"
        file.write_text(source.format(factor=factor))
        disk_cache._file_digest.cache_clear()
        spec = importlib.util.spec_from_file_location("scale_numba", file)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "scale_numba", module)
        spec.loader.exec_module(module)
        return module.scale

    return load


def value(kernel, dtype=np.float64):
    """Return the result of a kernel for 1, and whether the kernel came from disk."""
    out = np.zeros(1)
    kernel(0, 1, np.ones(1, dtype), out)
    return float(out[0]), bool(kernel.stats.cache_hits)


def test_a_second_process_compiles_nothing(kernel, folder):
    assert value(kernel()) == (2.0, False)
    assert value(kernel()) == (2.0, True)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [file.stat().st_mode & 0o777 for file in folder.iterdir()] == [0o600]


def test_another_source_is_another_entry(kernel):
    assert value(kernel("2.0")) == (2.0, False)
    assert value(kernel("3.0")) == (3.0, False)
    assert value(kernel("2.0")) == (2.0, True)


def test_a_constant_from_another_module_counts(kernel, tmp_path, monkeypatch):
    """Numba compiles it in, and the kernel's file is the same."""
    monkeypatch.syspath_prepend(tmp_path)
    source = "from factor_of_scale import FACTOR\n" + SOURCE
    for factor in (2.0, 3.0):
        (tmp_path / "factor_of_scale.py").write_text(f"FACTOR = {factor}\n")
        monkeypatch.delitem(sys.modules, "factor_of_scale", raising=False)
        importlib.invalidate_caches()
        assert value(kernel("FACTOR", source)) == (factor, False)


def test_code_that_was_loaded_counts_and_not_the_file_alone(kernel, tmp_path):
    """The file may be replaced between import and first call; the imported code is then stored under its own name."""
    old = kernel("2.0")
    disk_cache._file_digest.cache_clear()
    (tmp_path / "scale_numba.py").write_text(SOURCE.format(factor="3.0"))
    assert value(old) == (2.0, False)
    assert value(kernel("3.0")) == (3.0, False)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_no_room_is_one_warning_and_never_an_old_result(kernel, folder, monkeypatch, caplog, code):
    assert value(kernel("2.0")) == (2.0, False)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):

        def fail(*arguments, **options):
            raise OSError(code, os.strerror(code))

        patch.setattr(disk_cache.os, "replace", fail)
        assert value(kernel("3.0")) == (3.0, False)
        assert value(kernel("4.0")) == (4.0, False)
    (record,) = caplog.records
    assert str(folder) in record.getMessage()
    assert disk_cache.VARIABLE in record.getMessage()
    assert len(list(folder.iterdir())) == 1
    assert value(kernel("3.0")) == (3.0, False)


def test_a_limit_of_file_sizes_is_a_warning(kernel, folder, caplog):
    """The write really fails, after a part of the file."""
    resource = pytest.importorskip("resource")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    scale = kernel()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, before[1]))
        assert value(scale) == (2.0, False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert disk_cache._warned
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:100],
        lambda content: content[:-1],
        lambda content: content[:-9] + b"!" + content[-8:],
        lambda content: b"graphbench kernel 0\n" + content[20:],
        lambda content: bytes(len(content)),
    ],
)
def test_torn_and_altered_files_are_written_anew(kernel, folder, damage):
    value(kernel())
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert value(kernel()) == (2.0, False)
    assert value(kernel()) == (2.0, True)


def test_a_file_under_the_name_of_another_is_not_used(kernel, folder):
    value(kernel("2.0"))
    (two,) = folder.iterdir()
    value(kernel("3.0"))
    (three,) = set(folder.iterdir()) - {two}
    two.replace(three)
    assert value(kernel("3.0")) == (3.0, False)


def test_another_processor_does_not_run_what_this_one_compiled(kernel, folder, monkeypatch):
    value(kernel())
    magic = codegen.CPUCodegen.magic_tuple
    monkeypatch.setattr(codegen.CPUCodegen, "magic_tuple", lambda self: (magic(self)[0], "another", ""))
    assert value(kernel()) == (2.0, False)
    assert len(list(folder.iterdir())) == 2


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the name of the other processor is one of x86-64")
def test_a_process_that_names_another_processor_compiles(kernel, folder, tmp_path):
    value(kernel())
    (first,) = folder.iterdir()
    code = "import numpy as np, scale_numba; x = np.zeros(1); scale_numba.scale(0, 1, np.ones(1), x); print(x[0])"
    other = {"NUMBA_CPU_NAME": "nehalem", "NUMBA_CPU_FEATURES": ""}
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {**os.environ, **other, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code]
    assert float(subprocess.run(command, env=environment, check=True, capture_output=True).stdout) == 2.0
    (second,) = set(folder.iterdir()) - {first}
    keys = [json.loads(file.read_bytes()[60:].partition(b"}}")[0] + b"}}")["processor"] for file in (first, second)]
    assert keys[0][1] != keys[1][1] == "nehalem"


def canary(file):
    """Fail if a file is unpickled."""
    raise AssertionError(f"{file} was unpickled")


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o755, 0o777])
def test_a_folder_that_is_open_to_others_is_neither_read_nor_written(kernel, folder, monkeypatch, mode):
    value(kernel())
    folder.chmod(mode)
    monkeypatch.setattr(disk_cache.pickle, "loads", canary)
    assert value(kernel()) == (2.0, False)
    assert value(kernel("3.0")) == (3.0, False)
    assert len(list(folder.iterdir())) == 1
    assert f"{mode:o}" in disk_cache._warned[0]


def test_the_folder_of_another_user_is_neither_read_nor_written(kernel, folder, monkeypatch):
    value(kernel())
    if os.geteuid() == 0:
        os.chown(folder, 12345, -1)
    else:
        monkeypatch.setattr(disk_cache.os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr(disk_cache.pickle, "loads", canary)
    assert value(kernel()) == (2.0, False)
    assert len(disk_cache._warned) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_file_of_another_user_is_replaced(kernel, folder):
    value(kernel())
    (file,) = folder.iterdir()
    os.chown(file, 12345, -1)
    assert value(kernel()) == (2.0, False)
    assert value(kernel()) == (2.0, True)


def test_a_kill_between_writing_and_renaming_leaves_no_entry(kernel, folder):
    scale = kernel()
    if not (child := os.fork()):
        os.replace = lambda *arguments, **options: os.kill(os.getpid(), signal.SIGKILL)
        value(scale)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    (part,) = folder.iterdir()
    assert part.name.startswith(".")
    assert value(kernel()) == (2.0, False)
    assert value(kernel()) == (2.0, True)


def test_two_processes_that_compile_first_together_keep_both(kernel, folder):
    """In the order in which Numba's index gave one file to two signatures: both look and compile, then both write."""
    scale = kernel()
    ready, go = os.pipe(), os.pipe()
    children = []
    for dtype in (np.int64, np.float64):
        if not (child := os.fork()):
            replace = os.replace

            def wait(*arguments, replace=replace, **options):
                os.write(ready[1], b"x")
                os.read(go[0], 1)
                replace(*arguments, **options)

            os.replace = wait
            value(scale, dtype)
            os._exit(0)
        children.append(child)
    for _ in children:
        os.read(ready[0], 1)
    os.write(go[1], b"xx")
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert len(list(folder.iterdir())) == 2
    for dtype in (np.int64, np.float64):
        assert value(kernel(), dtype) == (2.0, True)


def test_files_that_nothing_reads_go_after_a_month(kernel, folder):
    value(kernel("2.0"))
    (old,) = folder.iterdir()
    (folder / ".left-by-a-kill").write_bytes(b"")
    for file in folder.iterdir():
        os.utime(file, (0, time.time() - 40 * 86400))
    value(kernel("3.0"))
    assert old not in folder.iterdir()
    assert len(list(folder.iterdir())) == 1


def test_what_is_read_stays(kernel, folder):
    value(kernel("2.0"))
    (old,) = folder.iterdir()
    os.utime(old, (0, time.time() - 40 * 86400))
    assert value(kernel("2.0")) == (2.0, True)
    value(kernel("3.0"))
    assert old in folder.iterdir()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"XDG_CACHE_HOME": "/caches"}, "/caches/graphbench/kernels"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/somebody"}, "/home/somebody/.cache/graphbench/kernels"),
        ({"XDG_CACHE_HOME": "/caches", "GRAPHBENCH_KERNEL_CACHE": "/scratch", "NUMBA_CACHE_DIR": "/x"}, "/scratch"),
    ],
)
def test_the_folder_is_the_users(monkeypatch, variables, expected):
    for name in ("XDG_CACHE_HOME", disk_cache.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert str(disk_cache._folder()) == expected


def test_numba_has_what_the_cache_relies_on(kernel):
    scale = kernel()
    assert caching._Cache.__abstractmethods__ == {
        "cache_path",
        "load_overload",
        "save_overload",
        "enable",
        "disable",
        "flush",
    }
    assert isinstance(scale._cache, disk_cache.DiskCache)
    assert callable(compiler.CompileResult._reduce)
    assert callable(compiler.CompileResult._rebuild)
    assert all(hasattr(numba.core.config, name) for name in disk_cache._SETTINGS)
    assert hasattr(codegen.CPUCodegen, "magic_tuple")


def test_a_function_is_compiled_anew_when_numba_is_asked_to(kernel, folder):
    scale = kernel()
    value(scale)
    scale.recompile()
    assert value(scale) == (2.0, False)
    assert len(list(folder.iterdir())) == 1
