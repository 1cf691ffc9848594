"""The processes that speed/featurisation.py queries in turns."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

SPEED = Path(__file__).parents[2] / "speed"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SPEED))
    return importlib.import_module("featurisation")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "some.smi"
    path.write_text("CCO\nc1ccccc1\nCN\n")
    return path


def test_a_process_featurises_the_first_molecules_whenever_it_is_asked(script, file, tmp_path):
    noted = tmp_path / "noted"
    code = f"def featurise(smiles):\n    print(*smiles, file=open({str(noted)!r}, 'a'))\n    sum(range(10**6))\n"
    with script.asked(sys.executable, code, file, 2) as process:
        assert all(0 < script.ask(process) < 60 for _ in range(2))
    assert noted.read_text() == "CCO c1ccccc1\n" * 2
    assert process.returncode == 0


def test_ours_runs_and_a_rival_that_is_missing_ends_the_script(script, file):
    with script.asked(sys.executable, script.GRAPHBENCH, file, 3) as process:
        assert script.ask(process) > 0
    with pytest.raises(SystemExit, match="code 1"), script.asked(sys.executable, "import no_such_module", file, 3):
        pass
