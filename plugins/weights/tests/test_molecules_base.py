"""The shipped weights are small and complete, fit the configuration `molecules`, and contain chemical knowledge."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import yaml
from rdkit import RDConfig
from safetensors import safe_open

from graphbench import build
from graphbench.inference.predictor import Predictor
from graphbench.nn import RWSEEncoder
from graphbench.training.starting import load_matching

ROOT = Path(__file__).parents[3]
FILE = ROOT / "plugins" / "weights" / "weights" / "molecules-base.safetensors"


def made(file, **data):
    """Random weights and data of the configuration `molecules` for a file."""
    options = yaml.safe_load((ROOT / "configs" / "molecules.yaml").read_text())["model"]["architecture"]["init_args"]
    encoders = [RWSEEncoder(**one["init_args"]) for one in options["positional_encoders"]]
    torch.manual_seed(0)
    return build(
        "GPS", "Molecules", model_options=options | {"positional_encoders": encoders},
        data_options={"file": str(file), **data},
    )  # fmt: skip


@pytest.fixture
def published():
    """SMILES of 400 molecules of the NCI database and their polar surfaces, computed by others; RDKit ships both."""
    with (Path(RDConfig.RDDataDir) / "NCI" / "first_5k.tpsa.csv").open() as file:
        rows = list(csv.reader(line for line in file if not line.startswith("#")))[:400]
    return [row[0] for row in rows], np.array([float(row[1]) for row in rows])


@pytest.fixture
def own_file(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("smiles,a,b\n" + "".join(f"{'C' * n}O,{n},{-n}\n" for n in range(1, 31)))
    return path


def test_the_file_is_small_and_every_number_finite():
    assert FILE.stat().st_size < 8e6
    with safe_open(str(FILE), framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    assert all(name.startswith("architecture.") for name in tensors)
    assert {value.dtype for value in tensors.values()} == {torch.float16, torch.int64}
    assert all(value.isfinite().all() for value in tensors.values())


@pytest.mark.parametrize(
    "data",
    [{"target": "a"}, {"target": ["a", "b"], "chirality": "RDKit", "descriptors": "morgan"}],
    ids=["one target", "others"],
)
def test_all_of_the_architecture_loads_for_any_file_and_nothing_of_the_head(own_file, data):
    module, _ = made(own_file, **data)
    outcome = load_matching(module, FILE)
    assert not outcome["other_shape"]
    assert not outcome["unused"]
    assert {name.partition(".")[0] for name in outcome["missing"]} == {"task"}
    assert set(outcome["loaded"]) == {name for name in module.state_dict() if name.startswith("architecture.")}


def test_a_linear_model_reads_polar_surfaces_of_other_molecules_from_the_representation(own_file, published):
    smiles, surfaces = published
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    errors = {}
    for start in ("random", "pre-trained"):
        module, data = made(own_file, target="a")
        if start == "pre-trained":
            load_matching(module, FILE)
        features = Predictor(module.eval(), data, None, trainer).embed(smiles).filter(like="embedding").to_numpy()
        features = np.column_stack([features, np.ones(len(smiles))])
        read = np.isfinite(features).all(1)  # RDKit refuses some of these molecules
        x, y = features[read], surfaces[read]
        train, test = slice(0, 300), slice(300, None)
        weights = np.linalg.solve(x[train].T @ x[train] + np.eye(x.shape[1]), x[train].T @ y[train])
        errors[start] = np.abs(x[test] @ weights - y[test]).mean()
    assert errors["pre-trained"] < 0.8 * errors["random"]
