"""`graphbench test`, `validate` and `predict` of a finished run, held against each other and against NumPy."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from own_graphs import make_graphs
from rich.console import Console
from sklearn.metrics import accuracy_score, mean_absolute_error, roc_auc_score, root_mean_squared_error

from graphbench.cli import console, main
from graphbench.cli.split_predictions import KeepPredictions

TREES = ("random forest", "gradient boosting")


def test_test_reproduces_the_stored_validation_score_exactly(finished_run, caplog):
    stored = json.loads((finished_run / "results.json").read_text())["val"]
    assert main(["test", "--run", str(finished_run)]) == 0
    results = json.loads((finished_run / "results.json").read_text())
    assert results["val"] == stored
    assert set(results["test"]) == {"test/loss", "test/MAE", "test/RMSE"}
    assert (finished_run / "report.html").is_file()


def test_many_scores_get_a_row_each_and_none_is_cut(finished_run, tmp_path, capsys):
    run = shutil.copytree(finished_run, tmp_path / "run")
    metrics = ["R2", "Pearson", "Spearman", "MSE", "explained_variance"]
    assert main(["test", "--run", str(run), "--model.metrics", json.dumps(metrics)]) == 0
    results = json.loads((run / "results.json").read_text())
    shown = capsys.readouterr().out
    assert "…" not in shown
    rows = {line[1].strip(): line[2].strip() for line in (line.split("│") for line in shown.splitlines()) if line[1:]}
    expected = {key.replace("/", " "): f"{value:#.4g}" for key, value in results["test"].items() if key != "test/loss"}
    assert len(expected) == 2 + len(metrics)
    assert expected.items() <= rows.items()
    assert {name.replace("test", "val") for name in expected} <= rows.keys()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_rows_and_columns_change_places_where_a_line_is_too_short(width, monkeypatch, capsys):
    monkeypatch.setattr(console, "console", lambda: Console(width=width, highlight=False))
    header = ["model", *(f"{split} some_metric_{number}" for split in ("val", "test") for number in range(4))]
    rows = [["Mine", *(f"{number}.1234" for number in range(8))], ["median", *["-"] * 8]]
    console.show_table("scores", header, rows, corner="score")
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")]
    wide = width == 200
    assert lines == (rows if wide else [list(line) for line in zip(header, *rows, strict=True)][1:])
    assert ("score" in shown.split("\n")[2]) == (not wide)
    console.show_table("scores", header, rows)
    assert "…" not in capsys.readouterr().out


def test_predictions_give_the_test_score(finished_run, tmp_path):
    main(["test", "--run", str(finished_run)])
    results = json.loads((finished_run / "results.json").read_text())["test"]
    for name in ("p.csv", "p.parquet"):
        assert main(["predict", "--run", str(finished_run), "--output", str(tmp_path / name)]) == 0
    table = pd.read_csv(tmp_path / "p.csv")
    assert list(table.columns) == ["id", "smiles", "prediction", "target"]
    assert len(table) == 12
    error = (table["prediction"] - table["target"]).to_numpy()
    assert np.abs(error).mean() == pytest.approx(results["test/MAE"], rel=1e-5)
    assert np.sqrt((error**2).mean()) == pytest.approx(results["test/RMSE"], rel=1e-5)
    columnar = pd.read_parquet(tmp_path / "p.parquet")
    assert columnar["prediction"].to_numpy() == pytest.approx(table["prediction"].to_numpy(), rel=1e-5)


def test_test_keeps_what_it_predicted(finished_run, tmp_path):
    run = shutil.copytree(finished_run, tmp_path / "run")
    assert main(["test", "--run", str(run)]) == 0
    results = json.loads((run / "results.json").read_text())
    for split in ("val", "test"):
        kept = pd.read_csv(run / f"predictions-{split}.csv")
        assert mean_absolute_error(kept["target"], kept["prediction"]) == pytest.approx(results[split][f"{split}/MAE"])
        assert main(["predict", "--run", str(run), "--split", split, "--output", str(tmp_path / "p.csv")]) == 0
        pd.testing.assert_frame_equal(kept, pd.read_csv(tmp_path / "p.csv"))


def test_intervals_stay_until_the_weights_change(finished_run, tmp_path):
    run = shutil.copytree(finished_run, tmp_path / "run")
    predictions = run / "predictions-test.csv"
    assert main(["predict", "--run", str(run), "--interval", "0.5"]) == 0
    before = predictions.read_bytes()
    assert b"_low" in before
    assert main(["test", "--run", str(run)]) == 0
    assert predictions.read_bytes() == before
    later = predictions.stat().st_mtime + 10
    os.utime(run / "checkpoints" / "best.ckpt", (later, later))
    assert main(["test", "--run", str(run)]) == 0
    assert b"_low" not in predictions.read_bytes()
    assert "intervals" not in json.loads((run / "results.json").read_text())


def test_a_process_without_a_batch_of_a_split_takes_part(monkeypatch):
    """A split of one graph on two processes: the second has nothing to give, and must gather all the same."""
    batch = {"graph": torch.tensor([0]), "prediction": torch.zeros(1, 1)}
    gathered = []

    def gather(parts, own):
        gathered.append(own)
        parts[:] = [[batch], own]

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    monkeypatch.setattr(
        "graphbench.cli.split_predictions.table", lambda data, columns, split: columns["graph"].tolist()
    )
    assert KeepPredictions().tables(None, ["val", "test"], 2) == {"val": [0], "test": [0]}
    assert gathered == [[], []]
    assert KeepPredictions().tables(None, ["test"], 1) == {}


def test_too_many_predictions_are_not_kept(finished_run, tmp_path, monkeypatch):
    run = shutil.copytree(finished_run, tmp_path / "run", ignore=shutil.ignore_patterns("predictions-*"))
    monkeypatch.setattr("graphbench.cli.commands.score.KeepPredictions", partial(KeepPredictions, most=30))
    assert main(["test", "--run", str(run)]) == 0
    assert not list(run.glob("predictions-*"))


def test_batch_size_does_not_change_a_score(finished_run, tmp_path):
    tables = []
    for size in ("1", "50"):
        path = tmp_path / f"{size}.csv"
        assert main(["predict", "--run", str(finished_run), "--data.eval_batch_size", size, "--output", str(path)]) == 0
        tables.append(pd.read_csv(path))
    assert list(tables[0]["id"]) == list(tables[1]["id"])
    assert tables[0]["prediction"].to_numpy() == pytest.approx(tables[1]["prediction"].to_numpy(), abs=1e-4)


def test_any_split_can_be_predicted_and_others_are_refused(finished_run, tmp_path, capsys):
    assert main(["predict", "--run", str(finished_run), "--split", "train", "--output", str(tmp_path / "t.csv")]) == 0
    assert len(pd.read_csv(tmp_path / "t.csv")) == 96
    assert main(["predict", "--run", str(finished_run), "--split", "holdout"]) == 1
    assert "must be one of train, val, test" in capsys.readouterr().err
    assert main(["predict", "--run", str(finished_run), "--output", "p.xlsx"]) == 1
    assert ".csv or .parquet" in capsys.readouterr().err


def test_a_run_without_checkpoint_says_so(finished_run, tmp_path, capsys):
    (tmp_path / "config.yaml").write_text((finished_run / "config.yaml").read_text())
    assert main(["test", "--run", str(tmp_path)]) == 1
    assert "There is no checkpoint" in capsys.readouterr().err


def test_a_truncated_checkpoint_is_named(finished_run, tmp_path, capsys):
    torn = tmp_path / "torn.ckpt"
    whole = (finished_run / "checkpoints" / "best.ckpt").read_bytes()
    torn.write_bytes(whole[: len(whole) // 2])
    assert main(["test", "--run", str(finished_run), "--checkpoint", str(torn)]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_scores_stand_beside_what_the_configuration_expects(finished_run, capsys):
    """The stored length says whether the run is a full one; another checkpoint than the run's own has none."""
    expected = ["--expected.metric", "test/MAE", "--expected.value", "9.5", "--expected.sd", "1.5"]
    assert main(["test", "--run", str(finished_run), *expected, "--expected.epochs", "3"]) == 0
    score = json.loads((finished_run / "results.json").read_text())["test"]["test/MAE"]
    stored = json.loads((finished_run / "results.json").read_text())["expected"]
    assert stored["obtained"] == score
    assert stored["better"] == pytest.approx(9.5 - score)
    out = capsys.readouterr().out
    assert f"test/MAE {score:.4f}, expected 9.5000 ± 1.5000: {stored['verdict']}." in out
    row = next(line for line in out.splitlines() if line.startswith("│ expected"))
    assert [cell.strip() for cell in row.split("│")[2:-1]] == ["-", "-", "9.5000 ± 1.5000", "-", "-"]
    assert "Beside what the configuration expects" in (finished_run / "report.html").read_text()
    options = [*expected, "--expected.epochs", "200", "--expected.data", "published"]
    assert main(["test", "--run", str(finished_run), *options]) == 0
    assert "not comparable: 3 of 200 epochs; local data where published ones are expected." in capsys.readouterr().out
    last = str(finished_run / "checkpoints" / "last.ckpt")
    assert main(["test", "--run", str(finished_run), "--checkpoint", last, *options]) == 0
    assert "the number of epochs is not recorded, 200 are expected" in capsys.readouterr().out
    assert main(["test", "--run", str(finished_run)]) == 0
    assert "expected" not in json.loads((finished_run / "results.json").read_text())


