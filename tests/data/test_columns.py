"""Numbers whose spread float32 cannot represent, from a user's source to the stored targets; weights of rows."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphbench.benchmarks import Graphs, Molecules
from graphbench.contracts import Column, GraphTable
from graphbench.data.columns import imprecise_columns, scaled_weights, to_exact_float, to_float32
from graphbench.errors import BadInput

NOISE = np.random.default_rng(0).normal(scale=1e-3, size=40)
ENERGIES = 1e6 + NOISE


@pytest.mark.parametrize(
    ("values", "lost"),
    [
        (ENERGIES, [0]),
        (np.stack([NOISE, ENERGIES, np.full(40, 1e6 + 1e-3)], 1), [1]),
        (np.array([0.1, 0.2, np.nan, -3.3]), []),
        (np.full(5, 0.1), []),  # a constant has no spread to lose
        (np.array([0.1, np.nan, 0.1, 0.1]), []),  # nor among missing values; its mean is rounded
        (np.array([[0.1, np.nan], [0.1, 0.7], [np.inf, 0.7], [0.1, 0.7]]), []),
        (np.full((3, 2), np.nan), []),
        (np.zeros((0, 2)), []),
        (np.arange(5.0) + 2**24, [0]),  # float32 cannot represent odd numbers of this size
        (np.arange(5) + 2**24, [0]),
        (np.arange(5) - 2, []),
        (np.array([True, False]), []),
        (ENERGIES.astype(np.float32), []),
    ],
)
def test_columns_that_float32_cannot_hold(values, lost):
    assert imprecise_columns(values) == lost
    assert to_exact_float(values).dtype == (np.float64 if lost else np.float32)
    mapped = np.unique(values.astype(np.float32)).size < np.unique(values).size  # np.unique counts NaN once
    assert lost or not mapped


def test_features_that_lose_their_spread_are_named(caplog):
    with caplog.at_level(logging.WARNING):
        assert to_float32(np.stack([NOISE, ENERGIES], 1), "file: energy of nodes").dtype == np.float32
    assert "file: energy of nodes (column 1 of 2)" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        to_float32(NOISE, "noise")
    assert not caplog.text


def stored(benchmark):
    benchmark.setup()
    tables = benchmark.tables
    rows = {}
    for table in tables.values():
        assert table.columns["y"].dtype == torch.float64
        rows |= dict.fromkeys(table.columns["y"][:, 0].tolist())
    return sorted(rows)


def test_energies_of_own_graphs_are_stored_as_they_are(tmp_path, caplog):
    edges = torch.tensor([[0, 1], [1, 0]])
    graphs = [
        Data(
            x=torch.ones(2, 1), edge_index=edges, y=torch.tensor([[energy]], dtype=torch.float64),
            pos=torch.tensor([[1e7, 0.0], [1e7 + 0.25 * number, 1.0]], dtype=torch.float64),
        )
        for number, energy in enumerate(ENERGIES)
    ]  # fmt: skip
    with caplog.at_level(logging.WARNING):
        data = Graphs(graphs, store=str(tmp_path), root=str(tmp_path))
        assert stored(data) == sorted(ENERGIES.tolist())
    assert "pos of nodes (column 0 of 2)" in caplog.text
    batch = data.tables["train"].batch([0, 1])
    assert batch.y.dtype == torch.float64


def test_energies_of_own_molecules_are_stored_as_they_are(tmp_path):
    rows = "".join(f"{'C' * (number + 1)},{energy!r}\n" for number, energy in enumerate(ENERGIES.tolist()))
    (tmp_path / "own.csv").write_text(f"smiles,energy\n{rows}")
    data = Molecules(str(tmp_path / "own.csv"), "energy", store=str(tmp_path), root=str(tmp_path))
    assert stored(data) == sorted(ENERGIES.tolist())
    assert data.data_version >= 2


def test_usual_targets_stay_in_float32(tmp_path):
    rows = "".join(f"{'C' * (number + 1)},{value!r}\n" for number, value in enumerate(NOISE.tolist()))
    (tmp_path / "own.csv").write_text(f"smiles,value\n{rows}")
    data = Molecules(str(tmp_path / "own.csv"), "value", store=str(tmp_path), root=str(tmp_path))
    data.setup()
    assert data.tables["train"].columns["y"].dtype == torch.float32


def table(y, weights):
    count = len(y)
    columns = {"y": torch.tensor(y), "weight": torch.tensor(weights)}
    layout = {"y": Column("graph"), "weight": Column("graph")}
    return GraphTable(columns, layout, {"node": torch.arange(count + 1), "edge": torch.zeros(count + 1).long()})


def test_mean_is_taken_over_labelled_training_rows():
    train = table([[1.0, torch.nan], [torch.nan, torch.nan], [2.0, 3.0]], [1.0, 100.0, 3.0])
    found = scaled_weights({"train": train, "test": table([[0.0, 0.0]], [8.0])})
    assert found["train"].columns["weight"].tolist() == [0.5, 50.0, 1.5]
    assert found["test"].columns["weight"].tolist() == [4.0]


def test_classes_without_a_label_are_left_out():
    found = scaled_weights({"train": table([[0], [-1], [1]], [2.0, 50.0, 6.0])})
    assert found["train"].columns["weight"].tolist() == [0.5, 12.5, 1.5]


def test_nothing_to_train_on_is_refused():
    with pytest.raises(BadInput, match="no training row has a weight above 0"):
        scaled_weights({"train": table([[1.0], [torch.nan]], [0.0, 2.0])})
