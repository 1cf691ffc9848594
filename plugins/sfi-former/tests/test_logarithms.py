"""Rows in logarithms against exact fractions if floating-point numbers would overflow, underflow or cancel."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from graphbench_sfi_former.logarithms import LogRows, flow, slopes, solve
from graphbench_sfi_former.steep import gradient_of_queries


def rows_of(exponents_of_weights, exponents_of_frictions, log_penalty=0.0, log_slack=-torch.inf) -> LogRows:
    """One row with conductances 2^i and frictions 2^j."""
    weight, friction = (
        torch.tensor([x], dtype=torch.float64) * torch.log(torch.tensor(2.0, dtype=torch.float64))
        for x in (exponents_of_weights, exponents_of_frictions)
    )
    one = torch.ones(1, 1, dtype=torch.float64)
    return LogRows(weight, friction, one * log_penalty, one * log_slack, one * 1e-12)


def exact_row(weights, frictions, alpha=None):
    """Flow, active keys and D in fractions, penalty 1."""
    total, mass, active = (Fraction(0) if alpha is None else 1 / alpha), Fraction(1), []
    for i in sorted(range(len(weights)), key=lambda i: frictions[i]):
        if frictions[i] * total >= mass:
            break
        total, mass = total + weights[i], mass + weights[i] * frictions[i]
        active.append(i)
    return (
        [
            max(mass / total - f, 0) * w if i in active else Fraction(0)
            for i, (w, f) in enumerate(zip(weights, frictions, strict=True))
        ],
        active,
        total,
    )


@pytest.mark.parametrize("seed", range(12))
def test_flow_and_derivatives_over_hundreds_of_orders_of_magnitude(seed):
    generator = torch.Generator().manual_seed(seed)
    i = torch.randint(-900, 900, (9,), generator=generator).tolist()
    j = torch.randint(-900, 0, (9,), generator=generator).tolist()
    j[3], j[4] = j[0], j[1]  # ties
    i[4] = i[1]
    alpha = None if seed % 2 else Fraction(1, 8)
    rows = rows_of(i, j, log_slack=-torch.inf if alpha is None else torch.log(torch.tensor(8.0, dtype=torch.float64)))
    weights, frictions = ([Fraction(2) ** k for k in numbers] for numbers in (i, j))
    expected, active, total = exact_row(weights, frictions, alpha)
    level = solve(rows)
    z = flow(rows, level)
    torch.testing.assert_close(z[0], torch.tensor([float(x) for x in expected], dtype=torch.float64), rtol=1e-9, atol=0)

    u = torch.randint(-8, 8, (1, 9), generator=generator).double()
    exact_u = [Fraction(int(x)) for x in u[0].tolist()]
    charge = sum((weights[k] * exact_u[k] for k in active), Fraction(0)) / total
    found = slopes(rows, level, z, u)
    for k in range(9):
        push = weights[k] * (charge - exact_u[k]) if k in active else Fraction(0)
        assert int(found.sign[0, k]) == (push > 0) - (push < 0)
        if push:  # the logarithm of a fraction that no float holds
            size = abs(push)
            shift = size.numerator.bit_length() - size.denominator.bit_length()
            log = (
                torch.log(torch.tensor(float(size / Fraction(2) ** shift), dtype=torch.float64))
                + shift * 0.6931471805599453
            )
            assert abs(float(found.log_push[0, k] - log)) < 1e-9
    by_resistance = sum(expected[k] * (charge - exact_u[k]) for k in active)
    torch.testing.assert_close(float(found.resistances), float(by_resistance), rtol=1e-9, atol=1e-300)
    of_penalty = sum(weights[k] * frictions[k] * (charge - exact_u[k]) for k in active)
    torch.testing.assert_close(float(found.penalty), float(of_penalty), rtol=1e-9, atol=1e-300)


def test_frictions_closer_than_their_rounding_are_a_tie():
    rows = rows_of([600.0, 601.0, 3.0], [-5.0, -5.0 + 1e-14, 0.0])
    z = flow(rows, solve(rows))
    torch.testing.assert_close(z, torch.tensor([[1 / 3, 2 / 3, 0.0]], dtype=torch.float64))
    apart = rows_of([600.0, 601.0, 3.0], [-5.0, -5.0 + 1e-9, 0.0])
    assert flow(apart, solve(apart)).tolist() == [[1.0, 0.0, 0.0]]


def test_a_row_without_keys_and_one_with_a_nan():
    rows = rows_of([0.0, 1.0], [-1.0, -2.0])
    closed = rows._replace(log_weight=torch.full_like(rows.log_weight, -torch.inf))
    level = solve(closed)
    assert flow(closed, level).tolist() == [[0.0, 0.0]]
    found = slopes(closed, level, flow(closed, level), torch.ones(1, 2, dtype=torch.float64))
    assert not torch.cat([found.times(torch.zeros(1, 1)), found.resistance, found.leak], -1).any()
    broken = rows._replace(log_weight=torch.tensor([[0.0, torch.nan]], dtype=torch.float64))
    assert flow(broken, solve(broken)).isnan().all()


def test_equal_keys_leave_no_rounding_in_a_sum_of_huge_terms():
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(2, 6, 4, generator=generator)
    keys[:, 1] = keys[:, 0]
    scores = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    scores[:, 2] -= scores.sum(-1)  # derivatives by the logits of a softmax sum to zero
    rows = torch.tensor([0, 4, 5])  # of two matrices with three rows each
    expected = torch.stack([s @ keys[m].double() for s, m in zip(scores, (0, 1, 1), strict=True)])
    torch.testing.assert_close(gradient_of_queries(scores, keys, rows, 3), expected)
    huge = scores.clone()
    huge[:, 0] += 2.0**90
    huge[:, 1] -= 2.0**90
    found = gradient_of_queries(huge, keys, rows, 3)
    exact = torch.stack(
        [s[2:] @ (keys[m, 2:].double() - keys[m, 0].double()) for s, m in zip(scores, (0, 1, 1), strict=True)]
    )
    torch.testing.assert_close(found, exact)
