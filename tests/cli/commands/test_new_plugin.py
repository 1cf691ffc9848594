"""`graphbench new-plugin` writes a distribution that installs, passes its own test and trains."""

from __future__ import annotations

import ast
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml

import graphbench
from graphbench import registry
from graphbench.cli import main
from graphbench.cli.commands.new_plugin import _IMPORTED, Names, write_plugin
from graphbench.errors import BadInput


@pytest.mark.parametrize(
    ("text", "name", "package", "class_name"),
    [
        ("my-model", "my-model", "graphbench_my_model", "MyModel"),
        ("my_model", "my-model", "graphbench_my_model", "MyModel"),
        ("MyModel", "my-model", "graphbench_my_model", "MyModel"),
        ("graphbench-my-model", "my-model", "graphbench_my_model", "MyModel"),
        ("SGFormer", "sg-former", "graphbench_sg_former", "SGFormer"),
        ("gps2", "gps2", "graphbench_gps2", "Gps2"),
        ("net-2d", "net-2d", "graphbench_net_2d", "Net2d"),
    ],
)
def test_spellings_agree(text, name, package, class_name):
    names = Names.parse(text)
    assert (names.name, names.package, names.class_name) == (name, package, class_name)
    assert names.distribution == f"graphbench-{name}"


@pytest.mark.parametrize("text", ["", "2fast", "my model", "my--model", "-my", "my-", "modèle", "../up", "graphbench"])
def test_unusable_name_is_refused(text):
    with pytest.raises(BadInput, match="cannot name a plug-in"):
        Names.parse(text)


@pytest.mark.parametrize("text", ["architecture", "multi-head-attention", "none", "tensor"])
def test_name_that_would_hide_another_is_refused(text):
    with pytest.raises(BadInput, match="would make a class"):
        Names.parse(text)