MODEL = [
    "--model.architecture", "GPS",
    "--model.architecture.hidden_dim", "8",
    "--model.architecture.num_layers", "1",
    "--trainer.accelerator", "cpu",
    "--trainer.max_epochs", "1",
]  # fmt: skip


def contents(run, but="external"):
    files = [path for path in run.rglob("*") if path.is_file() and path.parent.name != but and path.suffix != ".html"]
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def score(run, file, *options):
    assert main(["test", "--run", str(run), "--input", str(file), *options]) == 0
    name = options[options.index("--name") + 1] if "--name" in options else file.stem
    return json.loads((run / "external" / f"{name}.json").read_text()), pd.read_csv(run / "external" / f"{name}.csv")


def predicted(run, file, folder):
    assert main(["predict", "--run", str(run), "--input", str(file), "--output", str(folder / "p.csv")]) == 0
    return pd.read_csv(folder / "p.csv")


@pytest.fixture
def run(finished_run, tmp_path):
    return shutil.copytree(finished_run, tmp_path / "run")


@pytest.fixture
def labelled(molecule_file, tmp_path):
    """A file with some molecules of training in other spellings, others, and rows without a label."""
    own = molecule_file.read_text().splitlines()[1:]
    path = tmp_path / "other lab.csv"
    rows = [*own[:6], "CCCCCCCCO,9", "CCCCCCCN,8", "c1ccccc1CCO,11", "CCCCCO,", "CCCCCCO,n/a"]
    path.write_text("smiles,Length\n" + "\n".join(rows) + "\n")
    return path


