"""The batches that the processes of `speed/scaling.py` train on."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch
from scripts import load_script

SPEED = Path(__file__).parents[2] / "speed"


@pytest.fixture
def scaling(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SPEED))
    return load_script(SPEED / "scaling.py")


class Orders:
    """A pipe that asks for the given number of rounds."""

    def __init__(self, rounds: int) -> None:
        self.asked, self.done = [True] * rounds + [False], 0

    def recv(self) -> bool:
        return self.asked.pop(0)

    def send(self, done: bool) -> None:
        self.done += done


@pytest.mark.parametrize("by_size", [False, True])
def test_both_models_train_on_the_same_batches_one_after_the_other(
    scaling: ModuleType, monkeypatch: pytest.MonkeyPatch, by_size: bool
) -> None:
    seen: list[list[list[int]]] = []
    monkeypatch.setattr(scaling, "make_step", lambda model, fused: lambda b: seen[-1].append(b.ptr.diff().tolist()))
    threads = torch.get_num_threads()
    for model in (scaling.OurGPS, scaling.BaselineGPS):
        seen.append([])
        orders = Orders(rounds=2)
        scaling._work(orders, 0, None, scaling.Work(2, model=model, by_size=by_size, batches=3))
        assert orders.done == 2
    torch.set_num_threads(threads)
    ours, theirs = seen
    assert ours[0] == ours[3]  # three batches, four steps
    assert len({tuple(sizes) for sizes in ours}) == 3
    assert ours == theirs
    if by_size:
        first, second, third = sorted(ours[:3], key=max)
        assert max(first) <= min(second) <= max(second) <= min(third)
