"""Shared parts of the timing scripts: turns, ratios, the table of all scripts, and what got slower."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scripts import load_script

SPEED = Path(__file__).parents[2] / "speed"


def _load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SPEED))
    return load_script(SPEED / f"{name}.py")


@pytest.fixture
def timing(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _load("timing", monkeypatch)


def test_contenders_take_turns_after_a_warm_up(timing: ModuleType) -> None:
    order: list[str] = []
    ticks = iter(range(1000))
    calls = {name: (lambda name=name: order.append(name)) for name in ("a", "b", "slow")}
    seconds = timing.in_turns(calls, 3, clock=lambda: float(next(ticks)), rarely=["slow"])
    assert order == ["a", "b", "slow"] * 3 + ["a", "b"]
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3, "slow": 2}
    assert all(value == 1.0 for values in seconds.values() for value in values)


def test_ratios_pair_the_rounds(timing: ModuleType) -> None:
    # If the machine is three times slower for a moment, both times of the round grow and the ratio stays.
    assert timing.ratio([1.0, 3.0, 1.0], [2.0, 6.0, 2.0]) == 0.5
    seconds = {"ours": [1.0, 3.0, 1.0], "theirs": [2.0, 6.0, 2.0]}
    assert timing.note("case", "ours", "theirs", seconds) == 0.5
    kept = timing._NOTES[-1]
    assert (kept.seconds, kept.other, kept.ratio, kept.rounds) == (1.0, 2.0, 0.5, 3)


def test_every_part_of_the_suite_is_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    suite = _load("suite", monkeypatch)
    for name in suite.ON_THREADS:
        assert name in suite.PARTS
        assert '"--threads"' in (SPEED / f"{name}.py").read_text(), name
    for name, calls in suite.PARTS.items():
        assert (SPEED / f"{name}.py").is_file()
        assert calls, "a part without a call measures nothing"


def test_a_script_that_fails_costs_no_row_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    suite = _load("suite", monkeypatch)
    note = (
        "import sys; sys.path.insert(0, {speed!r}); import timing\n"
        "timing.note('case', 'ours', 'theirs', {{'ours': [1.0], 'theirs': [2.0]}})\n{end}"
    )
    for name, end in (("crashes", "raise ValueError('no memory')"), ("works", "")):
        (tmp_path / f"{name}.py").write_text(note.format(speed=str(SPEED), end=end))
    monkeypatch.setattr(suite, "HERE", tmp_path)
    monkeypatch.setattr(suite, "PARTS", {"crashes": (("--quick",),), "works": ((),)})
    monkeypatch.setattr(sys, "argv", ["suite.py", "--json", str(tmp_path / "table.json")])
    assert suite.main() == 1
    assert "speed/crashes.py --quick failed with exit code 1." in capfd.readouterr().err
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert [(row["script"], row["ratio"]) for row in rows] == [("crashes", 0.5), ("works", 0.5)]


def test_on_two_threads_only_scripts_run_that_measure_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    suite = _load("suite", monkeypatch)
    for name in ("kernels", "limit"):
        (tmp_path / f"{name}.py").write_text("import sys; print(sys.argv[1:])")
    monkeypatch.setattr(suite, "HERE", tmp_path)
    monkeypatch.setattr(suite, "PARTS", {"kernels": (("--rounds", "3"),), "limit": ((),)})
    monkeypatch.setattr(sys, "argv", ["suite.py", "--threads", "2"])
    assert suite.main() == 0
    said = capfd.readouterr().out
    assert "['--rounds', '3', '--threads', '2']" in said
    assert "limit" not in said


def _table(path: Path, ratio: float, **changed: Any) -> Path:
    row = {"script": "gps", "case": "zinc", "contender": "ours", "against": "PyG"}
    row |= {"seconds": 1.0, "low": 0.95, "high": 1.05, "other": 2.0, "ratio": ratio, "rounds": 9} | changed
    path.write_text(json.dumps({"provenance": {}, "rows": [row]}))
    return path


@pytest.mark.parametrize(
    ("before", "now", "code"), [(0.5, 0.54, 0), (0.5, 0.56, 1), (0.5, 0.3, 0)], ids=["spread", "slower", "quicker"]
)
def test_compare_names_what_got_slower_by_more_than_its_spread(
    tmp_path: Path, before: float, now: float, code: int
) -> None:
    files = [_table(tmp_path / "before.json", before), _table(tmp_path / "now.json", now)]
    command = [sys.executable, str(SPEED / "compare.py"), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert ("ours / PyG 0.50 -> 0.56 (+12 %, spread 10 %)" in done.stdout) == bool(code)


def test_compare_lists_what_only_one_table_has(tmp_path: Path) -> None:
    files = [_table(tmp_path / "before.json", 0.5), _table(tmp_path / "now.json", 0.5, case="peptides")]
    done = subprocess.run([sys.executable, str(SPEED / "compare.py"), *map(str, files)], capture_output=True, text=True)
    assert done.returncode == 0
    assert "0 comparisons in both" in done.stdout
    assert "only now: gps, peptides, ours, PyG" in done.stdout
