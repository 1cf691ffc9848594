"""graphbench explain as a chemist types it: tables that add up, drawings, and errors for bad rows."""

import importlib.util
import json
import shutil

import pandas as pd
import pytest
import torch
from command_line import SMALL_MODEL
from PIL import Image
from rdkit import Chem
from torch_geometric.data import Data

import graphbench
from graphbench.benchmarks.molecules import base
from graphbench.cli import main
from graphbench.cli.options import own_parser

pytestmark = pytest.mark.skipif(not importlib.util.find_spec("captum"), reason="needs the extra explain (captum)")

SMILES = ["CCO", "not a molecule", "c1ccccc1C(=O)N", "C"]


@pytest.fixture(scope="module")
def new_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("new") / "new.csv"
    path.write_text("name,smiles\n" + "".join(f"m{i},{s}\n" for i, s in enumerate(SMILES)))
    return path


@pytest.fixture(scope="module")
def explained(finished_run, new_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("explained") / "out"
    arguments = ["--input", str(new_file), "--rows", "3", "0", "2", "--steps", "100", "--output", str(folder)]
    assert main(["explain", "--run", str(finished_run), *arguments]) == 0
    return folder


def test_scores_of_atoms_and_bonds_add_up_to_the_prediction(finished_run, explained):
    nodes, edges, rows = (pd.read_csv(explained / f"{name}.csv") for name in ("nodes", "edges", "rows"))
    assert rows["row"].tolist() == [3, 0, 2]
    assert rows["smiles"].tolist() == [SMILES[3], SMILES[0], SMILES[2]]
    predicted = graphbench.load(finished_run).predict([SMILES[3], SMILES[0], SMILES[2]])["prediction_length"]
    assert rows["prediction"].to_numpy() == pytest.approx(predicted.to_numpy(), abs=1e-4)
    most = (rows["prediction"] - rows["at_reference"]).abs().max()
    for _, row in rows.iterrows():
        total = sum(table.loc[table["row"] == row["row"], "attribution"].sum() for table in (nodes, edges))
        difference = row["prediction"] - row["at_reference"]
        assert total + row["gap"] == pytest.approx(difference, abs=1e-4)
        assert abs(row["gap"]) < 0.05 * most


def test_every_atom_and_bond_has_a_row(explained):
    nodes, edges = pd.read_csv(explained / "nodes.csv"), pd.read_csv(explained / "edges.csv")
    ethanol = nodes[nodes["row"] == 0]
    assert ethanol["label"].tolist() == ["C0", "C1", "O2"]
    assert ethanol["node"].tolist() == [0, 1, 2]
    assert edges.loc[edges["row"] == 0, ["source", "target"]].to_numpy().tolist() == [[0, 1], [1, 2]]
    assert (nodes["row"] == 3).sum() == 1
    assert (edges["row"] == 3).sum() == 0
    assert (nodes["row"] == 2).sum() == 9
    assert (edges["row"] == 2).sum() == 9


def test_every_row_is_drawn_in_colour(explained):
    for number in (0, 2, 3):
        colours = Image.open(explained / f"row-{number}.png").convert("RGB").getcolors(1 << 20)
        assert sum(count for count, (r, g, b) in colours if max(r, g, b) - min(r, g, b) > 40) > 200


@pytest.fixture(scope="module")
def oxygen_run(molecule_file, tmp_path_factory):
    """Train a model to count oxygen atoms and return the run's folder."""
    folder = tmp_path_factory.mktemp("oxygen")
    smiles = [line.rpartition(",")[0] for line in molecule_file.read_text().splitlines()[1:]]
    counts = [sum(atom.GetSymbol() == "O" for atom in Chem.MolFromSmiles(text).GetAtoms()) for text in smiles]
    rows = "".join(f"{text},{count}\n" for text, count in zip(smiles, counts, strict=True))
    (folder / "oxygen.csv").write_text("smiles,oxygens\n" + rows)
    options = [
        "--data", "Molecules", "--data.file", str(folder / "oxygen.csv"), "--data.target", "oxygens",
        "--data.root", str(folder / "data"), "--data.store", str(folder / "store"), "--data.batch_size", "16",
        "--model.architecture", "GINE", "--model.architecture.hidden_dim", "16", "--model.architecture.num_layers", "2",
        "--model.architecture.dropout", "0", "--model.architecture.norm", "none", "--model.head.pooling", "add",
        "--model.optimizer.lr", "0.01", "--trainer.max_epochs", "40", "--trainer.accelerator", "cpu",
        "--trainer.enable_model_summary", "false", "--run", str(folder / "run"),
    ]  # fmt: skip
    assert main(["fit", *options]) == 0
    return folder / "run"


def test_oxygen_has_the_attribution_in_a_model_that_counts_it_by_every_method(oxygen_run, tmp_path):
    (tmp_path / "new.csv").write_text("smiles\nCC(=O)Oc1ccccc1\nOCCCN\nCCCCCC\n")
    for method in ("integrated_gradients", "masking", "myerson"):
        words = ["explain", "--run", str(oxygen_run), "--input", str(tmp_path / "new.csv"), "--rows", "0", "1", "2"]
        assert main([*words, "--method", method, "--output", str(tmp_path / method)]) == 0
        nodes, rows = pd.read_csv(tmp_path / method / "nodes.csv"), pd.read_csv(tmp_path / method / "rows.csv")
        oxygen = nodes["label"].str.startswith("O")
        assert oxygen.sum() == 3
        assert nodes.loc[oxygen, "attribution"].min() > max(0.3, nodes.loc[~oxygen, "attribution"].max())
        assert (nodes.loc[~oxygen, "attribution"] < 0).mean() > 0.5  # both colours occur
        assert set(rows["method"]) == {method}
        assert set(rows["reference"]) == {"training mean"}
        assert rows["at_reference"].nunique() == 3
        assert ("standard_error" in nodes) == (method == "myerson")
        if method == "myerson":
            assert (nodes["standard_error"] == 0).all()
            assert (pd.read_csv(tmp_path / method / "edges.csv")["row"]).empty
            assert rows["gap"].abs().max() < 1e-4


def test_a_run_that_does_not_keep_the_means_has_them_computed_from_its_data(oxygen_run, tmp_path, capsys):
    old = shutil.copytree(oxygen_run, tmp_path / "old")
    facts = json.loads((old / "training.json").read_text())
    known = {name: facts.pop(name) for name in ("shares", "means")}
    assert known["shares"]
    (old / "training.json").write_text(json.dumps(facts))
    found = []
    for run, told in ((oxygen_run, "which the run stores"), (old, "computing them from its data")):
        words = ["explain", "--run", str(run), "--split", "test", "--rows", "0", "--method", "masking"]
        assert main([*words, "--output", str(tmp_path / f"out-{run.name}")]) == 0
        assert told in capsys.readouterr().err
        found.append(pd.read_csv(tmp_path / f"out-{run.name}" / "nodes.csv"))
    pd.testing.assert_frame_equal(*found)


def test_rows_of_a_split_are_explained_too(finished_run, tmp_path):
    folder = tmp_path / "out"
    assert main(["explain", "--run", str(finished_run), "--split", "val", "--rows", "1", "--output", str(folder)]) == 0
    assert pd.read_csv(folder / "rows.csv")["row"].tolist() == [1]
    assert (folder / "row-1.png").is_file()


def test_only_parts_with_a_chosen_row_are_read(finished_run, tmp_path, monkeypatch):
    (tmp_path / "new.smi").write_text("".join(f"{'C' * (n % 7 + 2)}O\n" for n in range(2_500)))
    read, chunk = [], base.read_chunk
    monkeypatch.setattr(base, "available_cores", lambda: 1)
    monkeypatch.setattr(base, "read_chunk", lambda recipe, job: read.append(len(job[1])) or chunk(recipe, job))
    arguments = ["--input", str(tmp_path / "new.smi"), "--rows", "2048", "2049", "--method", "masking"]
    assert main(["explain", "--run", str(finished_run), *arguments, "--output", str(tmp_path / "why")]) == 0
    assert read == [0, 0, 2_500 - 2_048]
    nodes = pd.read_csv(tmp_path / "why" / "nodes.csv")
    assert nodes["row"].value_counts().to_dict() == {n: n % 7 + 3 for n in (2048, 2049)}


def test_bad_rows_and_targets_are_one_line_before_anything_is_written(finished_run, new_file, tmp_path, capsys):
    folder = tmp_path / "out"
    for options, told in (
        (["--rows", "1"], "--rows 1: this row cannot be explained: "),
        (["--rows", "9"], "--rows 9: the input has 4 rows, numbered from 0."),
        (["--rows", "x"], "--rows must be an integer of at least 0, but got 'x'"),
        ([], "--rows is missing"),
        (["--rows", "0", "--target", "lenght"], "No target is called 'lenght'. Did you mean length?"),
        (["--rows", "0", "--steps", "1"], "--steps must be an integer of at least 2"),
        (["--rows", "0", "--method", "shap"], "--method must be one of integrated_gradients, masking, myerson"),
        (["--rows", "0", "--samples", "9"], "--samples belongs to --method myerson, but the method is integrated_g"),
        (["--rows", "0", "--method", "masking", "--steps", "9"], "--steps belongs to --method integrated_gradients"),
    ):
        arguments = ["--input", str(new_file), *options, "--output", str(folder)]
        assert main(["explain", "--run", str(finished_run), *arguments]) == 1
        assert told in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.slow
def test_one_node_of_a_task_on_nodes(tmp_path, capsys):
    torch.manual_seed(0)
    graphs = [
        Data(x=torch.randint(4, (6, 1)), edge_index=torch.randint(6, (2, 14)), y=torch.arange(6) % 3) for _ in range(12)
    ]
    torch.save(graphs, tmp_path / "graphs.pt")
    run, out = tmp_path / "run", tmp_path / "out"
    options = ["--data", "Graphs", "--data.source", str(tmp_path / "graphs.pt"), "--data.root", str(tmp_path / "data")]
    assert main(["fit", *options, *SMALL_MODEL, "--trainer.max_epochs", "1", "--run", str(run)]) == 0
    words = ["explain", "--run", str(run), "--input", str(tmp_path / "graphs.pt"), "--rows", "1", "4"]
    assert main([*words, "--node", "3", "--target", "2", "--output", str(out)]) == 0
    rows, nodes = pd.read_csv(out / "rows.csv"), pd.read_csv(out / "nodes.csv")
    assert rows[["row", "node"]].to_numpy().tolist() == [[1, 3], [4, 3]]
    assert nodes.groupby("row").size().to_dict() == {1: 6, 4: 6}
    assert (out / "row-4.png").is_file()
    capsys.readouterr()
    for given, said in (
        ([], "name the node to explain"),
        (["--node", "6"], "below 6"),
        (["--node", "x"], "--node must be an integer of at least 0, but got 'x'"),
    ):
        assert main([*words, *given, "--output", str(tmp_path / "no")]) == 1
        assert said in capsys.readouterr().err


def test_rows_that_are_named_one_by_one_are_all_explained():
    options, rest = own_parser("explain").parse_known_args(["--rows", "0", "--rows", "5", "7"])
    assert (options.rows, rest) == (["0", "5", "7"], [])
