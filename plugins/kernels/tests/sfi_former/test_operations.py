"""Operands that kernels support: water levels on GPUs, whole attention on CPUs."""

import sys
import types

import pytest
import torch

from graphbench.testing import computed_by
from graphbench_kernels.sfi_former import operations
from graphbench_sfi_former.blocks import attend_rows
from graphbench_sfi_former.sparse_flow import water_level


@pytest.fixture
def launched(monkeypatch):
    """Record the calls of the Triton kernel, as on a machine that can launch it."""
    calls = []
    name = "graphbench_kernels.sfi_former.water_level_triton"
    stand_in = types.ModuleType(name)
    stand_in.water_level = lambda weight, cost, slack: calls.append(weight.shape) or (weight, cost, slack)
    monkeypatch.setitem(sys.modules, name, stand_in)
    monkeypatch.setattr("graphbench_kernels.sfi_former.water_level_triton", stand_in, raising=False)
    monkeypatch.setattr(operations, "runs_triton", lambda device: True)
    return calls


def levels(num_keys, dtype=torch.float32):
    weight = torch.full((1, num_keys), 1 / num_keys, dtype=dtype)
    return weight, torch.zeros_like(weight), torch.zeros(1, 1, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_too_long_for_registers_are_left_to_torch(launched, dtype):
    most = operations.MOST_BYTES // dtype.itemsize
    operations.water_level(*levels(most, dtype))
    level, slope, settled = operations.water_level(*levels(most + 1, dtype))
    torch.testing.assert_close((level, slope), (torch.ones(1, 1, dtype=dtype),) * 2)
    assert settled.all()
    assert launched == [(1, most)]


def test_cards_alone_launch_triton(launched):
    """On a CPU the operation is the plain form, although Triton could be launched."""
    assert water_level(*levels(3))[0].item() == pytest.approx(1.0)
    assert not launched


@pytest.mark.parametrize("operation", [attend_rows, water_level])
def test_operations_are_torchs_with_the_results_of_the_plain_form(operation):
    generator = torch.Generator().manual_seed(0)
    if operation is water_level:
        operands = (*levels(7, torch.float64)[:2], torch.full((1, 1), 0.3, dtype=torch.float64))
    else:
        parts = [torch.randn(2, n, 4, generator=generator, dtype=torch.float64) for n in (5, 6, 5, 6, 6)]
        weights = torch.rand(2, 2, 1, 1, generator=generator, dtype=torch.float64)
        operands = (*parts, *weights, None, None, 0.0, 0)
    named = getattr(torch.ops.graphbench_sfi_former, operation.__name__)(*operands)
    with computed_by("torch"):
        torch.testing.assert_close(named, operation(*operands), rtol=1e-10, atol=1e-12)
