"""`graphbench embed`, held against the hidden states that the trained model makes and what its head does with them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import graphbench
from graphbench.cli import main


def embedded(run, output, *options):
    assert main(["embed", "--run", str(run), "--output", str(output), *options]) == 0
    return pd.read_parquet(output) if output.suffix == ".parquet" else pd.read_csv(output)


def values(frame):
    return frame[[name for name in frame if name.startswith("embedding_")]].to_numpy(dtype=np.float32, copy=True)


def test_the_head_of_the_model_makes_the_predictions_of_them(finished_run, tmp_path):
    frame = embedded(finished_run, tmp_path / "graphs.parquet")
    assert main(["predict", "--run", str(finished_run), "--output", str(tmp_path / "test.csv")]) == 0
    expected = pd.read_csv(tmp_path / "test.csv")
    assert frame["id"].astype(int).tolist() == expected["id"].tolist()
    task = graphbench.load(finished_run, accelerator="cpu").module.task
    with torch.no_grad():
        head = task.head.mlp(torch.from_numpy(values(frame)))[:, 0] * task.scale + task.offset
    assert head.numpy() == pytest.approx(expected["prediction"].to_numpy(), rel=1e-5)


def test_nodes_average_to_their_graph_and_inputs_to_those_of_the_split(finished_run, molecule_file, tmp_path):
    graphs = embedded(finished_run, tmp_path / "graphs.parquet", "--split", "val")
    nodes = embedded(finished_run, tmp_path / "nodes.csv", "--split", "val", "--level", "node")
    assert (nodes["problem"].isna()).all()
    means = nodes.groupby("id", sort=False)[[n for n in nodes if n.startswith("embedding_")]].mean()
    assert means.to_numpy() == pytest.approx(values(graphs), abs=1e-5)
    lines = molecule_file.read_text().splitlines()
    (tmp_path / "new.smi").write_text("".join(lines[int(n) - 1].split(",")[0] + "\n" for n in graphs["id"]) + "C1CC\n")
    new = embedded(finished_run, tmp_path / "new.parquet", "--input", str(tmp_path / "new.smi"))
    assert values(new)[:-1] == pytest.approx(values(graphs), abs=1e-5)
    assert new["problem"].iloc[-1].startswith("RDKit cannot read the molecule")
    assert np.isnan(values(new)[-1]).all()


def test_wrong_requests_are_one_line(finished_run, tmp_path, capsys):
    output = ["--output", str(tmp_path / "e.parquet")]
    for options, said in (
        ([*output, "--level", "edge"], "--level must be one of graph, node"),
        ([], "--output is missing"),
        ([*output, "--split", "holdout"], "--split must be one of train, val, test"),
        ([*output, "--input", "a.smi", "--split", "test"], "exclude each other"),
        ([*output, "--smiles-column", "s"], "--input FILE, which is missing"),
        ([*output, "--input", str(tmp_path / "no.smi")], "there is no such file"),
        ([*output, "--trainer.callbacks+=AttentionMaps"], "--trainer.callbacks: nothing here calls them"),
        ([*output, "--input", "a.smi", "--trainer.callbacks+=AttentionMaps"], "nothing here calls them"),
    ):
        assert main(["embed", "--run", str(finished_run), *options]) == 1
        told = capsys.readouterr().err.strip().splitlines()
        assert len(told) == 1
        assert said in told[0]


def test_other_data_than_those_of_the_fit_are_refused(finished_run, molecule_file, tmp_path, capsys):
    (tmp_path / "other.csv").write_text("".join(molecule_file.read_text().splitlines(keepends=True)[:80]))
    options = ["--data.file", str(tmp_path / "other.csv"), "--output", str(tmp_path / "e.parquet")]
    assert main(["embed", "--run", str(finished_run), *options]) == 1
    assert "The data are not those" in capsys.readouterr().err
    assert main(["embed", "--run", str(finished_run), *options, "--data-changed", "accept"]) == 0
