"""The script for a borrowed GPU: its time limit, the files it returns, and that each part runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "experiments" / "gpu.sh"
MEGABYTE = 1_000_000
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")

#: Logs its words; `fit` writes an incompressible checkpoint, and `version` may be slow.
PYTHON = """#!/bin/bash
echo "$@" >> "$NOTES"
case " $* " in
    *" version "*) sleep "${SLOW:-0}" ;;
    *" fit "*)
        while [ $# -gt 0 ]; do [ "$1" != --run ] || run=$2; shift; done
        [ -n "$run" ] || exit 0
        mkdir -p "$run/checkpoints"
        head -c "${SIZE:-1000}" /dev/urandom > "$run/checkpoints/last.ckpt"
        echo '{}' > "$run/results.json" ;;
esac
"""


def start(tmp_path: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script with a stand-in for Python, in separate folders."""
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    places = {name: str(tmp_path / name.lower()) for name in ("OUT", "STATE", "RUNS", "NOTES")}
    environment = os.environ | places | {"PYTHON": str(python)} | variables
    return subprocess.run(["bash", str(SCRIPT), *words], env=environment, capture_output=True, text=True, timeout=600)


def noted(tmp_path: Path) -> list[str]:
    return (tmp_path / "notes").read_text().splitlines()


def test_all_parts_in_the_order_of_their_value(tmp_path: Path) -> None:
    done = start(tmp_path, "all")
    assert done.returncode == 0, done.stderr + done.stdout
    marks = (
        "pytest", "card_steps", "gps_throughput", "nested", "sparse_flow", "electric-flow/figure-1", "gps/zinc --data",
    )  # fmt: skip
    first = [next(number for number, line in enumerate(noted(tmp_path)) if mark in line) for mark in marks]
    assert first == sorted(first)
    for word in ("--precision bf16", "--compile"):
        assert any("gps_throughput" in line and line.endswith(word) for line in noted(tmp_path))


def test_scripts_have_the_options_that_they_get(tmp_path: Path) -> None:
    """Each option is looked up in the source of the parsers."""
    for part in ("all", "roofline"):
        start(tmp_path, part)
    commands = [line.split() for line in noted(tmp_path) if line.startswith("speed/")]
    given: dict[str, set[str]] = {}
    for script, *words in commands:
        given.setdefault(script, set()).update(word for word in words if word.startswith("--"))
    assert len(given) >= 6
    shared = (ROOT / "speed" / "limit.py").read_text()
    for script, options in given.items():
        text = (ROOT / script).read_text()
        text += shared if "parser_of" in text else ""
        assert not [option for option in options if f'"{option}"' not in text], script


def test_the_limit_counts_from_the_start(tmp_path: Path) -> None:
    began = time.monotonic()
    done = start(tmp_path, "all", LIMIT="12", SLOW="4")
    assert time.monotonic() - began < 12
    assert "no time left for" in done.stdout
    assert not any("card_steps" in line for line in noted(tmp_path))


def test_what_comes_back_is_few_files_and_goes_on(tmp_path: Path) -> None:
    """Checkpoints that do not fit are named; the next machine finds the others."""
    done = start(tmp_path, "gps-zinc", SIZE=str(40 * MEGABYTE))
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    files = sorted(out.iterdir())
    assert len(files) <= 8
    assert all(file.stat().st_size < 16 * 2**20 for file in files)
    with tarfile.open(out / "results.tar.gz") as packed:
        assert any(name.endswith("run-0/results.json") for name in packed.getnames())
    checkpoint = tmp_path / "runs" / "gps-zinc" / "run-0" / "checkpoints" / "last.ckpt"
    content = checkpoint.read_bytes()
    shutil.rmtree(tmp_path / "runs")
    out.rename(tmp_path / "state")
    done = start(tmp_path, "attention")
    assert done.returncode == 0, done.stderr
    assert checkpoint.read_bytes() == content
    shutil.rmtree(tmp_path / "runs")
    done = start(tmp_path, "gps-zinc", SIZE=str(70 * MEGABYTE))
    assert "find no room" in done.stdout
    assert sum(file.stat().st_size for file in out.iterdir()) < MEGABYTE


def test_another_part_is_refused_by_name(tmp_path: Path) -> None:
    done = start(tmp_path, "gps-zink")
    assert done.returncode == 2
    assert "gps-zink is no part" in done.stderr
    assert "gps-zinc" in done.stderr


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_has_no_complaint() -> None:
    done = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        "suite", "budget", "gps-speed", "attention", "flow-maxout", "electric-flow", "gps-zinc", "modes", "roofline",
        "sfi-pattern", "deepgraph-zinc", "graphormer-zinc", "sft-listops",
    ],
)  # fmt: skip
def test_a_rehearsal_of_each_part_runs(part: str, tmp_path: Path) -> None:
    done = start(tmp_path, "--rehearse", part, PYTHON=sys.executable)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "no time left" not in done.stdout
