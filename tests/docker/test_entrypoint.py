from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from graphbench.cli.commands.new_plugin import write_plugin

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up root")


@pytest.fixture
def notes(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


@pytest.fixture
def workspace(tmp_path):
    for name in ("runs", "data", "store"):
        (tmp_path / name).mkdir(mode=0o755)
    return tmp_path


@pytest.fixture
def started(entrypoint, monkeypatch):
    """Collect the commands that the entry point executes for a user other than root."""
    commands = []
    monkeypatch.setattr(entrypoint, "is_real_root", lambda: False)
    monkeypatch.setattr(entrypoint.os, "execvp", lambda program, arguments: commands.append([program, *arguments]))
    return commands


def listed(path):
    command = [sys.executable, "-m", "graphbench", "list", "architectures", "--json"]
    output = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=True, capture_output=True, text=True)
    return {record["name"]: record for record in json.loads(output.stdout)["architectures"]}


def test_mounted_plugins_are_listed_without_being_installed(entrypoint, notes, tmp_path):
    first, second = write_plugin("first-model", tmp_path), write_plugin("second-model", tmp_path)
    before = sorted(first.rglob("*"))
    found = listed(entrypoint.python_path(f"{first}:{second}:", notes))
    assert {found[name]["distribution"] for name in ("FirstModel", "SecondModel")} == {
        "graphbench-first-model",
        "graphbench-second-model",
    }
    assert found["FirstModel"]["version"] == "0.1.0"
    assert found["FirstModel"]["summary"].startswith("A graph transformer")
    assert sorted(first.rglob("*")) == before  # the folder may be mounted read-only


def test_plugin_without_src_and_version(entrypoint, notes, tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "Flat.Plug-in"\ndynamic = ["version"]\n'
        '[project.entry-points."graphbench.architectures"]\nFlat = "flat:Flat"\n'
    )
    (tmp_path / "flat.py").write_text('class Flat:\n    """A model in one file."""\n')
    record = listed(entrypoint.python_path(str(tmp_path), notes))["Flat"]
    assert (record["distribution"], record["version"], record["summary"]) == (
        "Flat.Plug-in",
        "0",
        "A model in one file.",
    )


def test_python_path_of_the_user_stays(entrypoint, notes, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/mine")
    plugin = write_plugin("first-model", tmp_path)
    assert entrypoint.python_path(str(plugin), notes) == f"{notes}:{plugin / 'src'}:/mine"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "Is it mounted there"),
        ("[project", "pyproject.toml: "),
        ('[project]\nname = "p"\n', "expected a [project] table with a name and entry points"),
        ('[project]\nname = "p"\n[project.entry-points."other.group"]\na = "b:c"\n', "entry points such as"),
        ('[build-system]\nrequires = ["setuptools"]\n', "must be installed"),
    ],
)
def test_folder_that_is_no_usable_plugin(entrypoint, started, tmp_path, monkeypatch, text, expected):
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    monkeypatch.setenv("GRAPHBENCH_PLUGINS", str(tmp_path))
    with pytest.raises(SystemExit) as stopped:
        entrypoint.main(["list"])
    message = str(stopped.value)
    assert str(tmp_path) in message
    assert expected in message
    assert not started


@pytest.mark.parametrize(
    ("arguments", "program"),
    [
        ([], ["graphbench"]),
        (["fit", "--config", "x.yaml"], ["graphbench", "fit", "--config", "x.yaml"]),
        (["test", "--run", "r"], ["graphbench", "test", "--run", "r"]),  # and not the shell's `test`
        (["bash", "-c", "true"], ["bash", "-c", "true"]),
        (["tensorboard", "--logdir", "runs"], ["tensorboard", "--logdir", "runs"]),
    ],
)
def test_arguments_go_to_graphbench_or_a_named_program(entrypoint, started, monkeypatch, arguments, program):
    monkeypatch.delenv("GRAPHBENCH_PLUGINS", raising=False)
    entrypoint.main(arguments)
    assert started == [["tini", "tini", "-s", "--", *program]]


def test_plugin_named_twice(entrypoint, notes, tmp_path):
    plugin = write_plugin("first-model", tmp_path)
    with pytest.raises(entrypoint.UnusablePlugin, match=r"graphbench-first-model .* is named twice"):
        entrypoint.python_path(f"{plugin}:{plugin}", notes)


@needs_root
@pytest.mark.parametrize(
    ("owner", "mode", "becomes", "folder_after"),
    [
        ((0, 0), 0o755, (1000, 1000), (1000, 1000)),  # created by the engine: changes its owner
        ((0, 0), 0o1777, (1000, 1000), (0, 0)),  # from the image: anyone can write
        ((1234, 2345), 0o755, (1234, 2345), (1234, 2345)),  # mounted by a user: runs belong to them
    ],
)
def test_root_is_given_up_for_the_owner_of_the_runs(entrypoint, workspace, root, owner, mode, becomes, folder_after):
    runs = workspace / "runs"
    runs.chmod(mode)
    os.chown(runs, *owner)
    code = (
        f"import os, sys; sys.path.insert(0, {str(root / 'docker')!r}); import entrypoint, pathlib\n"
        f"entrypoint.give_up_root(pathlib.Path({str(workspace)!r}))\n"
        "print(os.getresuid(), os.getresgid(), os.getgroups())\n"
        "os.setuid(0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    uid, gid = becomes
    assert result.stdout == f"{(uid,) * 3} {(gid,) * 3} []\n"
    assert "PermissionError" in result.stderr  # root cannot be regained
    status = runs.stat()
    assert (status.st_uid, status.st_gid) == folder_after


def test_a_rootless_engines_root_stays(entrypoint, monkeypatch, tmp_path):
    uid_map = tmp_path / "uid_map"
    monkeypatch.setattr(entrypoint.os, "geteuid", lambda: 0)
    monkeypatch.setattr(entrypoint, "Path", lambda _: uid_map)
    uid_map.write_text("         0       1000          1\n         1     100000      65536\n")
    assert not entrypoint.is_real_root()
    uid_map.write_text("         0          0 4294967295\n")
    assert entrypoint.is_real_root()


def test_withheld_capabilities_are_explained(entrypoint, started, monkeypatch):
    def refuse(_workspace):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(entrypoint, "is_real_root", lambda: True)
    monkeypatch.setattr(entrypoint, "give_up_root", refuse)
    with pytest.raises(SystemExit, match="--user UID:GID"):
        entrypoint.main(["list"])
    assert not started
