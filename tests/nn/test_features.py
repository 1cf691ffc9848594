import re

import pytest
import torch
import torch.nn.functional as F
from ogb.graphproppred.mol_encoder import AtomEncoder

from graphbench import BenchmarkSpec, Features, PositionalEncoder
from graphbench.errors import BadInput
from graphbench.nn import EdgeEncoder, FeatureEncoder, NodeEncoder
from graphbench.nn import features as encoders


def count(module):
    return sum(p.numel() for p in module.parameters())


def make_spec(node=Features((7, 3), dense=2), edge=Features((4,)), **options):  # noqa: B008 - frozen dataclass
    return BenchmarkSpec("Tiny", "graph-regression", node, edge, "MAE", False, "L1", **options)


class Degrees(PositionalEncoder):
    """Returns the out-degree of every node, `dim` times."""

    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, batch):
        return torch.bincount(batch.edge_index[0], minlength=batch.num_nodes).float()[:, None].expand(-1, self.dim)


def test_agrees_with_the_atom_encoder_of_ogb():
    reference = AtomEncoder(16)
    tables = [embedding.weight for embedding in reference.atom_embedding_list]
    ours = FeatureEncoder(Features(tuple(len(table) for table in tables)), 16)
    with torch.no_grad():
        ours.table.copy_(torch.cat(tables))
    x = torch.stack([torch.randint(0, len(table), (50,)) for table in tables], dim=1)
    torch.testing.assert_close(ours(x, None), reference(x))


def test_tables_start_with_the_scale_of_ogb():
    torch.manual_seed(0)
    table = FeatureEncoder(Features((119, 2)), 64).table
    assert table[:119].abs().max().item() == pytest.approx((6 / (119 + 64)) ** 0.5, rel=0.01)
    assert table[119:].abs().max().item() == pytest.approx((6 / (2 + 64)) ** 0.5, rel=0.05)


def test_normal_tables_have_unit_variance():
    torch.manual_seed(0)
    assert FeatureEncoder(Features((200,)), 64, "normal").table.std().item() == pytest.approx(1, abs=0.03)


def test_dense_columns_are_added_to_embeddings():
    encoder = FeatureEncoder(Features((7,), dense=2), 5)
    x, dense = torch.randint(0, 7, (10, 1)), torch.randn(10, 2)
    torch.testing.assert_close(encoder(x, dense), encoder.table[x[:, 0]] + encoder.linear(dense))


@pytest.mark.parametrize(("dense", "bias"), [(2, True), (0, True), (0, False)])
def test_many_categories_are_gathered_from_the_same_map(monkeypatch, dense, bias):
    encoder = FeatureEncoder(Features((7, 3), dense=dense), 5, "one_hot", one_hot_bias=bias).double()
    x, numbers = torch.tensor([[6, 2], [0, 1], [6, 0]]), torch.randn(3, dense, dtype=torch.float64) if dense else None
    expected = encoder(x, numbers)
    wanted = torch.autograd.grad(expected.square().sum(), list(encoder.parameters()))
    monkeypatch.setattr(encoders, "_MOST_ONE_HOT", 9)
    monkeypatch.setattr(F, "one_hot", lambda *_: pytest.fail("a matrix of one-hot rows"))
    found = encoder(x, numbers)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.square().sum(), list(encoder.parameters())), wanted)


def test_one_hot_is_a_linear_map_of_one_hot_columns():
    encoder = FeatureEncoder(Features((7, 3), dense=2), 5, "one_hot")
    x, dense = torch.stack([torch.randint(0, 7, (10,)), torch.randint(0, 3, (10,))], dim=1), torch.randn(10, 2)
    columns = torch.cat([F.one_hot(x[:, 0], 7), F.one_hot(x[:, 1], 3), dense], dim=1)
    torch.testing.assert_close(encoder(x, dense), encoder.linear(columns))
    assert count(encoder) == (7 + 3 + 2 + 1) * 5
    assert count(FeatureEncoder(Features((7, 3), dense=2), 5, "one_hot", one_hot_bias=False)) == (7 + 3 + 2) * 5
    assert count(FeatureEncoder(Features(dense=2), 5, "one_hot", one_hot_bias=False)) == (2 + 1) * 5


