"""Checks that `docker/check.sh` makes of the image; they also work on this machine."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

#: Leak reports at the end of commands with Triton, and other lines that must not be printed.
NOISE = """\
nanobind: leaked 3 instances!
 - leaked instance 0x7f0000000000 of type "ir.module"
/opt/graphbench/lib/python3.11/site-packages/torch/x.py:1: UserWarning: something
Traceback (most recent call last):
epoch of something else
"""
QUIET = """\
Seed set to 0
SFiFormer on NCI: 512,345 trainable parameters (architecture 509,720, head 2,625)
Run folder: runs/SFiFormer
NCI: reading the data
Reading molecules: 1 of 20 chunks of 256 molecules so far
Reading molecules: 20 chunks of 256 molecules in 51.9 s
RWSE of NCI train: 1,024 of 3,769 graphs so far
RWSE of NCI train: 3,769 graphs in 6.3 s
NCI: the model has batch norms, so training batches mix graphs of all sizes
schedule.warmup is 400 steps, and the run has 2: it ends before the rate is reached.
An epoch of 118 batches takes about 29 s, the rest of the run about 53 s, without validation
epoch 1/30  train/loss 1.112  time/graphs_per_s 9.004  8 s
Best epoch 1: val/MAE 2.364
Report: runs/SFiFormer/report.html
Next: graphbench test --run runs/SFiFormer
"""
TWO_STEPS = ["--trainer.max_epochs", "1", "--trainer.limit_train_batches", "2", "--trainer.limit_val_batches", "1"]


def test_lines_that_no_command_should_print_are_named(check_stderr, tmp_path, capsys):
    assert list(check_stderr.unexpected(QUIET)) == []
    assert list(check_stderr.unexpected(QUIET + NOISE)) == NOISE.splitlines()
    file = tmp_path / "stderr"
    file.write_text(QUIET)
    assert check_stderr.main(str(file)) == 0
    file.write_text(QUIET + NOISE)
    assert check_stderr.main(str(file)) == 1
    assert "nanobind: leaked" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("model", ["SFT", "SFiFormer"])
def test_two_steps_print_nothing_else(check_stderr, tmp_path, model):
    words = ["-m", "graphbench", "fit", "--config", "quickstart", "--model.architecture", model, *TWO_STEPS]
    done = subprocess.run(
        [sys.executable, *words, "--run", f"runs/{model}"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(check_stderr.unexpected(done.stderr)) == []


def run_check(root, tmp_path, **changed):
    """Run `check_triton.py` from stdin, as inside the image."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache"), **changed}
    program = (root / "docker/check_triton.py").read_text()
    words = [sys.executable, "-"]
    return subprocess.run(words, input=program, env=environment, capture_output=True, text=True, check=False)


def test_tritons_launcher_is_built_where_triton_is(root, tmp_path):
    done = run_check(root, tmp_path)
    expected = "No Triton installed" if find_spec("triton") is None else "Triton can launch kernels: built cuda_utils"
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(expected)


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed: `pip install triton`")
def test_without_a_compiler_the_check_fails(root, tmp_path):
    done = run_check(root, tmp_path, PATH="", CC="")
    assert done.returncode != 0
    assert "no C compiler" in done.stderr
