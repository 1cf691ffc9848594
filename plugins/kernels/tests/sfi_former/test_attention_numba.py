"""The kernels of a whole attention: sizes that fill no vector, equal values, chunks of rows, threads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphbench.contracts.kernels import plain_form
from graphbench_kernels import run_in_threads, runs_numba
from graphbench_kernels.sfi_former import operations

pytestmark = pytest.mark.skipif(not runs_numba(torch.zeros(1)), reason="kernels in Numba do not run here")

NAMES = ("query", "key", "friction_query", "friction_key", "value", "penalty", "alpha")
#: Errors relative to the greatest entry of a tensor, for logits of standard deviation 1.
ERRORS = {torch.float32: 3e-5, torch.float64: 1e-11}


def operands(num_rows, num_keys, widths, dtype, matrices=3):
    """Q, K, Q~, K~ and V, of widths `(d, d~, d_v)`, penalty and alpha."""
    generator = torch.Generator().manual_seed(num_rows)
    shapes = zip((num_rows, num_keys, num_rows, num_keys, num_keys), (0, 0, 1, 1, 2), strict=True)
    parts = [torch.randn(matrices, n, widths[i], generator=generator, dtype=torch.float64) for n, i in shapes]
    penalty = torch.rand(matrices, 1, 1, generator=generator, dtype=torch.float64) * 2 / num_keys
    return [x.to(dtype) for x in parts] + [penalty, 0.1 + penalty]


def results(attend, inputs):
    """Output and gradients by name."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    output, steep = attend(*leaves, None, None, 0.0, 0)
    assert not steep.any()
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    gradients = torch.autograd.grad((output * upstream.to(output.dtype)).sum(), leaves)
    return {"output": output.detach(), **dict(zip(NAMES, gradients, strict=True))}


def assert_near(inputs, dtype):
    got = results(operations.attend_rows, inputs)
    expected = results(plain_form("graphbench_sfi_former::attend_rows"), [x.double() for x in inputs])
    for name, values in got.items():
        scale = expected[name].abs().max().clamp_min(0.05)
        assert (values.double() - expected[name]).abs().max() <= ERRORS[dtype] * scale, name
    return got


@pytest.mark.parametrize("widths", [(1, 1, 1), (5, 12, 7), (16, 16, 16), (32, 5, 48), (12, 40, 17)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_widths_and_sizes_that_fill_no_vector(dtype, widths):
    for num_rows, num_keys in ((1, 1), (1, 20), (20, 20), (16, 33), (37, 3)):
        assert_near(operands(num_rows, num_keys, widths, dtype), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_keys_and_values(dtype):
    inputs = operands(20, 20, (12, 12, 12), dtype)
    inputs[1], inputs[3], inputs[4] = (x[:, :1].expand_as(x).contiguous() for x in (inputs[1], inputs[3], inputs[4]))
    got = assert_near(inputs, dtype)
    assert got["query"].abs().max() < 1e-3


def test_rows_of_several_chunks_add_up():
    from graphbench_kernels.sfi_former.attention_rows_numba import CHUNK

    for num_rows in (CHUNK, 2 * CHUNK + 5):
        assert_near(operands(num_rows, 9, (5, 5, 5), torch.float64, matrices=2), torch.float64)


def copied(operand):
    """Copy an array, or the arrays of a named tuple."""
    if isinstance(operand, np.ndarray):
        return operand.copy()
    return type(operand)(*map(copied, operand)) if isinstance(operand, tuple) else operand


def flat(operands):
    """The arrays among operands."""
    for operand in operands:
        if isinstance(operand, tuple):
            yield from flat(operand)
        elif isinstance(operand, np.ndarray):
            yield operand


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_threads_do_not_change_a_bit(dtype, monkeypatch):
    from graphbench_kernels.sfi_former import attention

    calls = []

    def one_and_two_threads(kernel, count, steps, *operands):
        arrays, both = [x.detach().numpy() if isinstance(x, torch.Tensor) else x for x in operands], []
        for threads in (1, 2):
            monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
            both.append([copied(x) for x in arrays])
            run_in_threads(kernel, count, max(steps, 2**20), *both[-1])
        calls.append(both)
        run_in_threads(kernel, count, steps, *arrays)

    monkeypatch.setattr(attention, "run_in_threads", one_and_two_threads)
    results(operations.attend_rows, operands(160, 61, (5, 12, 16), dtype))
    assert len(calls) == 2
    for one, two in calls:
        for a, b in zip(flat(one), flat(two), strict=True):
            np.testing.assert_array_equal(a, b)
