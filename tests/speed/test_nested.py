"""Our encoder and torch's compute the same on graphs of different sizes, each on the path that its row names."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

SPEED = Path(__file__).parents[2] / "speed"
BATCH = torch.tensor([0, 0, 0, 1, 2, 2])


@pytest.fixture
def nested(monkeypatch):
    monkeypatch.syspath_prepend(str(SPEED))
    return importlib.import_module("nested")


@pytest.mark.parametrize("training", [False, True])
def test_all_contenders_compute_the_same(nested, training):
    x = torch.randn(len(BATCH), nested.DIM)
    found = {
        name: nested.train(encode, x, BATCH, torch.ones_like(x)) if training else nested.infer(encode, x, BATCH)
        for name, encode in nested.contenders(training).items()
    }
    peers = {nested.PADDED, nested.JAGGED} if training else {nested.PADDED, nested.JAGGED, nested.NESTED}
    assert found.keys() == {"ours", *peers}
    for output in found.values():
        torch.testing.assert_close(output, found["ours"], atol=1e-4, rtol=1e-3)


def test_an_encoder_with_other_weights_is_found(nested, monkeypatch):
    monkeypatch.setattr(nested, "BATCHES", {"tiny": (2, 5, 3, 2.0)})
    nested.steps_of("tiny", training=False)
    monkeypatch.setattr(nested.EncoderLayer, "load", lambda own, theirs: None)
    with pytest.raises(AssertionError, match=f"{nested.PADDED}, tiny: .* apart"):
        nested.steps_of("tiny", training=False)


@pytest.mark.parametrize(("name", "calls"), [("PADDED", 0), ("NESTED", 1)])
def test_only_the_fast_path_makes_nested_tensors(nested, name, calls):
    encode = nested.contenders(training=False)[getattr(nested, name)]
    with mock.patch("torch._nested_tensor_from_mask", wraps=torch._nested_tensor_from_mask) as made:
        nested.infer(encode, torch.randn(len(BATCH), nested.DIM), BATCH)
    assert made.call_count == calls
    assert torch.backends.mha.get_fastpath_enabled(), "a contender leaves torch as it was"


def test_a_torch_without_jagged_attention_costs_its_rows_alone(nested, monkeypatch, capsys):
    monkeypatch.setattr(nested, "jagged", mock.Mock(side_effect=RuntimeError("No viable backend\nat length")))
    assert list(nested.contenders(training=True)) == ["ours", nested.PADDED]
    assert capsys.readouterr().out == "Jagged tensors fail here, their rows are left out: No viable backend\n"


@pytest.mark.slow
def test_every_batch_of_the_table_is_measured(nested):
    command = [sys.executable, SPEED / "nested.py", "--rounds", "2"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {tuple(line.split()[:2]) for line in lines[1:]} == {
        (f"{name},", mode) for name in nested.BATCHES for mode in ("inference", "training")
    }
