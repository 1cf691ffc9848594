"""Training with weights, testing and predicting on a file as a spreadsheet of another country writes it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import SMALL_MODEL
from quick import slow

from graphbench.cli import main
from graphbench.runs.checkpoints import load_checkpoint


@pytest.fixture(scope="module")
def spreadsheet(molecule_file, tmp_path_factory):
    """Write the molecules with semicolons and decimal commas, a class of one in six molecules, and a weight."""
    rows = ["Name;SMILES;Weight;Kind"]
    for number, line in enumerate(molecule_file.read_text().splitlines()[1:]):
        weight = "0,5" if number % 2 else "1,5"
        rows.append(f"m{number};{line.split(',')[0]};{weight};{int(number % 6 == 0)}")
    rows.append(f"twin;{rows[1].split(';')[1]};1;0")  # of the first row, which has class 1
    path = tmp_path_factory.mktemp("own") / "Assay.csv"
    path.write_text("\n".join(rows))
    return path


@pytest.fixture
def options(spreadsheet):
    folder = spreadsheet.parent
    return [
        "--data", "Molecules", "--data.file", str(spreadsheet), "--data.target", "kind", "--data.task",
        "classification", "--data.num_classes", "2", "--data.id_column", "name", "--data.weight", "weight",
        "--data.store", str(folder / "store"), "--data.batch_size", "16", "--data.num_workers", "0", *SMALL_MODEL,
    ]  # fmt: skip


def test_prepare_counts_the_rows_of_each_target(molecule_file, tmp_path, capsys):
    smiles = [line.split(",")[0] for line in molecule_file.read_text().splitlines()[1:]]
    rows = [f"{text},{number},{'ND' if number % 3 else number}" for number, text in enumerate(smiles)]
    (tmp_path / "assays.csv").write_text("\n".join(["smiles,all,some", *rows]))
    words = ["prepare", "--data", "Molecules", "--data.file", str(tmp_path / "assays.csv"), *SMALL_MODEL]
    assert main([*words, "--data.target", '["all", "some"]', "--data.store", str(tmp_path / "store")]) == 0
    lines = [line.replace("\u2502", " ").split() for line in capsys.readouterr().out.splitlines()]
    counts = {name: [int(cell) for cell in cells] for name, *cells in filter(None, lines) if name in ("all", "some")}
    assert sum(counts["all"]) == len(smiles)
    assert sum(counts["some"]) == len(smiles[::3])


def test_classes_by_name_are_offered_taken_and_answered(molecule_file, tmp_path, capfd):
    rows = [line.split(",")[0] for line in molecule_file.read_text().splitlines()[1:]]
    table = tmp_path / "assay.csv"
    named = [f"{smiles},{'yes' if number % 3 else 'no'}" for number, smiles in enumerate(rows)]
    table.write_text("\n".join(["smiles,active", *named]))
    data = ["--data", "Molecules", "--data.file", str(table), "--data.target", "active"]
    places = ["--data.store", str(tmp_path / "store"), "--run", str(tmp_path / "run")]
    words = ["fit", *data, *SMALL_MODEL, *places, "--trainer.max_epochs", "1"]
    assert main(words) == 1
    hint = capfd.readouterr().err.partition("Classes by name: ")[2].partition(", in the order")[0]
    assert shlex.split(hint) == ["--data.task", "classification", "--data.classes", '["no", "yes"]']
    assert main([*words, *shlex.split(hint)]) == 0
    output = tmp_path / "answers.csv"
    assert main(["predict", "--run", str(tmp_path / "run"), "--input", str(table), "--output", str(output)]) == 0
    frame = pd.read_csv(output, keep_default_na=False)
    likely = frame[["probability_no", "probability_yes"]].astype(float).to_numpy().argmax(1)
    assert frame["prediction_active"].tolist() == [("no", "yes")[number] for number in likely]
    assert main(["predict", "--run", str(tmp_path / "run"), "--output", str(output)]) == 0
    split = pd.read_csv(output)
    assert list(split)[2:] == ["prediction_active", "probability_no", "probability_yes", "target_active"]
    assert set(split["target_active"]) <= {"no", "yes"}


@pytest.mark.parametrize("weights", ["balanced", slow("[1, 5]")])
def test_trains_with_weights_and_answers_the_same_kind_of_file(options, spreadsheet, tmp_path, capfd, weights):
    run = tmp_path / "run"
    words = ["fit", *options, "--model.class_weights", weights, "--trainer.max_epochs", "1", "--run", str(run)]
    assert main(words) == 0
    said = capfd.readouterr().err
    if "reading the data" in said:  # the first of the two runs
        assert said.count("cells are separated by semicolons") == 1
        assert "numbers have decimal commas" in said
        assert "1 molecule is there more than once, in 2 rows; 1 of them with different targets" in said
    assert main(["test", "--run", str(run), "--trainer.accelerator", "cpu"]) == 0
    assert set(json.loads((run / "results.json").read_text())["test"]) >= {"test/accuracy", "test/AUROC", "test/loss"}
    found = load_checkpoint(run / "checkpoints" / "best.ckpt")["state_dict"]["task.class_weights"]
    ratio = 5.0 if weights == "[1, 5]" else None
    assert found[1] > 3 * found[0]
    assert ratio is None or float(found[1] / found[0]) == pytest.approx(ratio)
    output = tmp_path / "predicted.csv"
    assert main(["predict", "--run", str(run), "--input", str(spreadsheet), "--output", str(output)]) == 0
    frame = pd.read_csv(output)
    assert list(frame.columns[:4]) == ["Name", "SMILES", "Weight", "Kind"]
    assert len(frame) == 121
    assert frame["probability_1"].between(0, 1).all()


def test_a_balanced_loss_is_that_of_its_definition(options, tmp_path):
    """Weights of classes times those of rows have mean 1 over the training split, and scikit-learn's ratio."""
    from graphbench.benchmarks.molecules.own_file import Molecules

    picked = dict(zip(options[::2], options[1::2], strict=True))
    data = Molecules(picked["--data.file"], "kind", "classification", 2, weight="WEIGHT", store=picked["--data.store"])
    data.setup()
    columns = data.tables["train"].columns
    y, rows = columns["y"].reshape(-1).long(), columns["weight"].double()
    from sklearn.utils.class_weight import compute_class_weight

    from graphbench.nn.heads import HeadConfig
    from graphbench.training.tasks import build_task

    task = build_task(data.spec, 4, HeadConfig(), class_weights="balanced")
    task.set_class_weights(columns["y"], columns["weight"])
    expected = torch.from_numpy(compute_class_weight("balanced", classes=np.arange(2), y=y.numpy()))
    assert float((task.class_weights.double()[y] * rows).mean()) == pytest.approx(1)
    assert float(task.class_weights[1] / task.class_weights[0]) == pytest.approx(float(expected[1] / expected[0]))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["--data.weight", "wieght"], "Did you mean 'Weight'?"),
        (["--data.weight", "Name"], "weight 'Name' is not a number"),
        (["--data.target", "Kinds"], "Did you mean 'Kind'?"),
        (["--model.class_weights", "[1, 2, 3]"], "class_weights: 3 numbers for the 2 classes."),
        (["--model.class_weights", "fair"], "class_weights"),
        (["--model.label_smoothing", "2"], "label_smoothing must be at least 0 and below 1, but got 2"),
        (["--model.label_smoothing", "some"], "label_smoothing"),
        (["--data.repeats", "once"], "repeats"),
        (["--data.file", "Assay.xls"], "ends in '.xls'"),
    ],
)
def test_what_does_not_fit_is_one_line(options, changed, said, tmp_path, capfd):
    assert main(["fit", *options, *changed, "--run", str(tmp_path / "run")]) == 1
    told = capfd.readouterr().err
    assert said in told
    assert "Traceback" not in told
    assert not Path(tmp_path / "run" / "checkpoints").exists()


