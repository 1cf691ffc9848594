"""The lock of a run's folder names the process that holds it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from graphbench.errors import BadInput
from graphbench.runs.holding import locked

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
