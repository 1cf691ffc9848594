import sys

import pytest
import torch

from graphbench.nn import kernels

CARD = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def forget():
    kernels.runs_triton.cache_clear()
    yield
    kernels.runs_triton.cache_clear()


@pytest.mark.parametrize(
    ("device", "installed", "capability", "answer"),
    [
        (CARD, True, (9, 0), True),
        (CARD, True, (7, 0), True),
        (CARD, True, (6, 1), False),
        (CARD, False, (9, 0), False),
        (torch.device("cpu"), True, (9, 0), False),
    ],
)
def test_a_new_enough_card_and_triton_are_needed(device, installed, capability, answer, monkeypatch):
    monkeypatch.setattr(kernels, "find_spec", lambda name: object() if installed and name == "triton" else None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert kernels.runs_triton(device) is answer


def test_asking_does_not_import_triton():
    before = "triton" in sys.modules
    kernels.runs_triton(torch.device("cpu"))
    assert ("triton" in sys.modules) is before
