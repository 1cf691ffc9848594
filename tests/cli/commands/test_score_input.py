"""`graphbench test --input`: a labelled file in place of the test split."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from own_graphs import make_graphs
from sklearn.metrics import accuracy_score, mean_absolute_error, roc_auc_score, root_mean_squared_error

from graphbench.cli import main

TREES = ("random forest", "gradient boosting")
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
    """Write a file with six molecules of the run's file, three others, and two rows without a label."""
    own = molecule_file.read_text().splitlines()[1:]
    path = tmp_path / "other lab.csv"
    rows = [*own[:6], "CCCCCCCCO,9", "CCCCCCCN,8", "c1ccccc1CCO,11", "CCCCCO,", "CCCCCCO,n/a"]
    path.write_text("smiles,Length\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.usefixtures("with_report")
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
    assert "Labelled files outside the splits" in page
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
    quoted.write_bytes(gzip.compress(b'smiles,length\nCCCCCO,"6,500"\nCCCCCN,7\n'))  # may be thousands
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
