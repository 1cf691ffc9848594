"""The recorded description of a run's machine and package versions."""

import json
import os
import subprocess

import pytest

from graphbench.runs import environment
from graphbench.runs.environment import describe_environment


def test_the_environment_names_versions_and_hardware():
    import torch

    described = describe_environment()
    assert described["packages"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert described["cores"] == os.cpu_count()
    json.dumps(described)


def commit_all(folder):
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm first"):
        subprocess.run(["git", "-C", str(folder), *command.split()], check=True)


def test_a_checkout_is_named_by_its_commit(tmp_path, monkeypatch):
    """An installed package has no commit, even inside another repository."""
    package = tmp_path / "graphbench" / "runs" / "environment.py"
    monkeypatch.setattr(environment, "_CHECKOUT", tmp_path)
    package.parent.mkdir(parents=True)
    package.touch()
    assert describe_environment()["commit"] == ""
    commit_all(tmp_path)
    commit = describe_environment()["commit"]
    head = subprocess.run(["git", "-C", str(tmp_path), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    assert head.stdout.startswith(commit)
    assert len(commit) == 12
    package.write_text("changed")
    assert describe_environment()["commit"] == f"{commit}-dirty"
    monkeypatch.setattr(environment, "_CHECKOUT", tmp_path / "site-packages")
    assert describe_environment()["commit"] == ""


@pytest.mark.parametrize(
    ("group", "editable", "committed"),
    [("graphbench.architectures", True, True), ("graphbench.configs", False, True), ("graphbench.tasks", True, False)],
)
def test_plug_ins_are_named_with_the_commit_of_their_own_checkout(group, editable, committed, tmp_path, monkeypatch):
    """A wheel has only a version."""
    checkout, installed = tmp_path / "my checkout", tmp_path / "installed"
    record = installed / "graphbench_mine-0.3.dist-info"
    checkout.mkdir()
    record.mkdir(parents=True)
    (checkout / "net.py").touch()
    if committed:
        commit_all(checkout)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: graphbench-mine\nVersion: 0.3\n")
    (record / "entry_points.txt").write_text(f"[{group}]\nMine = mine:Mine\n")
    origin = {"url": checkout.as_uri(), "dir_info": {"editable": editable}}
    (record / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(str(installed))
    version = describe_environment()["packages"]["graphbench-mine"]
    head = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    assert version == (f"0.3 ({head[:12]})" if editable and committed else "0.3")
    if not editable:  # from an index, of which nothing is recorded
        (record / "direct_url.json").unlink()
        assert describe_environment()["packages"]["graphbench-mine"] == "0.3"
    if editable and committed:
        (checkout / "net.py").write_text("changed")
        assert describe_environment()["packages"]["graphbench-mine"].endswith("-dirty)")
