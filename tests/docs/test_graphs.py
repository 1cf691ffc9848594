"""The code and commands of `docs/graphs.md` run in order, in one folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from graphbench.benchmarks.graphs.splits.splitting import _KINDS
from graphbench.cli import main

GUIDE = Path(__file__).parents[2] / "docs" / "graphs.md"
BLOCKS = re.findall(r"^```(python|console)\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
SMALL = ["--model.architecture.hidden_dim", "16", "--model.architecture.num_layers", "1"]


def test_every_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "guide"}
    commands = 0
    for kind, block in BLOCKS:
        if kind == "python":
            exec(compile(block, str(GUIDE), "exec"), names)
            continue
        for line in block.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "graphbench"
            assert main([*arguments, *(SMALL if "GPS" in arguments else [])]) == 0, capsys.readouterr().err
            commands += 1
    assert commands == 15
    assert names["data"].spec.task == "graph-regression"
    told = capsys.readouterr().err
    for inferred in ("order", "dry, wet", "fold 2 of 10 tests", "friends", "club"):
        assert inferred in told, inferred


def test_every_split_is_named():
    text = GUIDE.read_text(encoding="utf-8")
    for kind in _KINDS:
        assert f"| `{kind}` |" in text, kind
