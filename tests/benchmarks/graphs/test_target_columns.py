"""Bounds and logarithms as targets of users' graphs and nodes, against columns by hand and `Molecules`."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch

from graphbench.benchmarks import Molecules
from graphbench.benchmarks.graphs import target_columns
from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.cli import main
from graphbench.errors import BadInput

SPLITS = ("train", "val", "test")
CELLS = [">10", "3.5", "<= 0.25", "7", "n/a", "2"] * 5
NUMBERS = {">10": 10.0, "<= 0.25": 0.25}
SIGNS = {">10": "y_lower", "<= 0.25": "y_upper"}


@pytest.fixture
def write(tmp_path):
    """Write thirty rings as JSON lines, with columns of the graphs or of their nodes."""

    def write(graphs=None, nodes=None):
        lines = []
        for number in range(30):
            edges = [[node, (node + 1) % 4] for node in range(4)]
            record = {"num_nodes": 4, "edges": edges, "nodes": {"kind": [0, 1, 0, number % 2]}}
            record |= {name: column[number] for name, column in (graphs or {}).items()}
            record["nodes"] |= {name: column[4 * number : 4 * number + 4] for name, column in (nodes or {}).items()}
            lines.append(json.dumps(record))
        path = tmp_path / "rings.jsonl"
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    return write


@pytest.fixture
def opened(tmp_path):
    def opened(source, **options):
        data = Graphs(source, root=str(tmp_path / "data"), **options)
        data.setup()
        return data

    return opened


def gathered(data, name):
    """Return a column of all splits in the order of the source's graphs."""
    rows = [int(row) for split in SPLITS for row in data.ids(split)]
    values = torch.cat([data.tables[split].columns[name] for split in SPLITS])
    return values[torch.tensor(rows).argsort()].numpy()


def expected(cells, column):
    return np.array([NUMBERS.get(c, np.nan if c == "n/a" else float(c if c not in SIGNS else 0))
                     if SIGNS.get(c, "y") == column else np.nan for c in cells])  # fmt: skip


def test_bounds_of_graphs_are_in_columns_of_their_own(write, opened):
    other = [number + 0.5 for number in range(30)]
    data = opened(write({"a": CELLS, "b": other}), target=["a", "b"], fractions=[0.6, 0.2, 0.2])
    assert (data.spec.task, data.spec.metric) == ("graph-regression", "scaled_MAE")
    for column in ("y", "y_lower", "y_upper"):
        values = gathered(data, column)
        np.testing.assert_array_equal(values[:, 0], expected(CELLS, column).astype(np.float32))
        assert np.isnan(values[:, 1]).all() == (column != "y")


def test_they_are_those_of_molecules(write, opened, tmp_path):
    pd.DataFrame({"smiles": ["C" * n for n in range(1, 31)], "y": CELLS}).to_csv(tmp_path / "m.csv", index=False)
    molecules = Molecules(str(tmp_path / "m.csv"), "y", on_error="skip", store=str(tmp_path / "s"), log10="y")
    molecules.setup()
    graphs = opened(write({"y": CELLS}), target="y", on_error="skip", log10="y")
    for column in ("y", "y_lower", "y_upper"):
        both = [np.sort(torch.cat([data.tables[split].columns[column] for split in SPLITS]).numpy()[:, 0])
                for data in (molecules, graphs)]  # fmt: skip
        np.testing.assert_array_equal(*both)
    for name in ("log10_targets", "metric", "loss", "num_targets", "target_names"):
        assert getattr(graphs.spec, name) == getattr(molecules.spec, name)


def test_bounds_of_nodes_need_whole_graphs_in_each_split(write, opened):
    cells = CELLS * 4
    source = write(nodes={"y": cells})
    data = opened(source, target="y", split_level="graph", fractions=[0.5, 0.25, 0.25])
    assert data.spec.task == "node-regression"
    for column in ("y", "y_lower", "y_upper"):
        values = torch.cat([data.tables[split].columns[column] for split in SPLITS]).numpy()[:, 0]
        assert np.array_equal(np.sort(values), np.sort(expected(cells, column).astype(np.float32)), equal_nan=True)
    with pytest.raises(BadInput, match="split_level=graph"):
        opened(source, target="y", split_level="node")


