"""What is said of the machine and the versions that a run was made with."""

import json
import os
import subprocess

from graphbench.runs import environment
from graphbench.runs.environment import describe_environment


def test_the_environment_names_versions_and_hardware():
    import torch

    described = describe_environment()
    assert described["packages"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert described["cores"] == os.cpu_count()
    json.dumps(described)


def test_a_checkout_is_named_by_its_commit(tmp_path, monkeypatch):
    """An installed package names none, even inside of somebody else's repository."""
    package = tmp_path / "graphbench" / "runs" / "environment.py"
    monkeypatch.setattr(environment, "__file__", str(package))
    package.parent.mkdir(parents=True)
    package.touch()
    assert describe_environment()["commit"] == ""
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm first"):
        subprocess.run(["git", "-C", str(tmp_path), *command.split()], check=True)
    commit = describe_environment()["commit"]
    head = subprocess.run(["git", "-C", str(tmp_path), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    assert head.stdout.startswith(commit)
    assert len(commit) == 12
    package.write_text("changed")
    assert describe_environment()["commit"] == f"{commit}-dirty"
    inside = tmp_path / "site-packages" / "graphbench" / "runs" / "environment.py"
    monkeypatch.setattr(environment, "__file__", str(inside))
    assert describe_environment()["commit"] == ""
