"""Run `graphbench` in its own process, and the small model that tests of the command line train."""

from __future__ import annotations

import os
import subprocess
import sys

SMALL_MODEL = [
    "--model.architecture", "GPS",
    "--model.architecture.hidden_dim", "16",
    "--model.architecture.num_layers", "2",
    "--model.architecture.dropout", "0.2",
    "--trainer.accelerator", "cpu",
    "--trainer.enable_model_summary", "false",
]  # fmt: skip


def graphbench(*arguments, script=None, check=True):
    """Run a command in its own process, which `script` starts if it is given."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GRAPHBENCH_RUN": ""}
    del environment["GRAPHBENCH_RUN"]
    start = [sys.executable, "-m", "graphbench"] if script is None else [sys.executable, str(script)]
    done = subprocess.run([*start, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 or not check, done.stderr[-3000:]
    return done
