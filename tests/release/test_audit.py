"""The audit covers the newest and the oldest versions that pyproject.toml allows and fails on a finding in either."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.mark.parametrize(("newest", "oldest", "code"), [(0, 0, 0), (1, 0, 1), (0, 1, 1)])
def test_a_finding_at_either_end_fails(audit, monkeypatch, newest, oldest, code):
    seen = []

    def run(command):
        path = command[-1]
        seen.append(Path(path).read_text(encoding="utf-8"))
        return SimpleNamespace(returncode=newest if "newest" in path else oldest)

    answers = {(): ["torch==9.0"], ("--resolution", "lowest-direct"): ["torch==2.10.0"]}
    monkeypatch.setattr(audit, "resolve", lambda source, python, *options: answers[options])
    monkeypatch.setattr(audit, "requirements", lambda: "torch>=2.10")
    monkeypatch.setattr(subprocess, "run", run)
    assert audit.main() == code
    assert seen == ["torch==9.0", "torch==2.10.0"]
