from __future__ import annotations

import subprocess
import sys

import pytest


def test_the_image_gets_what_the_project_depends_on(root):
    tomllib = pytest.importorskip("tomllib")
    files = [root / "pyproject.toml", *sorted(root.glob("plugins/*/pyproject.toml"))]
    command = [sys.executable, str(root / "docker/requirements.py"), *map(str, files)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    project = tomllib.loads(files[0].read_text())["project"]
    assert set(project["dependencies"]) <= set(printed)
    assert {*project["optional-dependencies"]["zinc"], *project["optional-dependencies"]["excel"]} <= set(printed)
    optional = project["optional-dependencies"]
    tools = set(optional["dev"]) - set(project["dependencies"]).union(optional["excel"])
    assert not tools & set(printed)
    assert not any(line.startswith("graphbench") for line in printed)


def test_own_distributions_are_recognised_in_any_spelling(requirements):
    core = {"name": "graphbench-lightning", "dependencies": ["torch>=2.6"]}
    plugin = {
        "name": "graphbench-x",
        "dependencies": ["Graphbench_Lightning[zinc]>=0.1,<0.2", "einops; python_version > '3'", "torch>=2.6"],
        "optional-dependencies": {"fast": ["faiss-cpu"], "dev": ["pytest"]},
    }
    assert requirements.third_party([core, plugin]) == ["einops; python_version > '3'", "faiss-cpu", "torch>=2.6"]
