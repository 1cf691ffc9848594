"""Traces that diagnostics could not read are refused; the error names the layer and the fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from graphbench import GraphBatch, LayerTrace
from graphbench.testing import tiny_spec, tiny_table
from graphbench.testing.representations import check_trace


@pytest.fixture
def batch() -> GraphBatch:
    return tiny_table(tiny_spec(), sizes=[2, 3]).batch(range(2))


@pytest.fixture
def trace(batch: GraphBatch) -> LayerTrace:
    attention = [torch.full((2, n, n), 1 / n) for n in (2, 3)]
    return LayerTrace(
        torch.zeros(5, 4), batch.batch, torch.zeros(5, 2, 4), attention, num_nodes=batch.ptr.diff(), layer=1
    )


def test_a_full_trace_passes(trace: LayerTrace, batch: GraphBatch) -> None:
    substructure = torch.zeros(5, dtype=torch.bool)
    check_trace(replace(trace, input=torch.zeros(5, 4), substructure=substructure, residual_weight=2.0), batch)
    check_trace(replace(trace, mixing_weight=torch.tensor(0.5)), batch)


def test_negative_weights_are_refused(trace: LayerTrace, batch: GraphBatch) -> None:
    assert trace.attention is not None
    trace.attention[1][0, 0, 0] = -0.1
    with pytest.raises(AssertionError, match="layer 1: attention of graph 1 has negative weights"):
        check_trace(trace, batch)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"input": torch.zeros(4, 4)}, "input has 4 rows for 5 tokens"),
        ({"input": torch.zeros(5)}, "input is \\[5\\]"),
        ({"substructure": torch.zeros(5)}, "substructure must be bool"),
        ({"substructure": torch.zeros(3, dtype=torch.bool)}, "substructure has 3 rows"),
        ({"residual_weight": float("nan")}, "residual_weight must be finite"),
        ({"mixing_weight": torch.ones(2)}, "mixing_weight must be one number"),
    ],
)
def test_fields_that_fit_no_token_are_refused(
    trace: LayerTrace, batch: GraphBatch, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        check_trace(replace(trace, **fields), batch)
