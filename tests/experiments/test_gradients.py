"""Gradients by layer against `torch.autograd.grad`, and the script as users run it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from scripts import load_script

PATH = Path(__file__).parents[2] / "experiments" / "gradients.py"

DATA = ["--data.init_args.source=generated", "--data.init_args.sizes=[8,4,4]", "--data.init_args.batch_size=4"]


@pytest.fixture(scope="module")
def gradients():
    return load_script(PATH)


def test_norms_are_those_of_each_layer_and_depth_multiplies_them_under_re_attention(gradients):
    """With rows of about 120 weights, gradients grow with re-attention and not without it."""
    grows = []
    for overlays in (["sat/overlays/re-attention"], []):
        model, batch = gradients.made(["sat/cluster", *overlays], DATA, seed=0)
        generator = torch.get_rng_state()
        norms = gradients.gradient_norms(model, batch)
        torch.set_rng_state(generator)
        layers = [list(layer.parameters()) for layer in model.architecture.layers]
        loss = model.task.loss(model(batch), batch)
        found = torch.autograd.grad(loss, [p for layer in layers for p in layer], allow_unused=True)
        by_parameter = iter(found)
        for layer, norm in zip(layers, norms, strict=True):
            own = [next(by_parameter) for _ in layer]
            flat = torch.cat([grad.flatten().double() for grad in own if grad is not None])
            assert norm == pytest.approx(flat.norm().item(), rel=1e-3)
        grows.append(gradients.growth(norms))
    assert grows[0] > 2 > grows[1]


def test_the_script_prints_a_line_per_seed(gradients, monkeypatch, capsys):
    options = ["--seeds", "0", "1", *DATA, "--model.architecture.init_args.num_layers=2"]
    monkeypatch.setattr(sys, "argv", ["gradients.py", "sat/cluster", *options])
    gradients.main()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:2] for line in lines[-2:]] == [["0", "2"], ["1", "2"]]
    assert lines[-1] != lines[-2]
