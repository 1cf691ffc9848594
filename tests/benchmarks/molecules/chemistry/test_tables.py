"""Arrays to graph tables, and strings stored with the graphs."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphbench.benchmarks.molecules.chemistry.reading import Recipe, read_molecules
from graphbench.benchmarks.molecules.chemistry.tables import (
    read_text,
    subset,
    to_table,
    with_targets,
    with_text,
    without,
)
from graphbench.contracts import GraphTable

SMILES = ["CCO", "c1ccccc1", "C", "CC(C)N"]


@pytest.fixture
def table():
    return to_table(read_molecules(SMILES, Recipe("ogb"), num_workers=0))


def test_batches_are_those_of_pyg(table):
    batch = with_targets(table, np.arange(4.0)).batch([3, 0])
    assert batch.num_graphs == 2
    assert batch.ptr.tolist() == [0, 4, 7]
    assert batch.x.dtype == batch.edge_index.dtype == batch.edge_attr.dtype == torch.int64
    assert batch.edge_index.tolist() == [[0, 1, 1, 2, 1, 3, 4, 5, 5, 6], [1, 0, 2, 1, 3, 1, 5, 4, 6, 5]]
    assert batch.y.tolist() == [[3.0], [0.0]]


def test_targets_keep_their_kind(table):
    assert with_targets(table, np.array([0, 1, 2, 1])).columns["y"].dtype == torch.int64
    several = with_targets(table, np.array([[0.5, np.nan]] * 4)).columns["y"]
    assert (several.dtype, several.shape) == (torch.float32, (4, 2))


@given(st.lists(st.text(max_size=12), min_size=4, max_size=4))
def test_text_returns_as_it_was(texts):
    empty = GraphTable.from_graphs(
        [{"num_nodes": 1, "edge_index": torch.zeros(2, 0, dtype=torch.int64)} for _ in texts]
    )
    assert read_text(with_text(empty, {"smiles": texts}), "smiles") == texts


def test_text_follows_selection_and_can_be_left_out(table):
    written = with_text(table, {"smiles": SMILES, "id": ["a", "b", "c", "d"]})
    chosen = subset(written, torch.tensor([2, 0]))
    assert read_text(chosen, "smiles") == ["C", "CCO"]
    assert read_text(written.slice(1, 3), "id") == ["b", "c"]
    plain = without(chosen, ("smiles", "id"))
    assert set(plain.columns) == set(plain.layout) == {"x", "edge_index", "edge_attr"}
    assert set(plain.ptr) == {"node", "edge"}
    assert "smiles_ptr" not in plain.batch([0])


def test_subset_numbers_its_graphs_from_zero(table):
    assert subset(table, torch.tensor([3, 1])).batch([0, 1]).graph_id.tolist() == [0, 1]
