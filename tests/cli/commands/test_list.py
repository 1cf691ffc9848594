"""`graphbench list` shows what is installed without importing it."""

from __future__ import annotations

import json
import sys
from textwrap import dedent

import pytest

from graphbench import registry
from graphbench.cli import main

MODULE = """
    from graphbench import Architecture, Benchmark, BenchmarkSpec, Features

    class Shapes(Benchmark):
        "Graphs of shapes."
        spec = BenchmarkSpec(
            name="Shapes", task="graph-regression", node=Features((28,)), edge=Features((4,)), metric="MAE",
            higher_is_better=False, loss="L1", split_sizes=(10_000, 1_000, 1_000), mean_nodes=23.16, mean_edges=49.8,
            offline=True, disk_mb=3.21, licence="CC-BY-4.0",
        )

    class Made(Benchmark):
        "Graphs that are generated."
        spec = BenchmarkSpec(
            name="Made", task="graph-regression", node=Features((28,)), edge=Features((4,)), metric="MAE",
            higher_is_better=False, loss="L1", split_sizes=(8, 1, 1), mean_nodes=7.25, mean_edges=14.0,
            offline=True, disk_mb=0.5, licence="MIT", source="generated",
        )

    class Sized(Benchmark):
        "Graphs of a size."
        def __init__(self, size: int = 3):
            self.spec = make_spec(size)

    class Net(Architecture):
        "A net on [num_nodes, dim] :smile:."
"""
ENTRY_POINTS = """
    [graphbench.benchmarks]
    Shapes = fake_listed:Shapes
    Made = fake_listed:Made
    Sized = fake_listed:Sized
    [graphbench.architectures]
    Net = fake_listed:Net
    Wrong = fake_listed:Net
    Twice = fake_listed:Net
"""


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """Two fake distributions that share a name; only these are found."""
    (tmp_path / "fake_listed.py").write_text(dedent(MODULE))
    clash = "[graphbench.architectures]\nTwice = other:Net\n"
    for name, text in (("fake-listed", ENTRY_POINTS), ("fake-other", clash)):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(dedent(text))
    only = [distribution for distribution in _distributions() if "fake" in distribution.metadata["Name"]]
    assert only == []
    monkeypatch.syspath_prepend(str(tmp_path))
    found = [distribution for distribution in _distributions() if distribution.metadata["Name"].startswith("fake-")]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: found)
    registry.refresh()
    yield
    monkeypatch.undo()
    sys.modules.pop("fake_listed", None)
    registry.refresh()


def _distributions():
    from importlib.metadata import distributions

    return list(distributions())


def _row(out, name):
    return next(line for line in out.splitlines() if line.startswith(f"{name} "))


@pytest.mark.usefixtures("listed")
def test_benchmarks_show_their_specification(capsys):
    assert main(["list", "benchmarks"]) == 0
    out = capsys.readouterr().out
    assert _row(out, "Shapes").split() == [
        *("Shapes", "graph-regression", "12,000", "23.2", "49.8", "MAE", "↓", "3.2", "MB", "yes", "CC-BY-4.0"),
    ]
    assert _row(out, "Made").split()[2:5] == ["10", "7.2*", "14.0*"]
    assert "* of the graphs that are generated here" in out
    assert _row(out, "Sized").split() == ["Sized", "depends", "on", "options"]
    assert "benchmarks from fake-listed 1.0" in out


@pytest.mark.usefixtures("listed")
def test_all_groups_are_shown_and_summaries_are_verbatim(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert _row(out, "Net").split(maxsplit=1)[1].strip() == "A net on [num_nodes, dim] :smile:."
    assert "callbacks: none installed" in out
    assert "encodings: none installed" in out


@pytest.mark.usefixtures("listed")
def test_clash_is_always_shown(capsys):
    main(["list", "architectures"])
    out = capsys.readouterr().out
    assert "Clash: Twice (architectures) is registered by" in out
    assert "fake-listed 1.0" in out
    assert "fake-other 1.0" in out
    main(["list", "benchmarks"])
    assert "Clash" not in capsys.readouterr().out


@pytest.mark.usefixtures("listed")
def test_check_imports_and_reports_broken_ones(capsys):
    assert main(["list", "architectures", "--check"]) == 1
    out = capsys.readouterr().out
    broken = [line for line in out.splitlines() if line.startswith("Broken:")]
    assert len(broken) == 1
    assert "Wrong, an architecture of fake-listed 1.0" in broken[0]
    assert "the class is called 'Net'" in broken[0]
    main(["list", "architectures"])
    assert "Broken" not in capsys.readouterr().out


@pytest.mark.usefixtures("listed")
def test_json_holds_everything(capsys):
    assert main(["list", "--json", "--check"]) == 1
    listed = json.loads(capsys.readouterr().out)
    assert set(listed) == {*registry.GROUPS, "clashes", "unreadable", "broken"}
    made, shapes, sized = listed["benchmarks"]
    assert made["spec"]["source"] == "generated"
    assert shapes["spec"]["mean_nodes"] == 23.16
    assert shapes["spec"]["node"] == {"vocabularies": [28], "dense": 0, "names": []}
    assert sized["spec"] is None
    assert sized["summary"] == "Graphs of a size."
    assert shapes["target"] == "fake_listed:Shapes"
    assert [entry["name"] for entry in listed["broken"]] == ["Wrong"]
    assert {record["distribution"] for record in listed["clashes"][0]} == {"fake-listed", "fake-other"}


def test_unknown_group_is_refused_with_a_hint(capsys):
    assert main(["list", "benchmark"]) == 1
    assert "Did you mean benchmarks" in capsys.readouterr().err


def test_graphs_that_validate_and_test_are_counted_once():
    from graphbench.benchmarks import ModelNet40

    assert ModelNet40.spec.num_graphs == 12_311
    assert ModelNet40(held_out=843).spec.num_graphs == 12_311
