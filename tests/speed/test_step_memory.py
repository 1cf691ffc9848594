"""The estimated memory of a step compared with the allocator's events of a real step, for ten recipes."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

SPEED = Path(__file__).parents[2] / "speed"
SLOW = {
    "exphormer/cifar10", "gnnplus/gine-zinc", "gps/zinc", "graphmamba/mnist", "graphormer/zinc", "grit/zinc",
    "large-graphs/difformer-coco-sp", "point-clouds/dgcnn-modelnet40", "sequences/s4d-listops",
}  # fmt: skip
QUICK = ("gt/pattern",)


@pytest.fixture
def step_memory(monkeypatch):
    monkeypatch.syspath_prepend(str(SPEED))
    monkeypatch.setenv("GRAPHBENCH_KERNELS", "torch")
    return importlib.import_module("step_memory")


def test_all_recipes_are_tested(step_memory):
    assert set(step_memory.RECIPES) == {*QUICK, *SLOW}


@pytest.mark.fresh_process
@pytest.mark.parametrize("recipe", [*QUICK, *(pytest.param(one, marks=pytest.mark.slow) for one in sorted(SLOW))])
def test_the_estimate_is_within_a_tenth_of_the_allocator(step_memory, recipe):
    estimate, allocated = step_memory.both(recipe, graphs=8)
    assert estimate == pytest.approx(allocated, rel=0.1)
