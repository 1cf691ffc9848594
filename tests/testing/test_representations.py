"""Traces that diagnostics could not read are refused, with the layer and what is wrong."""

from __future__ import annotations

from dataclasses import replace

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
    return LayerTrace(1, torch.zeros(5, 4), batch.batch, torch.zeros(5, 2, 4), attention, num_nodes=batch.ptr.diff())


def test_a_full_trace_passes(trace: LayerTrace, batch: GraphBatch) -> None:
    extra = {
        "input": torch.zeros(5, 4),
        "substructure": torch.zeros(5, dtype=torch.bool),
        "residual_weight": torch.tensor(2.0),
    }
    check_trace(replace(trace, extra=extra), batch)


def test_negative_weights_are_refused(trace: LayerTrace, batch: GraphBatch) -> None:
    assert trace.attention is not None
    trace.attention[1][0, 0, 0] = -0.1
    with pytest.raises(AssertionError, match="layer 1: attention of graph 1 has negative weights"):
        check_trace(trace, batch)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"input": torch.zeros(4, 4)}, "extra\\['input'\\] has 4 rows for 5 tokens"),
        ({"input": torch.zeros(5)}, "extra\\['input'\\] is \\[5\\]"),
        ({"substructure": torch.zeros(5)}, "extra\\['substructure'\\] must be bool"),
        ({"substructure": torch.zeros(3, dtype=torch.bool)}, "extra\\['substructure'\\] has 3 rows"),
        ({"residual_weight": torch.ones(2)}, "extra\\['residual_weight'\\] must be one number"),
    ],
)
def test_extras_that_fit_no_token_are_refused(
    trace: LayerTrace, batch: GraphBatch, extra: dict[str, torch.Tensor], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        check_trace(replace(trace, extra=extra), batch)
