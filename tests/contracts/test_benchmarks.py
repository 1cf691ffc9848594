"""`graphbench list` reads specifications from source text; they must equal those of the registered classes."""

from __future__ import annotations

import pytest

from graphbench import registry


@pytest.mark.parametrize("name", sorted(registry.benchmarks()))
def test_listed_specification_is_that_of_the_class(name):
    assert registry.benchmarks()[name].spec == registry.load("benchmarks", name).spec
