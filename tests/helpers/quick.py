"""Which cases of a test the quick suite runs: some for all, where the others differ in values and not in kind."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest


def slow(*values: Any, **options: Any) -> Any:
    """A case that `make test-slow` runs alone."""
    return pytest.param(*values, marks=pytest.mark.slow, **options)


def one_of_each(
    cases: Iterable[Any], kind: Callable[[Any], Hashable] = lambda case: None, number: int = 1
) -> list[Any]:
    """All cases; of those of one kind, all but the first `number` are slow."""
    seen: dict[Hashable, int] = {}
    found = []
    for case in cases:
        seen[kind(case)] = seen.get(kind(case), 0) + 1
        found.append(case if seen[kind(case)] <= number else slow(case))
    return found