def test_every_imported_name_is_protected(tmp_path):
    tree = ast.parse((write_plugin("my-model", tmp_path) / "src" / "graphbench_my_model" / "net.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module != "__future__"]
    assert {alias.name for node in imports for alias in node.names} <= {*graphbench.__all__, *_IMPORTED}


def test_command_writes_all_files_and_says_what_is_next(tmp_path, capsys):
    assert main(["new-plugin", "my-model", "--directory", str(tmp_path / "new")]) == 0
    folder = tmp_path / "new" / "graphbench-my-model"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        "README.md",
        "configs/nci.yaml",
        "configs/overlays/deep.yaml",
        "pyproject.toml",
        "src/graphbench_my_model/__init__.py",
        "src/graphbench_my_model/net.py",
        "tests/test_net.py",
    ]
    out = capsys.readouterr().out
    assert f"pip install -e {folder}" in out
    assert "--config my-model/nci" in out
    assert [path.name for path in folder.parent.iterdir()] == ["graphbench-my-model"]


def test_nothing_is_left_to_fill_in(tmp_path):
    for path in write_plugin("my-model", tmp_path).rglob("*.*"):
        assert "$" not in path.read_text()


def test_project_file_registers_the_class(tmp_path):
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((write_plugin("my-model", tmp_path) / "pyproject.toml").read_text())["project"]
    assert project["name"] == "graphbench-my-model"
    assert project["entry-points"] == {
        "graphbench.architectures": {"MyModel": "graphbench_my_model:MyModel"},
        "graphbench.configs": {"my-model": "graphbench_my_model"},
    }
    assert project["dependencies"] == ["graphbench-lightning>=0.1.0,<0.2"]


def test_configuration_names_the_class(tmp_path):
    config = yaml.safe_load((write_plugin("HGFormer", tmp_path) / "configs" / "nci.yaml").read_text())
    assert config["model"]["architecture"]["class_path"] == "HGFormer"
    assert config["data"]["class_path"] == "NCI"


def test_it_has_the_shape_of_our_own_plugins(tmp_path):
    """The same groups of entry points and build settings, and sections of the README in the same order."""
    tomllib = pytest.importorskip("tomllib")
    folder = write_plugin("my-model", tmp_path)
    written = tomllib.loads((folder / "pyproject.toml").read_text())
    sections = _sections(folder)
    assert sections == ["Options", "Expected scores", "Experiments and results", "Departures", "Speed"]
    for ours in sorted((Path(__file__).parents[3] / "plugins").iterdir()):
        if ours.name in ("kernels", "weights"):  # which have no models
            continue
        project = tomllib.loads((ours / "pyproject.toml").read_text())
        package = next((ours / "src").glob("graphbench_*")).name
        wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
        data = {"configs": f"{package}/configs", "tables": f"{package}/tables"}
        assert wheel["packages"] == [f"src/{package}"]
        assert wheel["force-include"] == {name: inside for name, inside in data.items() if (ours / name).is_dir()}
        assert project["project"]["entry-points"].keys() >= written["project"]["entry-points"].keys()
        # Only plug-ins with measurements have the section Speed.
        shared = [section for section in _sections(ours) if section in sections]
        assert shared == sections[: len(shared)], ours.name
        assert len(shared) >= len(sections) - 1, ours.name
        assert {path.name for path in ours.iterdir()} >= {path.name for path in folder.iterdir()}
    package = "graphbench_my_model"
    wheel = written["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": [f"src/{package}"], "force-include": {"configs": f"{package}/configs"}}


def _sections(folder):
    return [line[3:] for line in (folder / "README.md").read_text().splitlines() if line.startswith("## ")]


def test_nothing_is_overwritten(tmp_path, capsys):
    write_plugin("my-model", tmp_path)
    readme = tmp_path / "graphbench-my-model" / "README.md"
    readme.write_text("mine")
    assert main(["new-plugin", "MyModel", "--directory", str(tmp_path)]) == 1
    assert "exists already, and nothing is overwritten" in capsys.readouterr().err
    assert readme.read_text() == "mine"


def test_registered_name_is_refused(tmp_path, monkeypatch):
    record = registry.Record("MyModel", "architectures", "graphbench-other", "1.0", "other:MyModel")
    monkeypatch.setattr(registry, "architectures", lambda: {"MyModel": record})
    with pytest.raises(BadInput, match=r"MyModel is already registered by graphbench-other 1\.0"):
        write_plugin("my-model", tmp_path)
    assert not list(tmp_path.iterdir())


def test_unfinished_folder_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("graphbench.cli.commands.new_plugin._FILES", {"pyproject.toml.tmpl": "a", "gone.tmpl": "b"})
    with pytest.raises(FileNotFoundError):
        write_plugin("my-model", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_written_tests_pass(tmp_path):
    folder = write_plugin("my-model", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "-o", "pythonpath=src"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.slow
def test_installed_plugin_trains_and_scores(tmp_path):
    """In a fresh environment that sees this one's packages but not its scripts: pip install, list, fit, test."""
    folder = write_plugin("my-model", tmp_path)
    python = _fresh_environment(tmp_path / "environment")
    installed = _run(python, "-m", "pip", "install", "--no-deps", str(folder))
    if installed.returncode and "hatchling" in installed.stderr:
        pytest.skip("pip reaches no package index to fetch the build backend from")
    assert installed.returncode == 0, installed.stderr
    assert "MyModel" in _run(python, "-m", "graphbench", "list", "architectures").stdout
    config, run = "my-model/nci", str(tmp_path / "run")
    short = ("--data.root", str(tmp_path / "data"), "--trainer.max_epochs", "1", "--trainer.limit_train_batches", "20")
    fitted = _run(python, "-m", "graphbench", "fit", "--config", config, "--run", run, *short)
    assert fitted.returncode == 0, fitted.stderr
    tested = _run(python, "-m", "graphbench", "test", "--run", run)
    assert tested.returncode == 0, tested.stderr
    assert "MAE" in tested.stdout
    assert "MyModel" not in {entry.name for entry in entry_points(group="graphbench.architectures")}


def _fresh_environment(folder):
    """Create an environment on top of the running one, with editable installs; return its interpreter."""
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    found = _run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    line = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (Path(found.stdout.strip()) / "underneath.pth").write_text(line)
    return python


def _run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
