"""Listings of the core against its public names, and of plug-ins against their pyproject.toml."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path

import pytest
import tomllib
from pytorch_lightning import Callback

from graphbench import registry
from graphbench.contracts import Benchmark, Encoding, PositionalEncoder
from graphbench.errors import BadInput, UnknownName
from graphbench.experiments.reproduce import tables
from graphbench.registry import configurations, entry_points, listings, starting_weights
from graphbench.runs import trust

ROOT = Path(__file__).parents[2]
CONTRACTS = {"benchmarks": Benchmark, "encodings": (Encoding, PositionalEncoder), "callbacks": Callback}
BASES = {"GraphBenchmark"}  # a listed base class that Python does not consider abstract


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
    """As after an edit of a `pip install -e` installation, whose metadata stay unchanged."""
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
        assert "GPS" in registry.architectures(), "names of plug-ins stay"
    finally:
        monkeypatch.undo()
        registry.refresh()
    assert "ZINC" in registry.benchmarks()


PROJECTS = sorted((Path(__file__).parents[2] / "plugins").glob("*/pyproject.toml"))


def test_the_listing_is_that_of_the_projects():
    listed = {}
    for path in PROJECTS:
        if path.parent.name == "kernels":  # which registers no names
            continue
        project = tomllib.loads(path.read_text())["project"]
        groups = project["entry-points"]
        listed[project["name"]] = {
            group.removeprefix("graphbench."): " ".join(sorted(names)) for group, names in sorted(groups.items())
        }
    assert listed == listings.PLUGINS, f"PLUGINS should be {listed}"


def test_every_package_is_in_the_extra_all():
    extras = tomllib.loads((PROJECTS[0].parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {word.partition(">")[0] for word in extras["all"]} == listings.PLUGINS.keys() | {"graphbench-kernels"}


@pytest.fixture
def core_alone(monkeypatch):
    """Hide all plug-ins, as if only the wheel of graphbench were installed."""
    found = list(entry_points.metadata.distributions())
    own = [one for one in found if one.metadata["Name"] not in listings.PLUGINS]
    monkeypatch.setattr(listings, "_is_installed", lambda distribution: False)
    monkeypatch.setattr(entry_points.metadata, "distributions", lambda: iter(own))
    registry.refresh()
    yield
    monkeypatch.undo()
    registry.refresh()


@pytest.mark.parametrize("distribution", listings.PLUGINS)
def test_every_name_leads_to_its_package(core_alone, tmp_path, distribution):
    own = f"pip install {distribution} "
    for group, names in listings.PLUGINS[distribution].items():
        for name in names.split():
            if group == "configs":
                with pytest.raises(BadInput, match=own):
                    configurations.find(f"{name}/zinc")
            elif group == "weights":
                with pytest.raises(UnknownName, match=own):
                    starting_weights.find_weights(name)
            elif group == "tables":
                with pytest.raises(UnknownName, match=own):
                    tables.find_table(f"{name}/table-1")
            else:
                with pytest.raises(UnknownName, match=own):
                    registry.find(group, name)
    config = tmp_path / "config.yaml"
    config.write_text(f"model: {{architecture: {{class_path: {distribution.replace('-', '_')}.Model}}}}\n")
    with pytest.raises(BadInput, match=own) as error:
        trust.Policy.of(config).check(f"{distribution.replace('-', '_')}.Model")
    assert "--trust" not in str(error.value)


def test_the_quickstart_of_the_core_says_what_it_needs(core_alone, capsys):
    from graphbench.cli import main

    assert main(["fit", "--config", "quickstart"]) == 1
    said = capsys.readouterr().err.strip()
    assert "pip install graphbench-baselines " in said
    assert "graphbench-lightning[all]" in said


def test_a_name_of_nobody_leads_to_no_package(core_alone):
    with pytest.raises(UnknownName, match="pip install NAME"):
        registry.find("architectures", "Nobodys")
