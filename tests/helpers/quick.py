"""Which cases of a test the quick suite runs: some stand for others that differ in values but not in kind."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest


def slow(*values: Any, **options: Any) -> Any:
    """Return a case that only `make test-slow` runs."""
    return pytest.param(*values, marks=pytest.mark.slow, **options)


def one_of_each(
    cases: Iterable[Any], kind: Callable[[Any], Hashable] = lambda case: None, number: int = 1
) -> list[Any]:
    """Return all cases; all but the first `number` of each kind are slow."""
    seen: dict[Hashable, int] = {}
    found = []
    for case in cases:
        seen[kind(case)] = seen.get(kind(case), 0) + 1
        found.append(case if seen[kind(case)] <= number else slow(case))
    return found
