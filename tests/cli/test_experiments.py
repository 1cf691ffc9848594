"""Every configuration of an experiment is one that the command line takes, and says what to expect."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from graphbench import registry
from graphbench.cli import main

EXPERIMENTS = Path(__file__).parents[2] / "configs" / "experiments"
#: Configurations that name data, model and trainer; the others are laid over one of these.
WHOLE = sorted(path for path in EXPERIMENTS.glob("*/*.yaml") if "data" in yaml.safe_load(path.read_text()))
OVERLAYS = sorted(EXPERIMENTS.glob("*/overlays/*.yaml"))
#: What the overlays of a folder go over: the smallest model that takes all of them.
BASES = {
    "deepgraph": "zinc-12",
    "graphormer": "zinc",
    "linear-transformer": "zinc-gt",
    "sat": "zinc",
    "sfi-former": "pattern",
    "sft": "listops",
}
#: Where one goes over another file than the rest.
OTHER_BASES = {
    **{f"deepgraph/walks-{steps}": "cluster-12" for steps in (5, 10, 15)},
    "linear-transformer/short-pretrain": "zinc-pretrain",
}


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_experiment_is_understood(path, capsys):
    if "torch.optim.Muon" in path.read_text() and not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon: from 2.9")
    data = yaml.safe_load(path.read_text())["data"]["class_path"]
    assert data in registry.benchmarks(), f"{path.name} names the benchmark {data}"
    assert main(["params", "--config", str(path)]) == 0
    assert "total" in capsys.readouterr().out


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_experiment_says_what_to_expect_in_its_first_lines(path):
    head = path.read_text().partition("seed_everything")[0].lower()
    assert any(word in head for word in ("expected", "published", "no published", "figure", "pre-train")), head


@pytest.mark.parametrize("path", OVERLAYS, ids=lambda path: f"{path.parts[-3]}/{path.stem}")
def test_overlay_is_understood(path, capsys):
    folder = path.parent.parent
    base = folder / f"{OTHER_BASES.get(f'{folder.name}/{path.stem}', BASES[folder.name])}.yaml"
    assert main(["params", "--config", str(base), "--config", str(path)]) == 0
    assert "total" in capsys.readouterr().out
    assert path.read_text().startswith("# "), "an overlay says in its first line what it changes"
