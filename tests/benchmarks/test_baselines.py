"""Baselines: constant answers, and linear models of edge features on targets that they can learn."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from graphbench.benchmarks import baselines
from graphbench.benchmarks.baselines import constant_answer, predict_by_features
from graphbench.testing import tiny_spec, tiny_table


def tables_of(spec):
    return {split: tiny_table(spec, num_graphs=12, seed=seed) for seed, split in enumerate(("train", "val", "test"))}


@pytest.mark.parametrize(
    ("task", "y", "expected"),
    [
        ("graph-regression", [[1.0, 10.0], [3.0, 1000.0], [torch.nan, torch.nan]], [2.0, 100.0]),
        ("graph-classification", [0, 1, 1, -1], [1 / 3, 2 / 3, 0.0]),
    ],
)
def test_one_answer_for_all_rows_is_that_of_known_targets(task, y, expected):
    spec = tiny_spec(task)
    spec = spec if spec.num_classes else dataclasses.replace(spec, log10_targets=(False, True))
    table = tiny_table(spec, num_graphs=len(y))
    table.columns["y"] = torch.tensor(y)
    assert constant_answer(table, spec)[1].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["both", "categorical", "dense"])
def test_numbers_that_are_linear_in_the_features_are_found(kind):
    spec = tiny_spec("edge-regression", kind)
    tables = tables_of(spec)
    for table in tables.values():
        coded = table.columns.get("edge_attr", torch.zeros(int(table.num_edges.sum()), 1)).double()
        dense = table.columns.get("edge_dense", torch.zeros(len(coded), 1)).double()
        table.columns["y"] = torch.cat([(coded == 2).double() * 3 + dense[:, :1], 1 - 2 * dense[:, :1]], 1)
    tables["train"].columns["y"][:5] = torch.nan
    [(name, found)] = predict_by_features(tables, spec).items()
    assert name == "ridge on edge features"
    for split, predicted in found.items():
        truth = tables[split].columns["y"].numpy()
        assert predicted.shape == truth.shape
        assert np.abs(predicted - truth).max() < 0.1 * truth.std() + 0.05


def test_a_target_in_log10_is_fitted_on_its_logarithm():
    spec = dataclasses.replace(tiny_spec("edge-regression", "dense"), log10_targets=(True, False))
    tables = tables_of(spec)
    for table in tables.values():
        dense = table.columns["edge_dense"][:, :1].double()
        table.columns["y"] = torch.cat([10 ** (3 * dense), 1 - 2 * dense], 1)
    for split, predicted in predict_by_features(tables, spec)["ridge on edge features"].items():
        truth = tables[split].columns["y"].numpy()
        np.testing.assert_allclose(np.log10(predicted[:, 0]), np.log10(truth[:, 0]), atol=0.2)
        np.testing.assert_allclose(predicted[:, 1], truth[:, 1], atol=0.2)


def test_classes_that_a_feature_tells_are_found():
    spec = tiny_spec("edge-classification", "dense")
    tables = tables_of(spec)
    for table in tables.values():
        table.columns["y"] = (table.columns["edge_dense"][:, :1] > 0.2).long()
    tables["train"].columns["y"][:3] = -1
    [(name, found)] = predict_by_features(tables, spec).items()
    assert name == "logistic regression on edge features"
    for split, predicted in found.items():
        np.testing.assert_allclose(predicted.sum(1), 1.0)
        assert (predicted.argmax(1) == tables[split].columns["y"][:, 0].numpy()).mean() > 0.9


def test_many_categories_take_no_memory():
    """One-hot encoded, the identity matrix would already take 34 GB."""
    spec = tiny_spec("edge-classification", "both")
    edge = dataclasses.replace(spec.edge, vocabularies=(65_536, *spec.edge.vocabularies[1:]))
    spec = dataclasses.replace(spec, edge=edge)
    tables = tables_of(spec)
    for table in tables.values():
        table.columns["y"] = (table.columns["edge_dense"][:, :1] > 0.2).long()
    predicted = predict_by_features(tables, spec)["logistic regression on edge features"]["test"]
    assert (predicted.argmax(1) == tables["test"].columns["y"][:, 0].numpy()).mean() > 0.9


@pytest.mark.parametrize("task", ["edge-classification", "edge-regression"])
def test_edges_are_predicted_some_at_a_time(task, monkeypatch):
    """One-hot columns of all edges of a large graph would take gigabytes."""
    spec = tiny_spec(task, "both")
    tables = tables_of(spec)
    [whole] = predict_by_features(tables, spec).values()
    monkeypatch.setattr(baselines, "_BLOCK", 7)
    features, rows = baselines._features, []
    monkeypatch.setattr(baselines, "_features", lambda *some: [rows.append(len(some[2])), features(*some)][1])
    [found] = predict_by_features(tables, spec).values()
    for split, values in found.items():
        np.testing.assert_allclose(values, whole[split], rtol=1e-12)
    assert len(rows) > 3
    assert max(rows[1:]) == 7  # after those of the fit


def test_a_class_without_a_training_edge_has_the_probability_0():
    spec = dataclasses.replace(tiny_spec("edge-classification", "dense"), num_classes=4)
    tables = tables_of(spec)
    tables["train"].columns["y"] = torch.randint(2, tables["train"].columns["y"].shape) * 2
    found = predict_by_features(tables, spec)["logistic regression on edge features"]["test"]
    assert found.shape[1] == 4
    assert (found[:, [1, 3]] == 0).all()


def test_no_features_or_one_class_or_no_target_has_no_baseline():
    bare, dense = tiny_spec("edge-classification", "none"), tiny_spec("edge-classification", "dense")
    assert predict_by_features(tables_of(bare), bare) == {}
    for value in (1, -1):
        tables = tables_of(dense)
        tables["train"].columns["y"] = torch.full_like(tables["train"].columns["y"], value)
        assert predict_by_features(tables, dense) == {}
