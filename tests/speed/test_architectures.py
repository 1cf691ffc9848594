"""The plain models that ours are timed against compute the same."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SPEED = Path(__file__).parents[2] / "speed"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SPEED))
    return importlib.import_module("architectures")


def test_plain_layers_stand_in_for_ours_and_compute_the_same(script):
    """`check_equal` finds weights that differ."""
    torch.manual_seed(0)
    model, batch = script.made("model/gatedgcn", 4)
    other = script.plain(model)
    assert {type(layer) for layer in other.architecture.layers} == {script.PlainGatedGCNLayer}
    script.check_equal(model, other, batch)
    with torch.no_grad():
        other.architecture.layers[0].edge_map.weight.mul_(1.5)
    with pytest.raises(AssertionError, match="not close"):
        script.check_equal(model, other, batch)


@pytest.mark.slow
def test_every_model_of_the_table_is_measured(script):
    command = [sys.executable, SPEED / "architectures.py", "--rounds", "2", "--batch-size", "4"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {line.split()[0] for line in lines} >= set(script.CONFIGURATIONS)
