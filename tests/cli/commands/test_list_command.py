"""`graphbench list` shows what is installed without importing it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

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
LACKING = """
    [graphbench.benchmarks]
    Circles = fake_listed:Circles
    [graphbench.callbacks]
    Watch = fake_gone.watch:Watch
"""


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """Install two fake distributions that share a name, and hide all others."""
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
    assert "graphs that graphbench generates" in out
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
def test_a_class_that_its_module_lacks_is_marked(tmp_path, capsys):
    entries = next(tmp_path.glob("fake-listed*")) / "entry_points.txt"
    entries.write_text(entries.read_text() + dedent(LACKING))
    registry.refresh()
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert _row(out, "Circles").split(maxsplit=1)[1].strip() == "cannot be loaded: fake_listed has no Circles"
    assert _row(out, "Watch").split(maxsplit=1)[1].strip() == "cannot be loaded: there is no module fake_gone.watch"
    assert "cannot be loaded" not in _row(out, "Shapes") + _row(out, "Sized") + _row(out, "Net")
    assert "fake_listed" not in sys.modules or not hasattr(sys.modules["fake_listed"], "Circles")
    main(["list", "--json"])
    listed = json.loads(capsys.readouterr().out)
    faults = {entry["name"]: entry["fault"] for entry in listed["benchmarks"]}
    assert faults == {"Circles": "fake_listed has no Circles", "Made": "", "Shapes": "", "Sized": ""}


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
    assert shapes["spec"]["node"] == {"vocabularies": [28], "dense": 0, "names": [], "words": []}
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


@pytest.fixture(scope="module")
def configs():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "graphbench", "list", "configs", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {entry["name"]: entry for entry in json.loads(done.stdout)["configs"]}, done.stderr


def test_torch_is_not_imported(configs):
    imported = {line.rpartition("|")[2].strip() for line in configs[1].splitlines() if line.startswith("import time:")}
    assert "yaml" in imported
    assert not imported & {"torch", "numpy", "pytorch_lightning", "jsonargparse", "graphbench_baselines"}


def test_json_has_what_a_configuration_expects(configs):
    zinc = configs[0]["gps/zinc"]
    assert (zinc["kind"], zinc["benchmark"], zinc["model"]) == ("recipe", "ZINC", "GPS")
    expected = {name: zinc["expected"][name] for name in ("metric", "value", "sd", "parameters", "epochs", "data")}
    assert expected == {
        "metric": "test/MAE", "value": 0.07, "sd": 0.004, "parameters": 423_717, "epochs": 2000, "data": "published",
    }  # fmt: skip
    deeper = configs[0]["sat/overlays/zinc-x2"]
    assert (deeper["kind"], deeper["over"], deeper["expected"]["parameters"]) == ("overlay", "sat/zinc", 940_417)
    assert configs[0]["model/gcn"]["kind"] == "part"
    assert configs[0]["quickstart"]["expected"]["cost"]


def test_the_table_has_a_line_per_configuration(capsys, configs):
    assert main(["list", "configs"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[2:] if line.strip()}
    assert lines.keys() >= configs[0].keys()
    assert "ZINC" in lines["gps/zinc"]
    assert "test/MAE 0.07 ± 0.004" in lines["gps/zinc"]
    assert "over sat/zinc" in lines["sat/overlays/zinc-x2"]


def test_check_finds_nothing_wrong():
    assert main(["list", "configs", "--check"]) == 0


def test_other_groups_are_named_where_one_is_unknown(capsys):
    assert main(["list", "config"]) == 1
    assert "Did you mean configs" in capsys.readouterr().err


QUICKSTART = Path(__file__).parents[3] / "configs" / "quickstart.yaml"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_is_printed_as_it_is(capsys):
    assert main(["config", "quickstart"]) == 0
    assert capsys.readouterr().out == QUICKSTART.read_text()


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (["--copy"], "quickstart.yaml"),
        (["--copy", "mine/first.yaml"], "mine/first.yaml"),
        (["--copy", "."], "quickstart.yaml"),
    ],
)
def test_it_is_copied(arguments, file, empty_folder, capsys):
    assert main(["config", "quickstart", *arguments]) == 0
    assert (empty_folder / file).read_text() == QUICKSTART.read_text()
    assert f"--config {file}" in capsys.readouterr().out
    assert main(["config", "quickstart", *arguments]) == 1
    assert "exists already, and nothing is overwritten" in capsys.readouterr().err


def test_unknown_names_are_refused_with_near_ones(capsys):
    assert main(["config", "gps/zink"]) == 1
    error = capsys.readouterr().err
    assert "no installed configuration has that name. Did you mean gps/zinc" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", ["fit", "params", "prepare", "profile"])
def test_every_command_refuses_an_unknown_name(command, capsys):
    assert main([command, "--config", "gps/zink"]) == 1
    assert "--config gps/zink: there is no such file" in capsys.readouterr().err


def test_names_and_files_go_over_each_other(empty_folder, capsys):
    (empty_folder / "mine.yaml").write_text("expected: {value: 0.5}\n")
    with pytest.raises(SystemExit, match="0"):
        main(["fit", "--config", "quickstart", "--config=trainer/ddp", "--config", "mine.yaml", "--print_config"])
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["trainer"]["devices"] == 2
    assert config["expected"]["value"] == 0.5
    assert config["expected"]["metric"] == "test/MAE"


def test_an_unknown_key_of_what_is_expected_is_refused_by_name(empty_folder, capsys):
    (empty_folder / "mine.yaml").write_text("expected: {valeu: 0.5}\n")
    assert main(["params", "--config", "quickstart", "--config", "mine.yaml"]) == 1
    assert "expected has no key 'valeu'. Did you mean value?" in capsys.readouterr().err
    assert main(["params", "--config", "quickstart", "--expected.valeu", "1"]) == 1
    assert "valeu" in capsys.readouterr().err
