"""Steps of real fits on a pretended GPU: no step waits for it, and a batch is copied in one transfer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HELPER = Path(__file__).parents[1] / "helpers" / "pretended.py"
SMALL = ["--model.architecture.hidden_dim", "32", "--data.batch_size", "4", "--trainer.enable_progress_bar", "false"]
FEW = ["--data.sizes", "[60, 4, 4]"]


def counted(tmp_path, *options, first=3, steps=3):
    """Return the lines that waited in some steps, and those that copied, in a process with that device."""
    places = ["--data.root", tmp_path, "--data.store", tmp_path / "store", "--run", tmp_path / "run"]
    arguments = [*options, *SMALL, *places]
    done = subprocess.run(
        [sys.executable, HELPER, str(first), str(steps), *map(str, arguments)],
        capture_output=True, text=True, timeout=600, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-1000:]
    lines = done.stdout.splitlines()
    return [[line for line in lines if line.startswith(kind)] for kind in ("waits: ", "copies: ")]


def assert_steps_wait_nowhere_and_copy_once(tmp_path, *options, batches=1):
    waits, copies = counted(tmp_path, *options, steps=3)
    assert waits == []
    assert len(copies) == 1, copies
    assert copies[0].startswith(f"copies: {3 * batches} times "), copies
    assert "graphbench/data/loader.py" in copies[0]


def test_a_step_of_the_quickstart_waits_nowhere(molecule_file, tmp_path):
    data = ["--data", "Molecules", "--data.file", molecule_file, "--data.target", "length"]
    assert_steps_wait_nowhere_and_copy_once(tmp_path, "--config", "quickstart", *data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "batches"),
    [
        (["--config", "gps/cluster", "--data", "CLUSTER", "--data.source", "generated", *FEW,
         "--model.architecture.num_layers", "2"], 1),
        (["--config", "point-clouds/pointnet-modelnet40", "--data", "Solids", "--data.num_points", "64", *FEW], 1),
        (["--config", "sequences/listops", "--data.min_length", "10", "--data.max_length", "40", *FEW,
         "--trainer.val_check_interval", "1.0"], 1),
        (["--config", "quickstart", "--data", "CSL", "--trainer.accumulate_grad_batches", "2"], 2),
    ],
    ids=["nodes", "points", "sequence", "accumulated"],
)  # fmt: skip
def test_a_step_waits_nowhere(tmp_path, options, batches):
    assert_steps_wait_nowhere_and_copy_once(tmp_path, *options, batches=batches)


@pytest.mark.slow
def test_a_step_that_is_logged_reads_what_it_logs_alone(molecule_file, tmp_path):
    data = ["--data", "Molecules", "--data.file", molecule_file, "--data.target", "length"]
    found, _ = counted(tmp_path, "--config", "quickstart", *data, "--trainer.log_every_n_steps", "4")
    assert found
    logging = ("lightning_fabric/utilities/apply_func.py", "pytorch_lightning/callbacks/lr_monitor.py")
    assert all(any(place in line for place in logging) for line in found), found
