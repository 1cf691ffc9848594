"""Signals to one or both of two training processes: both stop after the same step with one checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from command_line import SMALL_MODEL
from equal_runs import content
from waits import wait_until

pytestmark = pytest.mark.slow

TWO = [*SMALL_MODEL, "--trainer.strategy", "ddp", "--trainer.devices", "2", "--trainer.max_epochs", "6"]

#: Slow steps, so that a signal arrives in one; every process writes its number after its first.
SCRIPT = """
import os, sys, time
from pathlib import Path
from graphbench.callbacks.throughput import Throughput
original = Throughput.on_train_batch_end
def slow(self, trainer, *rest):
    original(self, trainer, *rest)
    Path(sys.argv[-1], f"rank-{trainer.global_rank}").write_text(str(os.getpid()))
    time.sleep(float(os.environ["STEP_SECONDS"]))
Throughput.on_train_batch_end = slow
from graphbench.cli import main
sys.exit(main(sys.argv[1:-1]))
"""


def begin(tmp_path: Path, *arguments, seconds=0.2):
    script = tmp_path / "slow.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "STEP_SECONDS": str(seconds)}
    environment.pop("GRAPHBENCH_RUN", None)
    for path in tmp_path.glob("rank-*"):
        path.unlink()
    command = [sys.executable, str(script), *map(str, arguments), str(tmp_path)]
    output = (tmp_path / "output.txt").open("w")
    return subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)


def ranks(process: subprocess.Popen, tmp_path: Path) -> list[int]:
    """Return the process numbers of the ranks, once both train."""
    end = time.monotonic() + 240
    while time.monotonic() < end and process.poll() is None:
        files = sorted(tmp_path.glob("rank-*"))
        if len(files) == 2 and all(path.read_text() for path in files):
            return [int(path.read_text()) for path in files]
        time.sleep(0.05)
    pytest.fail((tmp_path / "output.txt").read_text()[-3000:])


def gone(number: int) -> bool:
    try:
        os.kill(number, 0)
        return Path(f"/proc/{number}/stat").read_text().split()[2] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


@pytest.fixture(scope="module")
def whole(data_options, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    process = begin(folder, "fit", *data_options, *TWO, "--run", folder / "run", seconds=0)
    assert process.wait(300) == 0, (folder / "output.txt").read_text()[-3000:]
    return folder / "run"


@pytest.mark.parametrize(
    ("asked", "signum", "code"),
    [("all", signal.SIGTERM, 143), ("first", signal.SIGTERM, 143), ("second", signal.SIGTERM, 143),
     ("all", signal.SIGINT, 130)],
)  # fmt: skip
def test_both_leave_with_one_checkpoint_and_go_on_equally(whole, data_options, tmp_path, asked, signum, code):
    run = tmp_path / "run"
    process = begin(tmp_path, "fit", *data_options, *TWO, "--run", run)
    numbers = ranks(process, tmp_path)
    if asked == "all":
        os.killpg(process.pid, signum)
    else:
        os.kill(numbers[asked == "second"], signum)
    assert process.wait(180) == code, (tmp_path / "output.txt").read_text()[-3000:]
    wait_until(lambda: all(map(gone, numbers)))
    text = (tmp_path / "output.txt").read_text()
    assert f"Continue with: graphbench fit --resume {run}" in text
    assert "Traceback" not in text
    assert 0 < content(run)["global_step"] < 36
    again = begin(tmp_path, "fit", "--resume", run, seconds=0)
    assert again.wait(300) == 0, (tmp_path / "output.txt").read_text()[-3000:]
    one, two = content(whole)["state_dict"], content(run)["state_dict"]
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_both_leave_where_the_folder_moves(whole, data_options, tmp_path):
    """The first process notices it; both write a checkpoint where the folder is now.

    A move between its check and the writes at the end of an epoch leaves logs and that checkpoint in a new folder of
    the old name, or makes the thread of TensorBoard's writer fail.
    """
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    process = begin(tmp_path, "fit", *data_options, *TWO, "--run", run)
    numbers = ranks(process, tmp_path)
    time.sleep(0.9)
    run.rename(elsewhere)
    assert process.wait(180) == 1, (tmp_path / "output.txt").read_text()[-3000:]
    wait_until(lambda: all(map(gone, numbers)))
    text = (tmp_path / "output.txt").read_text()
    assert f"Continue with: graphbench fit --resume {elsewhere}" in text or "has no checkpoint yet" in text
    assert "Traceback" not in text.partition("Exception in thread")[0]
    assert not (run / "config.yaml").exists()
    if "Continue with" in text:
        again = begin(tmp_path, "fit", "--resume", elsewhere, seconds=0)
        assert again.wait(300) == 0, (tmp_path / "output.txt").read_text()[-3000:]
        one, two = content(whole)["state_dict"], content(elsewhere)["state_dict"]
        assert all(torch.equal(one[name], two[name]) for name in one)
