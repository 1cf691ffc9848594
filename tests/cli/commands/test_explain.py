"""graphbench explain, as a chemist types it: tables that add up, drawings, and bad rows named."""

import importlib.util

import pandas as pd
import pytest
import torch
from command_line import SMALL_MODEL
from PIL import Image
from torch_geometric.data import Data

import graphbench
from graphbench.cli import main

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
    most = (rows["prediction"] - rows["without_features"]).abs().max()
    for _, row in rows.iterrows():
        total = sum(table.loc[table["row"] == row["row"], "attribution"].sum() for table in (nodes, edges))
        difference = row["prediction"] - row["without_features"]
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


def test_rows_of_a_split_are_explained_too(finished_run, tmp_path):
    folder = tmp_path / "out"
    assert main(["explain", "--run", str(finished_run), "--split", "val", "--rows", "1", "--output", str(folder)]) == 0
    assert pd.read_csv(folder / "rows.csv")["row"].tolist() == [1]
    assert (folder / "row-1.png").is_file()


def test_bad_rows_and_targets_are_one_line_before_anything_is_written(finished_run, new_file, tmp_path, capsys):
    folder = tmp_path / "out"
    for options, told in (
        (["--rows", "1"], "--rows 1: this row cannot be explained: "),
        (["--rows", "9"], "--rows 9: the input has 4 rows, numbered from 0."),
        (["--rows", "x"], "--rows must be an integer of at least 0, but got 'x'"),
        ([], "--rows is missing"),
        (["--rows", "0", "--target", "lenght"], "No target is called 'lenght'. Did you mean length?"),
        (["--rows", "0", "--steps", "1"], "--steps must be an integer of at least 2"),
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
