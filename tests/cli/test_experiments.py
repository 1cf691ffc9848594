"""Every configuration of an experiment is one that the command line takes, and says what to expect."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from graphbench import registry
from graphbench.cli import main

EXPERIMENTS = Path(__file__).parents[2] / "configs" / "experiments"
#: Configurations that name data, model and trainer; the others are laid over one of these.
WHOLE = sorted(path for path in EXPERIMENTS.glob("*/*.yaml") if "data" in yaml.safe_load(path.read_text()))


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_experiment_is_understood(path, capsys):
    data = yaml.safe_load(path.read_text())["data"]["class_path"]
    assert data in registry.benchmarks(), f"{path.name} names the benchmark {data}"
    assert main(["params", "--config", str(path)]) == 0
    assert "total" in capsys.readouterr().out


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_experiment_says_what_to_expect_in_its_first_lines(path):
    head = path.read_text().partition("seed_everything")[0].lower()
    assert any(word in head for word in ("expected", "published", "no published", "figure", "pre-train")), head
