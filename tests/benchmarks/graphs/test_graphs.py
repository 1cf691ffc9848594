"""`Graphs` on the command line: every command for graphs, nodes and pairs, and a run that was moved."""

from __future__ import annotations

import json
import shutil
import sys

import pandas as pd
import pytest
import torch
from command_line import SMALL_MODEL
from own_graphs import make_graphs, write_tu
from quick import slow

from graphbench.cli import main
from graphbench.runs import RunFolder

SHORT = [*SMALL_MODEL, "--trainer.max_epochs", "1"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with the same graphs in users' formats, and with TU files."""
    folder = tmp_path_factory.mktemp("mine")
    graphs = make_graphs()
    torch.save(graphs, folder / "mine.pt")
    write_tu(folder / "data" / "TUDataset" / "DS" / "raw", "DS")
    lines = [
        {"num_nodes": graph.num_nodes, "edges": graph.edge_index.t()[: graph.num_nodes].tolist(), "links": [[0, 2]]}
        for graph in graphs
    ]
    (folder / "links.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


@pytest.mark.parametrize(
    ("source", "options", "metric", "columns"),
    [
        ("TUDataset:DS", [], "accuracy", ["id", "prediction_class", "probability_1", "target_class"]),
        slow("mine.pt", ["--data.target", "[energy, several]"], "scaled_MAE", ["id", "prediction_0", "target_0"]),
        slow(
            "mine.pt",
            ["--data.target", "role"],
            "accuracy",
            ["id", "node", "prediction_class", "probability_0", "target_class"],
        ),
        slow("links.jsonl", [], "MRR", ["id", "head", "tail", "prediction_link", "target_link"]),
    ],
    ids=["graphs by class", "graphs by number", "nodes", "links"],
)
def test_fit_test_predict_and_params(place, tmp_path, monkeypatch, capsys, source, options, metric, columns):
    monkeypatch.chdir(place)
    data = ["--data", "Graphs", "--data.source", source, *options, "--data.store", str(tmp_path / "store")]
    assert main(["prepare", *data, *SMALL_MODEL]) == 0
    run = RunFolder(tmp_path / "run")
    assert main(["fit", *data, *SHORT, "--run", str(run.path)]) == 0
    assert main(["params", "--run", str(run.path), "--json"]) == 0
    counted = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert main(["test", "--run", str(run.path)]) == 0
    results = run.read_results()
    assert counted["parameters"] == results["parameters"]
    assert results["metric"] == metric
    assert f"test/{metric}" in results["test"]
    assert main(["predict", "--run", str(run.path), "--split", "val"]) == 0
    frame = pd.read_csv(run.path / "predictions-val.csv")
    assert [name for name in columns if name not in frame] == []
    if metric == "MRR":  # the report reads runs of every kind in the same way
        assert main(["report", str(run.path), "--output", str(tmp_path / "report")]) == 0


@pytest.mark.slow
def test_predicted_nodes_are_those_of_the_split(place, tmp_path, monkeypatch):
    monkeypatch.chdir(place)
    data = [
        "--data",
        "Graphs",
        "--data.source",
        "mine.pt",
        "--data.target",
        "role",
        "--data.store",
        str(tmp_path / "s"),
    ]
    assert main(["fit", *data, *SHORT, "--run", str(tmp_path / "run")]) == 0
    assert main(["predict", "--run", str(tmp_path / "run"), "--output", str(tmp_path / "out.csv")]) == 0
    frame, graphs = pd.read_csv(tmp_path / "out.csv"), make_graphs()
    for number, rows in frame.groupby("id"):
        assert rows["node"].tolist() == list(range(graphs[number].num_nodes))
        assert rows["target_class"].tolist() == graphs[number].role.tolist()


@pytest.mark.slow
def test_a_moved_run_is_tested_again(place, tmp_path, monkeypatch, capsys):
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    shutil.copy(place / "mine.pt", before)
    monkeypatch.chdir(before)
    data = ["--data", "Graphs", "--data.source", "mine.pt", "--data.target", "energy"]
    assert main(["fit", *data, *SHORT, "--run", "run"]) == 0
    assert main(["test", "--run", "run"]) == 0
    first = RunFolder(before / "run").read_results()["test"]
    monkeypatch.chdir(tmp_path)  # data are found in the folder where the fit started, not in the current one
    assert main(["test", "--run", "before/run"]) == 0
    shutil.move(before, after)
    shutil.rmtree(after / "data")
    monkeypatch.chdir(after)
    assert main(["test", "--run", "run"]) == 0
    assert RunFolder(after / "run").read_results()["test"] == first
    torch.save(make_graphs(seed=1), after / "mine.pt")
    assert main(["test", "--run", "run"]) != 0
    assert "The data are not those" in capsys.readouterr().err


def test_new_graphs_are_predicted(place, tmp_path, monkeypatch):
    monkeypatch.chdir(place)
    data = [
        "--data",
        "Graphs",
        "--data.source",
        "mine.pt",
        "--data.target",
        "energy",
        "--data.store",
        str(tmp_path / "s"),
    ]
    assert main(["fit", *data, *SHORT, "--run", str(tmp_path / "run")]) == 0
    new = make_graphs(6, seed=3)
    torch.save(new, tmp_path / "new.pt")
    options = ["--input", str(tmp_path / "new.pt"), "--output", str(tmp_path / "out.csv")]
    assert main(["predict", "--run", str(tmp_path / "run"), *options]) == 0
    frame = pd.read_csv(tmp_path / "out.csv")
    assert frame["id"].tolist() == list(range(6))
    assert frame["prediction_energy"].notna().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data.source", "mine.pt", "--data.target", "enrgy"], "'enrgy'. Did you mean energy"),
        (["--data.source", "absent.pt"], "--data.source absent.pt: there is no such file"),
        (
            ["--data.source", "mine.pt", "--data.split", "scaffold"],
            "split must be one of given, random, stratified, k-fold, groups, but got 'scaffold'",
        ),
        (["--data.source", "TUDataset:DS", "--data.target", "z"], "target column of TUDataset:DS is called 'z'"),
    ],
)
def test_wrong_options_are_one_message(place, tmp_path, monkeypatch, capsys, options, message):
    monkeypatch.chdir(place)
    command = [
        "fit",
        "--data",
        "Graphs",
        *options,
        "--data.store",
        str(tmp_path),
        *SHORT,
        "--run",
        str(tmp_path / "run"),
    ]
    assert main(command) == 1
    told = capsys.readouterr().err
    assert message in told
    assert "Traceback" not in told
    assert not (tmp_path / "run").exists()


FUNCTION = """
import torch
from torch_geometric.data import Data

def load():
    edges = torch.tensor([[0, 1], [1, 0]])
    return [Data(x=torch.tensor([[n % 2], [0]]), edge_index=edges, y=float(n)) for n in range(20)]
"""


def test_the_function_of_a_run_that_was_sent_runs_only_when_trusted(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "their_graphs.py").write_text(FUNCTION)
    data = ["--data", "Graphs", "--data.source", "their_graphs:load", "--data.store", str(tmp_path / "store")]
    assert main(["fit", *data, *SHORT, "--run", "run"]) == 0
    assert main(["test", "--run", "run"]) == 0, "a user's own run"
    shutil.move("run", "sent")
    capsys.readouterr()
    assert main(["test", "--run", "sent"]) == 1
    assert "names their_graphs.load" in capsys.readouterr().err
    assert main(["test", "--run", "sent", "--trust"]) == 0
