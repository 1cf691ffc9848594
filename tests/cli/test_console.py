"""Measured numbers, against PyTorch and the kernel, and tables on the terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from graphbench.cli.console import count_parameters, peak_memory_mb, scores_of, show_table


def test_shared_parameters_count_once_and_frozen_ones_never():
    first, frozen = nn.Linear(3, 2), nn.Linear(5, 5).requires_grad_(False)
    assert count_parameters(nn.ModuleList([first, first, frozen])) == 8


@pytest.mark.skipif(torch.cuda.is_available() or not Path("/proc/self/status").is_file(), reason="reads the kernel")
def test_peak_memory_is_that_of_the_kernel():
    block = bytearray(32_000_000)
    lines = Path("/proc/self/status").read_text().splitlines()
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    assert peak_memory_mb() == pytest.approx(kilobytes * 1024 / 1e6, rel=0.05)
    assert len(block) < peak_memory_mb() * 1e6


@pytest.mark.skipif(torch.cuda.is_available() or not Path("/proc/self/status").is_file(), reason="reads the kernel")
def test_peak_memory_is_not_that_of_the_process_that_started_this_one():
    block = bytearray(b"1") * 2_000_000_000
    code = "from graphbench.cli.console import peak_memory_mb; print(peak_memory_mb())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert float(told) * 1e6 < len(block) / 2


def test_what_callbacks_log_is_no_score():
    logged = {"val/MAE": 1.0, "val/loss": 1.0, "flow_sparsity/zeros/layer_0_head_0": 0.3, "validity/x": 2.0}
    assert scores_of("val", logged) == {"val/MAE": 1.0, "val/loss": 1.0}


def test_units_in_brackets_are_shown(capsys):
    show_table("QM9 [eV]", ["target", "MAE"], [["gap [eV]", "0.1"]])
    assert capsys.readouterr().out.count("[eV]") == 2
