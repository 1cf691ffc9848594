"""The paper's iteration against the exact flow and against its own definition, and its start."""

from __future__ import annotations

import pytest
import torch

from graphbench.errors import BadInput
from graphbench_sfi_former import ProximalOptions, SparseFlowAttention, sparse_flow, sparse_flow_proximal
from graphbench_sfi_former.reference import _nested_uniform


@pytest.fixture
def rows() -> tuple[torch.Tensor, torch.Tensor]:
    """Resistances and frictions of three attention matrices of ten nodes."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, 10, 10, generator=generator, dtype=torch.float64).softmax(-1).unbind(0)


@pytest.mark.parametrize("start", ["uniform", "scaled", "dense", "zeros"])
def test_converges_to_the_exact_flow(rows, start):
    exact = sparse_flow(*rows, 1 / 10, 0.1)
    generator = torch.Generator().manual_seed(1)
    found = sparse_flow_proximal(*rows, 1 / 10, 0.1, num_steps=600, start=start, generator=generator)
    assert (found - exact).abs().max() < 1e-9
    assert torch.equal(found == 0, exact == 0)


def test_constant_steps_converge_too_if_slowly(rows):
    exact = sparse_flow(*rows, 1 / 10, 0.1)
    found = sparse_flow_proximal(*rows, 1 / 10, 0.1, num_steps=6000, start="dense", step="constant")
    assert (found - exact).abs().max() < 1e-9


def test_follows_equation_12_step_by_step(rows):
    r, f = rows[0][0], rows[1][0]
    alpha, penalty, n = 0.1, 0.5, 10
    z = torch.full((n, n), 0.3, dtype=torch.float64)
    start, length, before = z[None], 1 / (r.max() + alpha * n), None
    for _ in range(3):
        gradient = r * z + alpha * (z.sum(1) - 1)[:, None] * torch.ones(1, n)
        if before is not None:
            a, b = z - before[0], gradient - before[1]
            length = (a * b).sum() / torch.linalg.matrix_norm(b) ** 2
        before = z, gradient
        y = z - length * gradient
        z = torch.sign(y) * torch.clamp_min(y.abs() - length * penalty * f, 0)
    found = sparse_flow_proximal(r[None], f[None], penalty, alpha, num_steps=3, start=start)
    torch.testing.assert_close(found[0], z, rtol=1e-12, atol=1e-14)


def test_few_steps_are_far_from_the_optimum_and_depend_on_the_start():
    generator = torch.Generator().manual_seed(0)
    r, f = torch.randn(2, 1, 50, 50, generator=generator, dtype=torch.float64).softmax(-1)
    exact = sparse_flow(r, f, 1 / 50, 0.1)
    first, second = (sparse_flow_proximal(r, f, 1 / 50, 0.1, num_steps=20, generator=generator) for _ in range(2))
    assert (first - exact).norm() > exact.norm()
    assert (first - second).norm() > exact.norm()


def test_each_matrix_has_its_own_step(rows):
    r, f = rows
    together = sparse_flow_proximal(r, f, 0.1, 0.1, num_steps=15, start="dense")
    for i in range(3):
        alone = sparse_flow_proximal(r[i : i + 1], f[i : i + 1], 0.1, 0.1, num_steps=15, start="dense")
        torch.testing.assert_close(together[i : i + 1], alone, rtol=1e-9, atol=1e-12)


def test_padding_is_ignored(rows):
    r, f = rows
    padded_r, padded_f = (torch.nn.functional.pad(x, (0, 4), value=9.0) for x in rows)
    mask = torch.arange(14) < 10
    alone = sparse_flow_proximal(r, f, 0.1, 0.1, num_steps=15, start="dense")
    padded = sparse_flow_proximal(padded_r, padded_f, 0.1, 0.1, mask, num_steps=15, start="dense")
    torch.testing.assert_close(padded[..., :10], alone, rtol=1e-9, atol=1e-12)
    assert torch.equal(padded[..., 10:], torch.zeros_like(padded[..., 10:]))


def test_gradients_approach_those_of_the_exact_flow(rows):
    def gradients(solve, *options):
        leaves = [x.clone().requires_grad_() for x in rows]
        leaves += [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (0.1, 0.1)]
        return torch.autograd.grad((solve(*leaves, **dict(options)) * rows[0].cos()).sum(), leaves)

    iterated = gradients(sparse_flow_proximal, ("num_steps", 4000), ("start", "dense"), ("step", "constant"))
    for a, b in zip(iterated, gradients(sparse_flow), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_generator_makes_the_start_repeatable(rows):
    runs = [
        sparse_flow_proximal(*rows, 0.1, 0.1, num_steps=2, generator=torch.Generator().manual_seed(s))
        for s in (1, 1, 2)
    ]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_half_precision_is_computed_in_float32(rows):
    r, f = (x.to(torch.bfloat16) for x in rows)
    found = sparse_flow_proximal(r, f, 0.1, 0.1, start="dense")
    assert torch.equal(found, sparse_flow_proximal(r.float(), f.float(), 0.1, 0.1, start="dense").bfloat16())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": None}, "needs alpha"),
        ({"num_steps": 0}, "num_steps must be at least 1"),
        ({"start": "ones"}, "start must be"),
        ({"start": torch.zeros(2, 2)}, "start must have the shape"),
        ({"step": "newton"}, "step must be"),
    ],
)
def test_bad_options_are_named(rows, options, message):
    with pytest.raises(BadInput, match=message):
        sparse_flow_proximal(*rows, 0.1, **({"alpha": 0.1} | options))


def test_a_smaller_start_is_the_corner_of_a_larger_one():
    whole = _nested_uniform(3, 40, seed=0)
    assert whole.shape == (3, 40, 40)
    for size in (1, 2, 17):
        assert torch.equal(_nested_uniform(3, size, seed=0), whole[:, :size, :size])
    assert not torch.equal(_nested_uniform(3, 40, seed=1), whole)
    torch.set_default_dtype(torch.bfloat16)  # as Lightning's bf16-true does in a step
    try:
        assert torch.equal(_nested_uniform(3, 40, seed=0), whole)
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_numbers_are_uniform_and_all_different():
    drawn = _nested_uniform(2, 100, seed=0).flatten().sort().values
    assert drawn[0] >= 0
    assert drawn[-1] < 1
    uniform = (torch.arange(len(drawn)) + 0.5) / len(drawn)
    assert (drawn - uniform).abs().max() < 1.63 / len(drawn) ** 0.5  # Kolmogorov and Smirnov, 1%
    assert len(drawn.unique()) > 0.99 * len(drawn)


def test_a_scaled_start_sums_to_about_one_in_every_row():
    rows = torch.rand(2, 3, 50, 50)
    mask = torch.ones(2, 1, 50, 50, dtype=torch.bool)
    mask[1, ..., 30:] = False
    start = ProximalOptions(start="scaled")._start(rows, mask)
    start = torch.where(mask, start, 0.0)
    assert torch.allclose(start.sum(-1).mean(-1), torch.ones(2, 3), atol=0.1)


@pytest.mark.parametrize("options", [{"num_steps": 0}, {"start": "ones"}, {"step": "newton"}])
def test_bad_options_of_the_iteration_are_named(options):
    with pytest.raises(BadInput, match=next(iter(options))):
        ProximalOptions(**options)


def test_the_checkpoint_names_the_iteration(caplog):
    options = {"num_steps": 7, "start": "scaled"}
    trained = SparseFlowAttention(6, 2, solver="proximal", proximal=ProximalOptions(**options))
    state = trained.state_dict()
    assert state["_extra_state"] == options | {"step": "barzilai-borwein", "seed": 0}
    with caplog.at_level("WARNING", logger="graphbench_sfi_former"):
        SparseFlowAttention(6, 2, solver="proximal", proximal=ProximalOptions(**options)).load_state_dict(state)
        assert not caplog.records
        SparseFlowAttention(6, 2).load_state_dict(state)
    assert "'num_steps': 7" in caplog.text
    assert "an exact solver" in caplog.text