def test_text_that_is_not_all_numbers_and_bounds_stays_classes(write, opened):
    assert opened(write({"y": ["low", ">10", "<1"] * 10}), target="y").spec.num_classes == 3
    classes = opened(write({"y": ["<1", ">10"] * 15}), target="y", task="graph-classification")
    assert classes.class_labels() == ("<1", ">10")
    with pytest.raises(BadInput, match="text"):
        opened(write({"y": ["low", ">10", "3"] * 10}), target="y", task="graph-regression")


def test_a_logarithm_needs_numbers_above_0_and_a_target_of_this_name(write, opened):
    with pytest.raises(BadInput, match=r"log10=\['b'\]"):
        opened(write({"y": [n + 1.5 for n in range(30)]}), target="y", log10="b")
    with pytest.raises(BadInput, match=r"log10=\['y'\].*classification"):
        opened(write({"y": [n % 3 for n in range(30)]}), target="y", log10="y")
    with pytest.raises(BadInput, match=r"graph 4.*not above 0|line 5.*not above 0"):
        opened(write({"y": [4.5 - n for n in range(4)] + [0.0] * 26}), target="y", log10="y")
    above, below = [n + 1.5 for n in range(30)], [-n - 0.5 for n in range(30)]
    data = opened(write({"a": above, "b": below}), target=["a", "b"], log10=["a"])
    assert data.spec.log10_targets == (True, False)
    data = opened(write({"y": list(zip(below, above, strict=True))}), target="y", log10=["1"])
    assert data.spec.log10_targets == (False, True)


@pytest.mark.slow
def test_they_are_trained_on_and_predicted_in_their_unit(write, tmp_path):
    """Scores cover only exact targets, in the unit of the file."""
    source, run = write({"a": CELLS, "b": [n + 0.5 for n in range(30)]}), tmp_path / "run"
    options = ["--data.source", source, "--data.target", "[a, b]", "--data.log10", "a", "--data.root", str(tmp_path)]
    size = {"hidden_dim": 8, "num_layers": 1, "num_heads": 2}
    model = ["--model.architecture", "GPS", *(f"--model.architecture.{name}={value}" for name, value in size.items())]
    model += ["--data.target_weights", "{a: 3}", "--model.loss", "a=Huber,b=L1"]
    fit = ["fit", "--data", "Graphs", *options, *model, "--trainer.max_epochs", "2", "--trainer.accelerator", "cpu"]
    assert main([*fit, "--run", str(run)]) == 0
    assert main(["test", "--run", str(run)]) == 0
    assert main(["predict", "--run", str(run)]) == 0
    frame, scores = pd.read_csv(run / "predictions-test.csv"), json.loads((run / "results.json").read_text())["test"]
    assert (frame["prediction_a"] > 0).all()
    exact = frame["target_a"].notna()
    error = (frame["prediction_a"] - frame["target_a"]).abs()[exact].mean()
    assert scores["test/MAE/a"] == pytest.approx(error, rel=1e-4)


@pytest.mark.parametrize(
    ("words", "numbers", "signs"),
    [
        (["wet", "dry", "ND"], None, [0, 0, 0]),
        (["1", "2", "ND"], [1.0, 2.0, np.nan], [0, 0, 0]),
        (["1", ">2", "ND"], [1.0, 2.0, np.nan], [0, 1, 0]),
    ],
)
def test_each_distinct_text_is_parsed_once(words, numbers, signs, monkeypatch):
    parsed = []
    parse = target_columns.as_number
    monkeypatch.setattr(target_columns, "as_number", lambda text: parsed.append(text) or parse(text))
    values = np.array(words * 300 + [None], dtype=object)[:, None]
    found, read_signs = target_columns.text_as_numbers(values, ["ND"], bounds=True)
    assert len(parsed) < 20
    assert read_signs[:, 0].tolist() == [*signs * 300, 0]
    if numbers is None:
        assert found is values
    else:
        np.testing.assert_array_equal(found[:, 0], [*numbers * 300, np.nan])


def test_a_float_that_is_no_number_stays_one_beside_texts():
    """pandas has no code for it, and the last distinct text would take its place."""
    values = np.array([[">3"], ["2.5"], [math.nan]], dtype=object)
    found, signs = target_columns.text_as_numbers(values, ["ND"], bounds=True)
    assert found is values
    assert not signs.any()
