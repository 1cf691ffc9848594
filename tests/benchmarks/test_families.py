"""A family's package provides what it lists and its benchmarks from the list of all, and no others."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

from graphbench import benchmarks

FAMILIES = [found.name for found in pkgutil.iter_modules(benchmarks.__path__) if found.ispkg]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_its_benchmarks_and_no_others(family):
    package = importlib.import_module(f"graphbench.benchmarks.{family}")
    inside = f"graphbench.benchmarks.{family}."
    listed = {name: getattr(benchmarks, name) for name in benchmarks.__all__}
    own = {name for name, found in listed.items() if found.__module__.startswith(inside)}
    assert own
    assert all(getattr(package, name) is listed[name] for name in own)
    assert not own & set(package.__all__), "listed twice"
    assert not [name for name in listed.keys() - own if hasattr(package, name)]
    assert all(hasattr(package, name) for name in package.__all__)


def test_what_is_nowhere_is_no_attribute():
    with pytest.raises(ImportError, match="cannot import name 'ZINK'"):
        exec("from graphbench.benchmarks.molecules import ZINK")
    with pytest.raises(AttributeError, match=r"No graphbench\.benchmarks\.graphs attribute Graph$"):
        _ = benchmarks.graphs.Graph  # type: ignore[attr-defined]


def test_a_family_is_imported_without_torch():
    code = "import sys, graphbench.benchmarks.molecules, graphbench.benchmarks.graphs; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
