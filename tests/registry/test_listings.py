"""graphbench's own classes are registered by standing in the listing of their package, and nothing else is."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path

import pytest
from pytorch_lightning import Callback

from graphbench import registry
from graphbench.contracts import Benchmark, Encoding, PositionalEncoder
from graphbench.registry import listings

ROOT = Path(__file__).parents[2]
CONTRACTS = {"benchmarks": Benchmark, "encodings": (Encoding, PositionalEncoder), "callbacks": Callback}
BASES = {"GraphBenchmark"}  # listed for others to derive from, though Python does not call it abstract


def own(group):
    return {name for name, record in registry.records(group).items() if record.distribution == listings.DISTRIBUTION}


@pytest.mark.parametrize("group", listings.LISTINGS)
def test_every_listed_class_of_the_contract_is_registered(group):
    packages = [importlib.import_module(f"graphbench.{one.package}") for one in listings.LISTINGS[group]]
    listed = {name: getattr(package, name) for package in packages for name in package.__all__}
    classes = {
        name
        for name, found in listed.items()
        if inspect.isclass(found) and issubclass(found, CONTRACTS[group]) and not inspect.isabstract(found)
    }
    assert own(group) == classes - BASES
    for record in map(registry.records(group).get, own(group)):
        assert record.load() is listed[record.name]
        assert record.summary, "its source is found without importing it"


@pytest.mark.parametrize("listing", [one for listing in listings.LISTINGS.values() for one in listing])
def test_what_is_left_out_is_listed(listing):
    listed = set(importlib.import_module(f"graphbench.{listing.package}").__all__)
    assert listing.without <= listed
    assert not listing.without & dict(listing.targets()).keys()


def test_names_of_the_first_release_are_still_there():
    pinned = json.loads((ROOT / "tests" / "moves" / "pinned.json").read_text(encoding="utf-8"))["entry_points"]
    ours = {name for group in listings.LISTINGS for name in own(group)}
    assert {"ZINC", "LapPE", "LapPEEncoder", "ExactResume"} <= ours
    assert ours >= {name for group in listings.LISTINGS for name in pinned[group]} - {
        "FlowSparsity", "LinearTransformerPE",  # of plug-ins
    }  # fmt: skip


def test_what_is_added_is_known_without_installing(tmp_path, monkeypatch):
    """As after an edit of an installation by `pip install -e`, whose metadata stay as they were."""
    stub = tmp_path / "benchmarks" / "__init__.pyi"
    stub.parent.mkdir()
    stub.write_text("from .base import GraphBenchmark as GraphBenchmark\nfrom .rings.odd import OddRings as OddRings\n")
    for package in ("encodings", "nn", "callbacks"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.pyi").write_text("")
    monkeypatch.setattr(listings, "_PACKAGE", tmp_path)
    registry.refresh()
    try:
        assert own("benchmarks") == {"OddRings"}
        assert registry.find("benchmarks", "OddRings").class_path == "graphbench.benchmarks.rings.odd.OddRings"
        assert own("encodings") == own("callbacks") == set()
        assert "GPS" in registry.architectures(), "those of plug-ins stay"
    finally:
        monkeypatch.undo()
        registry.refresh()
    assert "ZINC" in registry.benchmarks()