def test_scores_of_molecules_are_those_by_hand_and_the_run_stays_as_it_is(run, labelled, tmp_path, capsys):
    main(["test", "--run", str(run)])
    before = contents(run)
    stored, table = score(run, labelled, "--name", "lab")
    said = capsys.readouterr()
    assert all(name in said.out for name in ("ridge on Morgan counts", *TREES))
    assert contents(run) == before
    by_hand = predicted(run, labelled, tmp_path)
    known = by_hand[by_hand["Length"].notna()]
    assert stored["scores"]["MAE"] == pytest.approx(mean_absolute_error(known["Length"], known["prediction_length"]))
    rmse = root_mean_squared_error(known["Length"], known["prediction_length"])
    assert stored["scores"]["RMSE"] == pytest.approx(rmse, rel=1e-5)
    assert table["prediction_length"].tolist() == by_hand["prediction_length"].tolist()
    assert (stored["rows"], stored["scored"], stored["unlabelled"], stored["failed"]) == (11, 9, 2, 0)
    assert table["target_length"].tolist()[:9] == known["Length"].tolist()
    assert stored["in_training"] == int(table["in_training"].sum()) > 0
    assert f"{stored['in_training']} are in the training part" in said.err
    page = (run / "report.html").read_text()
    assert "Labelled files beside the splits" in page
    assert ">lab<" in page


def test_baselines_are_fitted_on_the_training_part_alone(run, labelled, data_options):
    from graphbench.benchmarks import Molecules

    names = [option[7:] for option in data_options[2::2]]
    data = Molecules(**{**dict(zip(names, data_options[3::2], strict=True)), "batch_size": 16})
    data.setup()
    mean = float(data.tables["train"].columns["y"].double().mean())
    stored, table = score(run, labelled, "--name", "lab")
    truth = table["target_length"].dropna()
    assert stored["baselines"]["training mean"]["MAE"] == pytest.approx(float((truth - mean).abs().mean()), rel=1e-5)
    assert set(stored["baselines"]) == {"training mean", "ridge on Morgan counts", *TREES}
    trained = set(data.smiles("train"))
    assert table["in_training"].tolist()[:6] == [smiles in trained for smiles in table["smiles"][:6]]
    assert not table["in_training"][6:].any()


def test_a_molecule_is_known_from_training_however_it_is_spelled(run, tmp_path, data_options):
    file = tmp_path / "spelled.csv"
    _, table = score(run, _as_given(run, tmp_path), "--name", "given")
    known = table["smiles"][table["in_training"]].iloc[0]
    from rdkit import Chem

    rng = np.random.default_rng(0)
    molecule = Chem.MolFromSmiles(known)
    order = rng.permutation(molecule.GetNumAtoms()).tolist()
    spelled = Chem.MolToSmiles(Chem.RenumberAtoms(molecule, order), canonical=False)
    file.write_text(f"smiles,length\n{spelled},5\n")
    assert spelled != known
    assert score(run, file)[0]["in_training"] == 1


