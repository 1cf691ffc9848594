"""Locks, and every user of them on a file system that has none."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import signal

import pytest
from filelock import Timeout

from graphbench.data.files.locking import acquire_lock
from graphbench.data.store import Store
from graphbench.errors import BadInput
from graphbench.runs import RunFolder


@pytest.fixture(params=[errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS], ids=errno.errorcode.get)
def without_locks(request, monkeypatch):
    """As on NFS without its lock daemon, some FUSE and 9p mounts."""

    def refuse(*_):
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", refuse)


def forked(action):
    """The exit code of a process: 0 where it got the lock, 3 where another had it."""
    child = os.fork()
    if not child:
        code = 1
        try:
            action()
            code = 0
        except (Timeout, BadInput):
            code = 3
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_one_process_at_a_time(tmp_path):
    held = acquire_lock(tmp_path / "a.lock", timeout=0)
    assert forked(lambda: acquire_lock(tmp_path / "a.lock", timeout=0)) == 3
    held.release()
    assert forked(lambda: acquire_lock(tmp_path / "a.lock", timeout=0)) == 0


def test_one_process_at_a_time_without_locks(without_locks, tmp_path):
    held = acquire_lock(tmp_path / "a.lock", timeout=0)
    assert forked(lambda: acquire_lock(tmp_path / "a.lock", timeout=0)) == 3
    held.release()
    assert forked(lambda: acquire_lock(tmp_path / "a.lock", timeout=0)) == 0


def test_a_killed_process_leaves_no_lock(without_locks, tmp_path):
    def die():
        acquire_lock(tmp_path / "a.lock", timeout=0)
        os.kill(os.getpid(), signal.SIGKILL)

    assert forked(die) == -signal.SIGKILL
    assert forked(lambda: acquire_lock(tmp_path / "a.lock", timeout=10)) == 0


def test_a_run_is_held_and_it_is_said(without_locks, tmp_path, caplog):
    run = RunFolder(tmp_path / "run")
    with caplog.at_level(logging.WARNING), run.held():
        assert forked(lambda: run.held().__enter__()) == 3
    assert forked(lambda: run.held().__enter__()) == 0
    assert "without locks" in caplog.text
    assert ".lock.taken" in caplog.text


def test_an_entry_is_built_once(without_locks, tmp_path):
    store, key = Store(tmp_path), {"kind": "numbers"}
    calls = tmp_path / "calls.txt"

    def build(writer):
        with calls.open("a") as file:
            file.write("x")

    assert [forked(lambda: store.open_or_build(key, build, "numbers")) for _ in range(2)] == [0, 0]
    assert calls.read_text() == "x"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_other_errors_of_a_place_pass(monkeypatch, tmp_path, code):
    original = os.open

    def refuse(path, flags, *rest, **options):
        if str(path).endswith("a.lock"):
            raise OSError(code, os.strerror(code), str(path))
        return original(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match=os.strerror(code)):
        acquire_lock(tmp_path / "a.lock", timeout=0)