def test_files_with_bounds_and_logarithms_go_the_whole_way(molecule_file, tmp_path, monkeypatch, capsys):
    smiles = [line.split(",")[0] for line in molecule_file.read_text().splitlines()[1:]]
    first = [f"{text},{'>' if number % 5 == 0 else ''}{10.0 ** (number % 4)}" for number, text in enumerate(smiles)]
    (tmp_path / "first.csv").write_text("\n".join(["smiles,IC50", *first]))
    second = [f"{text},{number}" for number, text in enumerate(smiles[::2])]
    (tmp_path / "second.csv").write_text("\n".join(["smiles,logS", *second]))
    monkeypatch.chdir(tmp_path)
    data = [
        "--data", "Molecules", "--data.file", "[first.csv,second.csv]", "--data.target", "[IC50,logS]",
        "--data.log10", "IC50", "--data.target_weights", '{"IC50": 3}', "--data.store", str(tmp_path / "store"),
    ]  # fmt: skip
    model = [*SMALL_MODEL, "--model.loss", "IC50=Huber", "--trainer.max_epochs", "1"]
    assert main(["fit", *data, *model, "--run", "run"]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    run = str(tmp_path / "run")
    assert main(["test", "--run", run]) == 0
    assert "log10(IC50), logS" in capsys.readouterr().out
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert {"test/scaled_MAE", "test/MAE/IC50", "test/MAE/logS"} <= set(results["test"])
    output = str(tmp_path / "answers.csv")
    words = ["predict", "--run", run, "--interval", "0.5", "--input", str(tmp_path / "first.csv"), "--output", output]
    assert main(words) == 0
    found = pd.read_csv(output)
    factor = found["IC50_high"] / found["prediction_IC50"]
    np.testing.assert_allclose(found["prediction_IC50"] / found["IC50_low"], factor, rtol=1e-5)
    np.testing.assert_allclose(factor, factor[0], rtol=1e-5)
    weights = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    known = [float(cell.split(",")[1]) for cell in first if ">" not in cell]
    assert np.log10(min(known)) <= float(weights["task.offset"][0]) <= np.log10(max(known))