def _as_given(run, folder):
    config = (run / "config.yaml").read_text()
    source = next(line.split(":", 1)[1].strip() for line in config.splitlines() if line.strip().startswith("file:"))
    return shutil.copy(source, folder / "given.csv") and folder / "given.csv"


def test_rows_that_fail_are_named_or_left_out(run, labelled, capsys):
    labelled.write_text(labelled.read_text() + "CC(,3\nCCCCC,five\n")
    assert main(["test", "--run", str(run), "--input", str(labelled)]) == 1
    said = capsys.readouterr().err
    assert "row 12" in said
    assert "row 13" in said
    assert "--on-error skip" in said
    assert not (run / "external").exists()
    stored, table = score(run, labelled, "--on-error", "skip", "--name", "lab")
    assert (stored["scored"], stored["failed"]) == (9, 2)
    assert table["problem"].notna().sum() == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("smiles,other\nCCCCCO,3\n", "no column 'length'"),
        ("smiles,length\nCCCCCO,\n", "has a label"),
        ("SMI,length\nCCCCCO,3\n", "no column 'smiles'"),
    ],
)
def test_files_without_labels_are_refused_in_one_line(text, said, run, tmp_path, capsys):
    file = tmp_path / "file.csv"
    file.write_text(text)
    assert main(["test", "--run", str(run), "--input", str(file)]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("graphbench:")]
    assert len(lines) == 1
    assert said in lines[0]
    assert not (run / "external").exists()


def test_decimal_commas_are_read_as_in_training(run, tmp_path):
    one, two = tmp_path / "points.csv", tmp_path / "commas.csv"
    one.write_text("smiles,length\nCCCCCO,6.5\nCCCCCN,7\n")
    two.write_text("smiles;length\nCCCCCO;6,5\nCCCCCN;7\n")
    expected = score(run, one)[0]["scores"]
    assert expected == score(run, two)[0]["scores"]
    packed, quoted = tmp_path / "packed.csv.gz", tmp_path / "quoted.csv.gz"
    packed.write_bytes(gzip.compress(two.read_text().encode("utf-16")))
    assert expected == score(run, packed, "--name", "packed")[0]["scores"]
    quoted.write_bytes(gzip.compress(b'smiles,length\nCCCCCO,"6,500"\nCCCCCN,7\n'))  # may as well be thousands
    assert main(["test", "--run", str(run), "--input", str(quoted)]) == 1


def test_a_name_is_taken_again_by_the_same_file_alone(run, labelled, tmp_path, capsys):
    first, _ = score(run, labelled, "--name", "lab")
    assert score(run, labelled, "--name", "lab")[0] == first
    other = tmp_path / "second.csv"
    other.write_text("smiles,length\nCCCCCO,6\n")
    assert main(["test", "--run", str(run), "--input", str(other), "--name", "lab"]) == 1
    assert "--if-exists replace" in capsys.readouterr().err
    assert json.loads((run / "external" / "lab.json").read_text()) == first
    assert score(run, other, "--name", "lab", "--if-exists", "replace")[0]["scored"] == 1


@pytest.mark.parametrize(
    "options", [["--name", "x"], ["--on-error", "skip"], ["--if-exists", "replace"], ["--smiles-column", "x"]]
)
def test_options_about_the_input_need_one(options, finished_run, capsys):
    assert main(["test", "--run", str(finished_run), *options]) == 1
    assert f"{options[0]} belongs to --input" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--name", "../x"], ["--on-error", "go"], ["--if-exists", "resume"]])
def test_values_of_these_options_are_checked(options, finished_run, labelled, capsys):
    assert main(["test", "--run", str(finished_run), "--input", str(labelled), *options]) == 1
    assert re.search(rf"{options[0]}.*{options[1]}", capsys.readouterr().err)


def test_the_model_is_scored_where_its_data_are_gone(run, labelled, capsys, tmp_path):
    expected, _ = score(run, labelled, "--name", "with")
    stored, table = score(run, labelled, "--name", "without", "--data.file", str(tmp_path / "gone.csv"))
    assert stored["scores"] == expected["scores"]
    assert stored["baselines"] == {}
    assert stored["in_training"] is None
    assert "in_training" not in table
    assert "No baselines" in capsys.readouterr().err


