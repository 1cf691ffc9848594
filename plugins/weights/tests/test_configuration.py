"""The configuration `molecules` with default options on targets other than one number: classes, labels, gaps."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from graphbench.cli import main
from graphbench.runs import RunFolder

RINGS = ("C1CCCCC1", "c1ccccc1", "C1CCNCC1", "c1ccncc1")
SMILES = [f"{'C' * length}{ring}{end}" for length in range(1, 7) for ring in RINGS for end in ("", "F", "O")]


@pytest.fixture
def file(tmp_path):
    """Molecules with a class of fluorine, two labels and two numbers; every third row lacks one of the two."""
    frame = pd.DataFrame({"smiles": SMILES})
    frame["fluorine"] = frame["smiles"].str.contains("F").astype(int)
    frame["nitrogen"] = frame["smiles"].str.contains("[Nn]").astype(float)
    frame["aromatic"] = frame["smiles"].str.contains("c").astype(float)
    frame["carbons"] = frame["smiles"].str.lower().str.count("c").astype(float)
    frame["size"] = frame["smiles"].str.len() / 10
    frame.loc[::3, ["nitrogen", "carbons"]] = np.nan
    frame.loc[1::3, ["aromatic", "size"]] = np.nan
    frame.to_csv(tmp_path / "own.csv", index=False)
    return tmp_path / "own.csv"


def fitted(file, *options):
    """Fit two epochs and test; scores of the validation part, and its predictions."""
    run = file.parent / "run"
    shown = ["--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]
    words = ["--data.file", str(file), "--data.store", str(file.parent / "store"), "--trainer.max_epochs", "2"]
    assert main(["fit", "--config", "molecules", *words, *options, *shown, "--run", str(run)]) == 0
    output = file.parent / "val.csv"
    assert main(["predict", "--run", str(run), "--split", "val", "--output", str(output)]) == 0
    return RunFolder(run).read_results()["val"], pd.read_csv(output)


def test_of_classes_the_loss_is_that_of_their_probabilities(file):
    scores, found = fitted(
        file, "--data.target", "fluorine", "--data.task", "classification", "--data.num_classes", "2"
    )
    probabilities = found[["probability_0", "probability_1"]].to_numpy()
    assert probabilities.sum(1) == pytest.approx(1)
    of_truth = probabilities[range(len(found)), found["target_fluorine"]]
    assert scores["val/loss"] == pytest.approx(-np.log(of_truth).mean(), rel=1e-4)


def test_of_labels_the_loss_is_that_of_the_known_cells(file):
    scores, found = fitted(file, "--data.target", '["nitrogen", "aromatic"]', "--data.task", "multilabel")
    truth = found[["target_nitrogen", "target_aromatic"]].to_numpy()
    told = found[["probability_nitrogen", "probability_aromatic"]].to_numpy()
    losses = -np.log(np.where(truth == 1, told, 1 - told))[np.isfinite(truth)]
    assert 0 < losses.size < truth.size
    assert scores["val/loss"] == pytest.approx(losses.mean(), rel=1e-4)


def test_of_several_numbers_each_is_scored_where_it_is_known(file):
    scores, found = fitted(file, "--data.target", '["carbons", "size"]')
    for name in ("carbons", "size"):
        errors = (found[f"prediction_{name}"] - found[f"target_{name}"]).abs()
        assert 0 < errors.count() < len(errors)
        assert scores[f"val/MAE/{name}"] == pytest.approx(errors.mean(), rel=1e-4)
