"""The commands and code of `docs/predict.md` do what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from command_line import SMALL_MODEL

from graphbench import registry
from graphbench.cli import main

GUIDE = (Path(__file__).parents[2] / "docs" / "predict.md").read_text(encoding="utf-8")
CHAINS = [first + second for first in ("", "C", "O", "N", "CC") for second in ("", "F", "Cl", "CO")]
SMILES = [ring + chain for chain in CHAINS for ring in (f"C1{'C' * size}C1" for size in range(1, 7))]


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with `runs/mine` and `runs/mine-1`, `new.csv` and `other.csv`."""
    folder = tmp_path_factory.mktemp("guide")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("mine.csv").write_text("smiles,y\n" + "".join(f"{s},{len(s)}\n" for s in SMILES))
        Path("new.csv").write_text("name,smiles\na,CCCC\nb,C[Si]C\nc,C1CC\n")
        Path("other_lab.csv").write_text("smiles,y\nCCO,3\nCCCO,4\n")
        Path("other.csv").write_text("structure\nCCO\n")
        data = ["--data", "Molecules", "--data.file", "mine.csv", "--data.target", "y"]
        for seed, run in enumerate(("runs/mine", "runs/mine-1")):
            options = ["--trainer.max_epochs", "1", "--seed_everything", str(seed), "--run", run]
            assert main(["fit", *data, *SMALL_MODEL, *options]) == 0
    return folder


def test_every_command_runs_and_writes_what_it_names(place, monkeypatch):
    monkeypatch.chdir(place)
    commands = [line for block in blocks("console") for line in block.splitlines() if line]
    assert len(commands) == 8
    for command in commands:
        program, *arguments = command.split()
        assert program == "graphbench"
        assert main(arguments) == 0, command
    table = pd.read_csv("predicted.csv").astype(object).fillna("")
    assert list(table) == ["name", "smiles", "prediction_y", "outside_training", "problem"]
    assert "atom type Si" in table["outside_training"][1]
    assert table["problem"][2].startswith("RDKit cannot read the molecule")
    assert len(pd.read_parquet("predicted.parquet")) == 1
    assert list(pd.read_csv("together.csv"))[2:4] == ["prediction_y", "spread_y"]
    assert list(pd.read_csv("intervals.csv"))[2:5] == ["prediction_y", "y_low", "y_high"]
    assert {"y_low", "y_high", "prediction_y", "target_y"} <= set(pd.read_csv("runs/mine/predictions-test.csv"))
    graphs, nodes = pd.read_parquet("embedded.parquet"), pd.read_parquet("nodes.parquet")
    width = sum(name.startswith("embedding_") for name in graphs)
    assert width == sum(name.startswith("embedding_") for name in nodes) == 16
    assert list(nodes)[:2] == ["id", "node"]
    assert graphs["embedding_0"].isna().tolist() == [False, False, True]


def test_the_code_runs(place, monkeypatch):
    monkeypatch.chdir(place)
    names: dict[str, object] = {}
    codes = blocks("python")
    assert len(codes) == 2
    for code in codes:
        exec(compile(code, "predict.md", "exec"), names)
    assert len(names["table"]) == 3


def test_the_benchmarks_that_are_named_read_new_inputs():
    from graphbench.contracts import Benchmark

    named = set(re.findall(r"`([A-Z]\w+)`", GUIDE.partition("## Which runs")[2])) - {"Data"}
    able = {
        name
        for name in registry.benchmarks()
        if registry.load("benchmarks", name).read_input is not Benchmark.read_input
        and registry.load("benchmarks", name).spec.task != "link-ranking"
    }
    assert named == able