def test_a_checkpoint_is_scored_and_nothing_is_recorded(run, labelled, capsys):
    checkpoint = str(run / "checkpoints" / "last.ckpt")
    assert main(["test", "--run", str(run), "--input", str(labelled), "--checkpoint", checkpoint]) == 0
    assert "MAE" in capsys.readouterr().out
    assert not (run / "external").exists()


def test_classes_with_a_missing_label(tmp_path, molecule_file):
    smiles = [line.split(",")[0] for line in molecule_file.read_text().splitlines()[1:61]]
    words = ["odd" if len(text) % 2 else "even" for text in smiles]
    train, other = tmp_path / "train.csv", tmp_path / "other.csv"
    train.write_text("smiles,parity\n" + "".join(f"{s},{w}\n" for s, w in zip(smiles, words, strict=True)))
    words[3] = ""
    other.write_text("smiles,parity\n" + "".join(f"{s},{w}\n" for s, w in zip(smiles, words, strict=True)))
    run = tmp_path / "classes"
    data = ["--data", "Molecules", "--data.file", str(train), "--data.target", "parity", "--data.task",
            "classification", "--data.classes", '["even","odd"]', "--data.root", str(tmp_path / "data")]  # fmt: skip
    assert main(["fit", *data, *MODEL, "--data.metric", "AUROC", "--run", str(run)]) == 0
    stored, table = score(run, other)
    by_hand = predicted(run, other, tmp_path)
    known = by_hand[by_hand["parity"].notna()]
    assert (stored["scored"], stored["unlabelled"]) == (59, 1)
    assert stored["scores"]["accuracy"] == pytest.approx(accuracy_score(known["parity"], known["prediction_parity"]))
    area = roc_auc_score(known["parity"] == "odd", known["probability_odd"])
    assert stored["scores"]["AUROC"] == pytest.approx(area, rel=1e-5)
    assert table["target_parity"].isna().tolist() == by_hand["parity"].isna().tolist()
    assert "logistic regression on Morgan counts" in stored["baselines"]
    assert stored["in_training"] == int(table["in_training"].sum()) - bool(table["in_training"][3]) > 0


@pytest.mark.parametrize("level", ["graph", "node"])
def test_own_graphs_and_nodes(level, tmp_path):
    def write(path, seed, unlabelled=()):
        graphs = make_graphs(30, seed)
        for number, graph in enumerate(graphs):
            column = torch.arange(graph.num_nodes) % 2 if level == "node" else graph.x.float().mean()[None]
            graph.told = column.float() if level == "graph" else column
            if number in unlabelled:
                graph.told = torch.full_like(graph.told, torch.nan if level == "graph" else -1)
        torch.save(graphs, path)
        return path

    train, other = write(tmp_path / "train.pt", 0), write(tmp_path / "other.pt", 1, unlabelled=(2, 5))
    run = tmp_path / "graphs"
    data = ["--data", "Graphs", "--data.source", str(train), "--data.target", "told", "--data.root", str(tmp_path)]
    more = [] if level == "graph" else ["--data.missing", "[-1]", "--data.task", "node-classification"]
    assert main(["fit", *data, *more, *MODEL, "--run", str(run)]) == 0
    before = contents(run)
    stored, table = score(run, other)
    assert contents(run) == before
    by_hand, truth = predicted(run, other, tmp_path), table["target_told" if level == "graph" else "target_class"]
    known = truth.notna()
    if level == "graph":
        error = mean_absolute_error(truth[known], by_hand["prediction_told"][known])
        assert stored["scores"]["MAE"] == pytest.approx(error, rel=1e-5)
        assert truth.isna().to_numpy().nonzero()[0].tolist() == [2, 5]
        assert (stored["scored"], stored["unlabelled"]) == (28, 2)
    else:
        right = accuracy_score(truth[known].astype(int), by_hand["prediction_class"][known])
        assert stored["scores"]["accuracy"] == pytest.approx(right)
        assert stored["scored"] + stored["unlabelled"] == len(by_hand)
    assert stored["baselines"]


def test_a_source_without_the_target_is_refused(tmp_path, capsys):
    graphs = make_graphs(20)
    torch.save(graphs, tmp_path / "train.pt")
    for graph in graphs:
        del graph.y
    torch.save(graphs, tmp_path / "bare.pt")
    data = ["--data", "Graphs", "--data.source", str(tmp_path / "train.pt"), "--data.target", "y", "--data.root",
            str(tmp_path)]  # fmt: skip
    assert main(["fit", *data, *MODEL, "--run", str(tmp_path / "run")]) == 0
    assert main(["test", "--run", str(tmp_path / "run"), "--input", str(tmp_path / "bare.pt")]) == 1
    assert "'y'" in capsys.readouterr().err
