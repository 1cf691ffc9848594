"""The lock of a run's folder names the process that holds it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from waits import wait_until

from graphbench.errors import BadInput
from graphbench.runs.holding import InUse, claim_of, claimed, locked

HOLD = """
import sys
from pathlib import Path
from graphbench.runs.holding import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_holder_is_named_also_where_this_user_may_not_signal_it(tmp_path, monkeypatch):
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "held\n"

        def refuse(process, signum):
            raise PermissionError

        monkeypatch.setattr(os, "kill", refuse)
        with pytest.raises(BadInput, match=f"in use: process {other.pid} on "), locked(tmp_path):
            pass
    finally:
        other.communicate()
    monkeypatch.undo()
    with locked(tmp_path) as place:
        assert place.is_there()


def test_what_is_claimed_is_refused_to_others_until_its_process_ends_however(tmp_path):
    run = tmp_path / "runs" / "gps-0"
    child = os.fork()
    if not child:
        with claimed(run):
            signal.pause()
    try:
        wait_until(claim_of(run).exists)
        with pytest.raises(InUse, match=f"gps-0 is in use: process {child} on .* works on it"), claimed(run):
            pass
        with claimed(tmp_path / "runs" / "gps-1"):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with claimed(run):
        assert json.loads(claim_of(run).read_text())["process"] == os.getpid()
    assert not claim_of(run).exists()
    assert not run.exists(), "a claim must not create the folder"


def test_who_has_a_lock_is_named_also_where_it_writes_its_name_a_moment_later(tmp_path):
    with locked(tmp_path):
        holder = (tmp_path / ".holder").read_text()
        (tmp_path / ".holder").unlink()
        later = threading.Timer(0.2, lambda: (tmp_path / ".holder").write_text(holder))
        later.start()
        with pytest.raises(InUse, match=f"in use: process {os.getpid()} on "), locked(tmp_path):
            pass
        later.join()
