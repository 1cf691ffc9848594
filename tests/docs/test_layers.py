"""The code of `docs/layers.md` runs and shows every layer in about five lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

GUIDE = Path(__file__).parents[2] / "docs" / "layers.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    torch.manual_seed(0)
    found: dict[str, Any] = {"__name__": "guide"}
    for block in BLOCKS:
        exec(compile(block, str(GUIDE), "exec"), found)
    return found


def test_every_block_runs_and_leaves_its_layer(names: dict[str, Any]) -> None:
    for name in ("attention", "layer", "encoders", "flow", "sampled"):
        assert isinstance(names[name], nn.Module), name
    assert names["new_x"].shape == names["x"].shape
    assert names["positions"].isfinite().all()


@pytest.mark.parametrize("number", range(1, len(BLOCKS)))
def test_a_layer_takes_about_five_lines(number: int) -> None:
    lines = [line for line in BLOCKS[number].splitlines() if line and not line.startswith(("import", "from", "assert"))]
    assert 1 <= len(lines) <= 5


def test_every_public_layer_is_named() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    encoders = ("LapPEEncoder", "RWSEEncoder", "SignNetEncoder", "DegreeEncoder", "ESLapPEEncoder")
    for layer in (
        "MultiHeadAttention",
        "GatedGCNLayer",
        "GPSLayer",
        "SparseFlowAttention",
        "SampledAttention",
        *encoders,
    ):
        assert layer in text, layer
