"""`graphbench.load` of a run's folder against the output of `graphbench predict`."""

from __future__ import annotations

import shutil

import pandas as pd
import pytest
import torch
from quick import slow
from rdkit import Chem

import graphbench
from graphbench.cli import main
from graphbench.data.files.foreign import load_yaml
from graphbench.errors import BadInput, CorruptData


@pytest.mark.parametrize("task", ["regression", "classification", slow("multilabel")])
def test_answers_are_those_of_the_command(fitted, own_file, tmp_path, task):
    run = fitted(task)
    assert main(["predict", "--run", str(run), "--output", str(tmp_path / "test.csv")]) == 0
    expected = pd.read_csv(tmp_path / "test.csv")
    lines = own_file.read_text().splitlines()
    smiles = [lines[line - 1].split(",")[0] for line in expected["id"]]
    found = graphbench.load(run, accelerator="cpu").predict(smiles)
    assert list(found["smiles"]) == smiles
    names = {
        "regression": ["prediction_value"],
        "classification": ["prediction_kind", *(f"probability_{n}" for n in range(3))],
        "multilabel": [f"{what}_{n}" for what in ("prediction", "probability") for n in ("hot", "cold")],
    }[task]
    for name in names:
        assert found[name].astype(float).to_numpy() == pytest.approx(expected[name].to_numpy(), rel=1e-6, abs=1e-6)
    assert [name for name in expected if name.startswith("pr")] == names, "splits and inputs have the same columns"
    if task == "classification":
        most = expected[[f"probability_{n}" for n in range(3)]].to_numpy().argmax(1)
        assert found["prediction_kind"].tolist() == most.tolist()
    if task == "multilabel":
        assert found["prediction_hot"].tolist() == (expected["probability_hot"] >= 0.5).astype(int).tolist()


def test_a_run_and_its_checkpoint_answer_alike_and_draw_no_random_numbers(fitted, tmp_path):
    run = fitted("regression")
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one = graphbench.load(run, accelerator="cpu", batch_size=2).predict(["CCO", Chem.MolFromSmiles("OCC"), None])
    assert torch.equal(torch.get_rng_state(), state)
    other = graphbench.load(run / "checkpoints" / "best.ckpt", accelerator="cpu").predict("CCO")
    assert one["prediction_value"][0] == pytest.approx(other["prediction_value"][0], rel=1e-6)
    assert one["prediction_value"][0] == pytest.approx(one["prediction_value"][1], rel=1e-6)
    assert one["problem"].tolist() == ["", "", "there is no molecule (None)"]
    assert pd.isna(one["prediction_value"][2])
    assert abs(one["prediction_value"][0] - 105) < 30, "not in the target's units"
    assert one["prediction_value"].dtype == "float32"
    double = shutil.copytree(run, tmp_path / "double")
    text = (run / "config.yaml").read_text()
    (double / "config.yaml").write_text(text.replace("  precision: null\n", "  precision: 64-true\n"))
    assert graphbench.load(double, accelerator="cpu").predict("CCO")["prediction_value"].dtype == "float64"


@pytest.mark.parametrize("run", [3, None, ["runs/mine"]])
def test_what_is_no_path_is_refused(run):
    with pytest.raises(BadInput, match=r"^run must be the folder of a finished fit, as text or path, but got"):
        graphbench.load(run)


def test_what_is_no_run_is_named(fitted, tmp_path):
    run = fitted("regression")
    with pytest.raises(BadInput, match=r"not the folder of a run: it has no config\.yaml"):
        graphbench.load(tmp_path)
    shutil.copy(run / "checkpoints" / "best.ckpt", tmp_path / "lost.ckpt")
    with pytest.raises(BadInput, match="is not in a run's folder"):
        graphbench.load(tmp_path / "lost.ckpt")
    shutil.copy(run / "config.yaml", tmp_path / "config.yaml")
    with pytest.raises(BadInput, match="There is no checkpoint"):
        graphbench.load(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    shutil.copy(run / "checkpoints" / "best.ckpt", tmp_path / "checkpoints" / "best.ckpt")
    text = (run / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(text.replace("hidden_dim: 16", "hidden_dim: 32"))
    with pytest.raises(BadInput, match=r"best\.ckpt: .* do not fit"):
        graphbench.load(tmp_path)
    (tmp_path / "config.yaml").write_text(text.replace("hidden_dim: 16", "hidden_width: 16"))
    with pytest.raises(BadInput, match=r"cannot be built from its config\.yaml"):
        graphbench.load(tmp_path)
    (tmp_path / "config.yaml").write_text("model: 3\n")
    with pytest.raises(CorruptData, match="not the configuration of a run"):
        graphbench.load(tmp_path)
    with pytest.raises(BadInput, match="accelerator='abacus'"):
        graphbench.load(run, accelerator="abacus")


@pytest.mark.parametrize("command", ["load", "predict", slow("predict --split test"), slow("validate"), slow("test")])
def test_another_model_than_was_trained_is_told_of_once(fitted, own_file, tmp_path, capsys, command):
    run = shutil.copytree(fitted("regression"), tmp_path / "run")
    pooling = load_yaml((run / "config.yaml").read_text())["model"]["head"]["pooling"]
    other = "mean" if pooling != "mean" else "max"

    def told(*options):
        capsys.readouterr()
        name, *words = command.split()
        if name == "load":
            if options:
                text = (run / "config.yaml").read_text()
                (run / "config.yaml").write_text(text.replace(f"pooling: {pooling}", f"pooling: {other}"))
            graphbench.load(run, accelerator="cpu")
        else:
            words += ["--input", str(own_file)] if command == "predict" else []
            words += ["--output", str(tmp_path / f"{len(options)}.csv")] if name == "predict" else []
            assert main([name, "--run", str(run), *words, *options]) == 0
        return [line for line in capsys.readouterr().err.splitlines() if "other options" in line]

    assert told() == []
    (line,) = told("--model.head.pooling", other)
    assert f'model.head.pooling is "{other}" instead of "{pooling}"' in line
