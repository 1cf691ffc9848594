"""The table of steps and their products has every model, and the memory that a step needs."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

SPEED = Path(__file__).parents[2] / "speed"


@pytest.fixture
def limit(monkeypatch):
    monkeypatch.syspath_prepend(str(SPEED))
    return importlib.import_module("limit")


@pytest.mark.slow
def test_every_model_of_the_table_is_measured(limit):
    """Run two rounds of all configurations; `make speed` runs more."""
    command = [sys.executable, SPEED / "limit.py", "--rounds", "2", "--batch-size", "4"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    measured = {line.split()[0]: line.split() for line in lines if line.split()[0] in limit.CONFIGURATIONS}
    assert measured.keys() == set(limit.CONFIGURATIONS)
    assert all(float(cells[5]) > 1 for cells in measured.values()), "a step takes longer than its products"


def test_memory_that_a_step_needs_is_what_autograd_keeps(limit):
    """Rows before and after the map, and its parameters three times; the gradient of the result adds to the peak."""
    layer, x = torch.nn.Linear(64, 32), torch.randn(1000, 64)

    def step():
        layer.zero_grad()
        layer(x).relu().square().sum().backward()

    step()
    peak, needed = limit.memory_of(step, layer, SimpleNamespace(ptr=x))
    parameters, results = 4 * (64 * 32 + 32), 4 * 1000 * 32
    assert needed == 3 * parameters + x.nbytes + results
    assert 3 * parameters + 2 * results <= peak <= 4 * parameters + 4 * results + 4096
