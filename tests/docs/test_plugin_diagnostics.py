"""The code of `docs/plugin-diagnostics.md` runs, passes the contract and is measured by every diagnostic."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from graphbench.diagnostics import Patterns, attention_maps, record, summarise
from graphbench.encodings import Substructures
from graphbench.testing import check_architecture, encode, tiny_spec, tiny_table

GUIDE = Path(__file__).parents[2] / "docs" / "plugin-diagnostics.md"


@pytest.fixture(scope="module")
def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def guide(blocks: list[str]) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    return names


def test_the_model_passes_the_contract_with_its_traces(guide: dict[str, Any]) -> None:
    passed = check_architecture(guide["MyModel"], **guide["TestMyModel"].options)
    assert "test_traces_describe_the_layers" in passed


def test_every_measure_is_there(guide: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    spec, vocabulary = tiny_spec(), Substructures(cycles=(3,), paths=(4,), stars=(2,), hops=(1,))
    table = encode(tiny_table(spec, 5), [vocabulary])
    batch = table.batch(range(5))
    patterns = Patterns.uniform(
        batch.member_node, batch.member_substructure, batch.substructure_batch, batch.ptr.diff()
    )
    model = guide["MyModel"](spec, hidden_dim=16).eval()
    with torch.no_grad(), record(model) as recording:
        model(batch)
    measured = summarise(recording, patterns, batch.edge_index)
    assert [measured[number].name for number in measured] == ["layers.0", "layers.1", "layers.2", "output"]
    expected = {"capacity", "capacity_bound", "alpha", "lambda", "gamma", "effective_rank", "entropy", "row_sum"}
    assert expected <= measured[1].means().keys()
    assert measured[1].mean("row_sum") == pytest.approx(1, rel=1e-5)
    assert measured[1].mean("capacity") <= measured[1].mean("capacity_bound")
    assert [layer.layer for layer in attention_maps(recording)[0]] == [0, 1, 2]


def test_the_record_has_ten_lines(blocks: list[str]) -> None:
    layer = next(node for node in ast.parse(blocks[0]).body if isinstance(node, ast.ClassDef))
    recorded = next(node for node in layer.body if isinstance(node, ast.FunctionDef) and node.name == "record")
    assert recorded.end_lineno is not None
    assert recorded.end_lineno - recorded.decorator_list[0].lineno + 1 <= 10
