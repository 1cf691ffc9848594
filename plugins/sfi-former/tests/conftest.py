"""Sparse-flow attention in many-digit arithmetic, from the same binary numbers as the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
import torch
from mpmath import mp, mpf

Matrix = list[list[mpf]]


class Truth(NamedTuple):
    """Output, flow and gradients by name, and the sum of the absolute values of the terms of each of their entries."""

    values: dict[str, Matrix]
    terms: dict[str, Matrix]

    def error(self, name: str, got: torch.Tensor, natural: bool = False) -> float:
        """Greatest error over the entries, relative to the greatest entry, or to the greatest sum of terms."""
        exact = self.values[name]
        scale = max(abs(x) for row in (self.terms if natural else self.values)[name] for x in row)
        rows = got.detach().reshape(len(exact), -1).double().tolist()
        worst = max(abs(mpf(x) - y) for a, b in zip(rows, exact, strict=True) for x, y in zip(a, b, strict=True))
        return float(worst / scale) if scale else float(worst)

    def size(self, name: str) -> float:
        """Return the largest entry; infinite if it exceeds float64."""
        return float(max(abs(x) for row in self.values[name] for x in row))


class ManyDigits:
    """The closed form by the active set in order of friction, and its derivatives, with `digits` digits.

    At logits of standard deviation s conductances and costs span about exp(6 s) each, so 12 s digits suffice.
    """

    def __init__(self, digits: int) -> None:
        self.digits = digits

    def attention(
        self,
        parts: Sequence[torch.Tensor],
        upstream: torch.Tensor,
        penalty: float,
        alpha: float | None = None,
        mask: torch.Tensor | None = None,
    ) -> Truth:
        """Of Q, K, Q~, K~, V, two-dimensional each."""
        with mp.workdps(self.digits):
            return self._attention(parts, upstream, mpf(penalty), None if alpha is None else mpf(alpha), mask)

    def row(
        self, resistance: Sequence[mpf], friction: Sequence[mpf], penalty: mpf, alpha: mpf | None
    ) -> tuple[list[mpf], list[int], mpf, mpf]:
        """Flow, active keys, level mu and D of one row."""
        total, mass, active = (mpf(0) if alpha is None else 1 / alpha), mpf(1), []
        for i in sorted(range(len(friction)), key=lambda i: friction[i]):
            cost = penalty * friction[i]
            if cost * total >= mass:
                break
            total, mass = total + 1 / resistance[i], mass + cost / resistance[i]
            active.append(i)
        if not total:  # no key and no alpha: a row without flow
            return [], [], mpf(0), mpf(1)
        level = mass / total
        flow = [mpf(0)] * len(friction)
        for i in active:
            flow[i] = (level - penalty * friction[i]) / resistance[i]
        return flow, active, level, total

    def _attention(
        self,
        parts: Sequence[torch.Tensor],
        upstream: torch.Tensor,
        penalty: mpf,
        alpha: mpf | None,
        mask: torch.Tensor | None,
    ) -> Truth:
        query, key, friction_query, friction_key, value, up = (_matrix(x) for x in (*parts, upstream))
        root, friction_root = 1 / mp.sqrt(len(query[0])), 1 / mp.sqrt(len(friction_query[0]))
        num_keys, flows, scores, frictions = len(key), [], [], []
        of_penalty, of_alpha, penalty_terms = mpf(0), mpf(0), mpf(0)
        for n in range(len(query)):
            keys = [i for i in range(num_keys) if mask is None or bool(mask[n, i])]
            log_r = [-root * mp.fdot(query[n], key[i]) for i in keys]
            log_f = [friction_root * mp.fdot(friction_query[n], friction_key[i]) for i in keys]
            r, f = _softmax(log_r), _softmax(log_f)
            z, active, level, total = self.row(r, f, penalty, alpha)
            u = [mp.fdot(up[n], value[i]) for i in keys]
            charge = mp.fsum(u[i] / r[i] for i in active) / total
            by_r, by_f = [mpf(0)] * len(keys), [mpf(0)] * len(keys)
            for i in active:
                by_r[i] = z[i] * (charge - u[i])
                by_f[i] = penalty * f[i] * (charge - u[i]) / r[i]
                of_penalty += f[i] * (charge - u[i]) / r[i]
                penalty_terms += abs(f[i] * (charge - u[i]) / r[i])
            if alpha is not None:
                of_alpha += charge * level / alpha**2
            flows.append(_spread(z, keys, num_keys))
            scores.append(_spread([-g + r[i] * mp.fsum(by_r) for i, g in enumerate(by_r)], keys, num_keys))
            frictions.append(_spread([g - f[i] * mp.fsum(by_f) for i, g in enumerate(by_f)], keys, num_keys))
        products = {
            "output": (flows, value, 1),
            "query": (scores, key, root),
            "key": (_transpose(scores), query, root),
            "friction_query": (frictions, friction_key, friction_root),
            "friction_key": (_transpose(frictions), friction_query, friction_root),
            "value": (_transpose(flows), up, 1),
        }
        values = {name: _product(*factors) for name, factors in products.items()}
        terms = {name: _product(_absolute(a), _absolute(b), c) for name, (a, b, c) in products.items()}
        values |= {"flow": flows, "penalty": [[of_penalty]], "alpha": [[of_alpha]]}
        terms |= {"flow": flows, "penalty": [[penalty_terms]], "alpha": [[abs(of_alpha)]]}
        return Truth(values, terms)


@pytest.fixture
def many_digits():
    """`ManyDigits`, by the number of digits."""
    return ManyDigits


def _matrix(x: torch.Tensor) -> Matrix:
    return [[mpf(entry) for entry in row] for row in x.tolist()]


def _softmax(logits: Sequence[mpf]) -> list[mpf]:
    powers = [mp.exp(x) for x in logits]
    total = mp.fsum(powers)
    return [x / total for x in powers]


def _spread(values: Sequence[mpf], places: Sequence[int], length: int) -> list[mpf]:
    row = [mpf(0)] * length
    for place, entry in zip(places, values, strict=True):
        row[place] = entry
    return row


def _transpose(matrix: Matrix) -> Matrix:
    return [list(column) for column in zip(*matrix, strict=True)]


def _absolute(matrix: Matrix) -> Matrix:
    return [[abs(x) for x in row] for row in matrix]


def _product(left: Matrix, right: Matrix, factor: mpf) -> Matrix:
    columns = _transpose(right)
    return [[factor * mp.fdot(row, column) for column in columns] for row in left]
