"""Features that are scaled, against PyG's transform."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures

from graphbench.errors import BadInput

PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def words(generator):
    """Counts of words: a node without any, one whose sum is below 1, and others."""
    counts = torch.rand(3, 5, generator=generator).mul(4).round()
    counts[0], counts[1] = 0.0, 0.1
    return counts


@pytest.fixture
def documents():
    generator = torch.Generator().manual_seed(0)
    return [Data(x=words(generator), edge_index=PATH, y=torch.tensor([number % 2])) for number in range(20)]


def test_sums_are_those_of_pyg_in_training_and_in_new_graphs(documents, opened):
    made = opened(documents, normalize_features=True)
    expected = [NormalizeFeatures()(graph.clone()).x for graph in documents]
    for split in ("train", "val", "test"):
        table = made.tables[split]
        for row, number in enumerate(made.ids(split)):
            torch.testing.assert_close(table.batch([row]).x_dense, expected[int(number)])
    (part,) = made.read_objects(documents[:4])
    torch.testing.assert_close(part.table.batch(range(4)).x_dense, torch.cat(expected[:4]))


def test_numbers_stay_as_they_are_without_the_option(documents, opened):
    made = opened(documents)
    assert torch.equal(made.tables["train"].batch([0]).x_dense, documents[int(made.ids("train")[0])].x)


def test_negative_numbers_are_refused_with_their_place(documents, opened):
    documents[7].x[2, 3] = -0.5
    with pytest.raises(BadInput, match=r"graph 7, node 2: a feature is -0.5; normalize_features"):
        opened(documents, normalize_features=True)


def test_categories_alone_are_refused(documents, opened):
    for graph in documents:
        graph.x = graph.x.long()
    with pytest.raises(BadInput, match=r"normalize_features is set, but .* has no real numbers for features of nodes"):
        opened(documents, normalize_features=True)
