import networkx as nx
import pytest
import torch
from torch_geometric.utils import get_laplacian, to_dense_adj, to_undirected

from graphbench.benchmarks.electric_flow import all_pairs
from graphbench.errors import BadInput
from graphbench_linear_transformer import DenseIncidence, EvolvingIncidence, SparseIncidence
from graphbench_linear_transformer import normalise as absolute_sums
from graphbench_linear_transformer.graphs import incidence_matrix


@pytest.fixture(params=[True, False], ids=["weighted", "unit"])
def forms(request):
    """Return the same B as a matrix and as edges, in float64."""
    edges = all_pairs(7)[:, [0, 3, 4, 9, 11, 14, 15, 20]]
    resistance = torch.linspace(0.3, 3, 8, dtype=torch.float64) if request.param else torch.ones(8, dtype=torch.float64)
    return DenseIncidence(incidence_matrix(edges, 7, resistance)), SparseIncidence.from_edges(edges, 7, resistance)


@pytest.fixture
def features():
    return torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def left():
    return torch.randn(7, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def assert_same(actual, expected, features):
    for ours, theirs in (
        (actual.product(features), expected.product(features)),
        (actual.similarity(), expected.similarity()),
        (actual.absolute_sums(), expected.absolute_sums()),
        (actual.frobenius(), expected.frobenius()),
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


def test_sparse_incidence_equals_dense(forms, features):
    dense, sparse = forms
    assert_same(sparse, dense, features)
    factor = torch.tensor(1.7, dtype=torch.float64)
    assert_same(sparse.scaled(factor), dense.scaled(factor), features)
    assert_same(sparse.normalised(), dense.normalised(), features)
    assert sparse.normalised().frobenius().item() == pytest.approx(1)


def test_evolving_incidence_equals_dense(forms, features, left):
    dense, sparse = forms
    evolving, factor = sparse.evolving(), torch.tensor(-0.6, dtype=torch.float64)
    assert_same(evolving, dense, features)
    assert_same(evolving.evolved(left).scaled(factor), dense.evolved(left).scaled(factor), features)
    assert_same(
        evolving.evolved(left).normalised().evolved(left.mT),
        dense.evolved(left).normalised().evolved(left.mT),
        features,
    )


def test_edges_become_the_matrix_again(forms, batch):
    dense, sparse = forms
    torch.testing.assert_close(sparse.dense().matrix, dense.matrix)
    edges = SparseIncidence.from_batch(batch, torch.float64)
    torch.testing.assert_close(edges.dense().similarity(), edges.similarity())
    assert edges.dense().matrix.shape == (6, 12, int(edges.similarity().diagonal(dim1=1, dim2=2).sum(1).max()) // 2)
    shuffled = torch.randperm(len(edges.weight), generator=torch.Generator().manual_seed(0))
    other = SparseIncidence(edges.tail[shuffled], edges.head[shuffled], edges.weight[shuffled], edges.shape)
    torch.testing.assert_close(other.dense().similarity(), edges.similarity())


@pytest.mark.parametrize("parts", [1, 2])
def test_evolving_incidence_stays_exact_where_constants_would_grow(parts):
    """A left factor that multiplies the constant, which B does not have, by 10 leaves M bounded and B exact."""
    n = 6 * parts
    ring = torch.arange(6)
    edges = torch.cat([torch.stack([ring, (ring + 1) % 6]) + 6 * part for part in range(parts)], dim=1)
    sparse = SparseIncidence.from_edges(edges, n, torch.ones(n, dtype=torch.float64))
    evolving, dense = sparse.evolving(), DenseIncidence(incidence_matrix(edges, n))
    left = torch.eye(n, dtype=torch.float64) + 9 / n
    for _ in range(5):
        evolving, dense = evolving.evolved(left).normalised(), dense.evolved(left).normalised()
    assert evolving.left.abs().max() < 10
    torch.testing.assert_close(evolving.similarity(), dense.similarity(), atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(evolving.absolute_sums(), dense.absolute_sums(), atol=1e-10, rtol=1e-10)


def test_absolute_sums_in_blocks_equal_one_block(forms, left, monkeypatch):
    dense, sparse = forms
    monkeypatch.setattr(absolute_sums, "_BLOCK_NUMBERS", 21)  # three edges per block
    torch.testing.assert_close(sparse.evolving().evolved(left).absolute_sums(), (left @ dense.matrix).abs().sum(1))


@pytest.mark.parametrize("block", [14, 2**20])
def test_absolute_sums_have_the_right_gradients(forms, left, block, monkeypatch):
    monkeypatch.setattr(absolute_sums, "_BLOCK_NUMBERS", block)
    _, sparse = forms
    weight = sparse.weight.clone().requires_grad_()
    inputs = (left.requires_grad_(), weight, sparse.tail, sparse.head)
    assert torch.autograd.gradcheck(absolute_sums.AbsoluteSums.apply, inputs)
    of_two = left.detach()[:6, :3].reshape(2, 3, 3).requires_grad_()
    inputs = (of_two, weight[:3], torch.tensor([0, 1, 3]), torch.tensor([2, 2, 5]))  # nodes 3 to 5: second graph
    assert torch.autograd.gradcheck(absolute_sums.AbsoluteSums.apply, inputs)


def test_batch_gives_the_simple_graphs_of_pyg(batch):
    sparse = SparseIncidence.from_batch(batch, torch.float64)
    for graph, (start, stop) in enumerate(zip(batch.ptr[:-1].tolist(), batch.ptr[1:].tolist(), strict=True)):
        own = batch.edge_index[:, batch.batch[batch.edge_index[0]] == graph] - start
        simple = to_undirected(own[:, own[0] != own[1]])
        index, weight = get_laplacian(simple, num_nodes=stop - start, dtype=torch.float64)
        expected = to_dense_adj(index, edge_attr=weight, max_num_nodes=stop - start)[0]
        laplacian = sparse.similarity()[graph]
        assert torch.equal(laplacian[: stop - start, : stop - start], expected)
        assert laplacian.abs().sum() == expected.abs().sum()  # nothing in the padding
        assert torch.equal(sparse.absolute_sums()[graph, : stop - start], expected.diagonal())


def test_factors_of_a_batch_reach_their_own_graph(batch):
    sparse = SparseIncidence.from_batch(batch, torch.float64)
    factor = torch.arange(1.0, 7.0, dtype=torch.float64)[:, None, None]
    torch.testing.assert_close(sparse.scaled(factor).similarity(), factor**2 * sparse.similarity())
    torch.testing.assert_close(sparse.scaled(factor).evolving().frobenius(), factor * sparse.frobenius())


def test_graphs_without_edges_have_finite_gradients(batch):
    sparse = SparseIncidence.from_batch(batch, torch.float64)
    scale = torch.ones(6, 1, 1, dtype=torch.float64, requires_grad=True)
    for incidence in (sparse, sparse.evolving()):
        normed = incidence.scaled(scale).normalised()
        assert normed.frobenius().flatten().tolist() == pytest.approx([1, 0, 1, 1, 1, 0])
        (grad,) = torch.autograd.grad(normed.similarity().square().sum(), scale)
        assert grad.isfinite().all()


def test_sparse_incidence_cannot_evolve(forms, left):
    with pytest.raises(BadInput, match=r"incidence\.evolving\(\)"):
        forms[1].evolved(left)


def test_row_sums_need_edges(forms):
    with pytest.raises(BadInput, match="from_edges"):
        EvolvingIncidence.from_laplacian(forms[0].similarity()).absolute_sums()


def test_components_are_those_of_networkx(batch):
    sparse = SparseIncidence.from_batch(batch, torch.float64)
    graph = nx.Graph()
    graph.add_nodes_from(range(6 * 12))
    kept = sparse.weight > 0
    graph.add_edges_from(zip(sparse.tail[kept].tolist(), sparse.head[kept].tolist(), strict=True))
    expected = {frozenset(part) for part in nx.connected_components(graph)}
    for incidence in (sparse, sparse.evolving(), sparse.dense()):
        labels = incidence.components()
        assert labels.shape == (6, 12)
        flat = labels.flatten()
        assert {frozenset((flat == label).nonzero().flatten().tolist()) for label in flat.unique()} == expected


def test_resistances_of_a_batch_have_no_direction(batch):
    resistance = 1.0 + (batch.edge_index.amin(0) * 7 + batch.edge_index.amax(0)) % 5
    sparse = SparseIncidence.from_batch(batch, torch.float64, resistance)
    kept = sparse.weight > 0
    torch.testing.assert_close(sparse.weight[kept], resistance.double()[kept].rsqrt())
    plain = batch.edge_index[0] != batch.edge_index[1]
    pairs = torch.stack((batch.edge_index.amin(0), batch.edge_index.amax(0)))[:, plain]
    _, inverse, counts = pairs.unique(dim=1, return_inverse=True, return_counts=True)
    twice = plain.nonzero().flatten()[(counts[inverse] > 1).nonzero()[-1]]
    for value, message in ((9.0, "9 one way|9 the other way"), (-1.0, "positive finite"), (torch.nan, "positive")):
        wrong = resistance.clone()
        wrong[twice] = value
        with pytest.raises(BadInput, match=message):
            SparseIncidence.from_batch(batch, torch.float64, wrong)