@pytest.mark.parametrize(
    ("features", "dim", "categorical", "parameters"),
    [
        (Features((28,)), 36, "normal", 28 * 36),
        (Features((119, 5, 12, 12, 10, 6, 6, 2, 2)), 80, "xavier_uniform", 174 * 80),
        (Features((5, 6, 2)), 96, "xavier_uniform", 13 * 96),
        (Features(dense=14), 80, "xavier_uniform", 15 * 80),
        (Features(dense=3), 44, "one_hot", 4 * 44),
        (Features((3,)), 48, "one_hot", 4 * 48),
    ],
)
def test_feature_parameter_counts(features, dim, categorical, parameters):
    assert count(FeatureEncoder(features, dim, categorical)) == parameters


def test_double_precision_models_take_single_precision_features():
    encoder = FeatureEncoder(Features((3,), dense=2), 5).double()
    assert encoder(torch.zeros(4, 1, dtype=torch.int64), torch.ones(4, 2)).dtype == torch.float64


def test_no_feature_at_all_is_an_error():
    with pytest.raises(BadInput, match="features are empty"):
        FeatureEncoder(Features(), 5)


def test_unknown_way_of_encoding_is_an_error():
    with pytest.raises(BadInput, match="'onehot'"):
        FeatureEncoder(Features((3,)), 5, "onehot")


def test_missing_columns_are_an_error():
    with pytest.raises(BadInput, match="promises 2 dense"):
        FeatureEncoder(Features(dense=2), 5)(None, None)


@pytest.mark.parametrize("shape", [(4, 3), (2,)])
def test_wrong_width_is_an_error(shape):
    with pytest.raises(BadInput, match=rf"\[rows, 2\], but got {re.escape(str(list(shape)))}"):
        FeatureEncoder(Features(dense=2), 5)(None, torch.ones(shape))


def test_positions_stand_behind_the_features(batch):
    encoder = NodeEncoder(make_spec(), 8, [Degrees(1), Degrees(2)])
    out = encoder(batch)
    assert out.shape == (batch.num_nodes, 8)
    torch.testing.assert_close(out[:, :5], encoder.features(batch.x, batch.x_dense))
    torch.testing.assert_close(out[:, 5:], Degrees(3)(batch))


def test_positions_must_leave_room():
    with pytest.raises(BadInput, match=r"widths \[5, 3\] leave no room for features in a width of 8"):
        NodeEncoder(make_spec(), 8, [Degrees(5), Degrees(3)])


def test_nodes_with_nothing_but_a_position_are_read_through_it(batch):
    encoder = NodeEncoder(make_spec(node=Features(), coordinates=3), 6)
    batch.pos = torch.randn(batch.num_nodes, 3)
    torch.testing.assert_close(encoder(batch), encoder.features.linear(batch.pos))


def test_nodes_without_features_share_one_row(batch):
    encoder = NodeEncoder(make_spec(node=Features()), 6)
    assert count(encoder) == 6
    assert torch.equal(encoder(batch), encoder.features.row.expand(batch.num_nodes, -1))


def test_edge_encoder_reads_edges(batch):
    encoder = EdgeEncoder(make_spec(), 6)
    assert torch.equal(encoder(batch), encoder.features.table[batch.edge_attr[:, 0]])


@pytest.mark.parametrize(("edge", "use_features"), [(Features(), True), (Features((4,)), False)])
def test_edges_without_features_share_one_row(batch, edge, use_features):
    encoder = EdgeEncoder(make_spec(edge=edge), 6, use_features=use_features)
    assert count(encoder) == 6
    assert torch.equal(encoder(batch), encoder.features.row.expand(batch.edge_index.shape[1], -1))
