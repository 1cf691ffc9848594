from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

from graphbench import BenchmarkModule, BenchmarkSpec, Features, GraphTable
from graphbench.encodings import LapPE
from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench.testing import (
    ArchitectureContract,
    PositionalEncoderContract,
    encode,
    permute_nodes,
    tiny_spec,
    tiny_table,
)
from graphbench_linear_transformer import (
    LinearTransformerPE,
    MolecularTransformer,
    Positions,
    SparseIncidence,
    eigenvector_loss,
    encoder,
    sign_invariant_errors,
)
from graphbench_linear_transformer.encoder import fixed_gaussians, return_probabilities, sparse_return_probabilities
from graphbench_linear_transformer.graphs import incidence_matrix
from graphbench_linear_transformer.normalise import unit_columns


class TestWalks(PositionalEncoderContract):
    encoder = LinearTransformerPE
    most_launches = 1681

    def make_encoder(self):
        return randomised(LinearTransformerPE())


class TestSlots(PositionalEncoderContract):
    encoder = LinearTransformerPE
    random_method = "a node's slot is its number"
    most_launches = 1806

    def make_encoder(self):
        return randomised(LinearTransformerPE(initial="slots", released=True))


class TestWithoutIncidence(PositionalEncoderContract):
    encoder = LinearTransformerPE
    most_launches = 2129

    def make_encoder(self):
        return randomised(LinearTransformerPE(keep_incidence=False))


class TestSparse(PositionalEncoderContract):
    encoder = LinearTransformerPE
    most_launches = 1317

    def make_encoder(self):
        return randomised(LinearTransformerPE(evolve_incidence=False))


class TestRandom(PositionalEncoderContract):
    encoder = LinearTransformerPE
    random_method = "equivariant in distribution"
    most_launches = 1544

    def make_encoder(self):
        return randomised(LinearTransformerPE(initial="random"))


def randomised(encoder, size=0.3):
    """Return an encoder whose layers have an effect: fresh ones change only lengths."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in encoder.transformer.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))
    return encoder


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(("max_nodes", "dim", "published"), [(37, 6, 488), (9, 3, 240)], ids=["ZINC", "QM9"])
def test_authors_form_has_the_published_parameters(max_nodes, dim, published):
    assert count(LinearTransformerPE(dim, initial="slots", max_nodes=max_nodes, released=True)) == published


@pytest.mark.parametrize("evolve_incidence", [True, False])
@pytest.mark.parametrize("initial", ["walks", "slots", "random"])
def test_a_plain_batch_of_pyg_will_do(batch, initial, evolve_incidence):
    """The result is bitwise that of a `GraphBatch`, whose layout is stored; a single graph is a batch of one."""
    edges = [batch.edge_index[:, batch.batch[batch.edge_index[0]] == graph] for graph in range(batch.num_graphs)]
    sizes = batch.ptr.diff().tolist()
    parts = zip(edges, batch.ptr.tolist()[:-1], sizes, strict=True)
    graphs = [Data(edge_index=part - first, num_nodes=size) for part, first, size in parts]
    encoder = randomised(LinearTransformerPE(initial=initial, evolve_incidence=evolve_incidence))
    torch.manual_seed(0)
    expected = encoder(batch)
    torch.manual_seed(0)
    assert torch.equal(encoder(Batch.from_data_list(graphs)), expected)
    encoder.eval()
    assert torch.equal(encoder(graphs[2]), encoder(Batch.from_data_list(graphs[2:3])))


def test_lean_forms_have_fewer_parameters():
    assert count(LinearTransformerPE(initial="slots")) == 296 + 48 + 3 * 32
    assert count(LinearTransformerPE(initial="walks", num_steps=16)) == 128 + 48 + 3 * 32
    assert count(LinearTransformerPE(initial="random")) == 48 + 3 * 32


@pytest.mark.parametrize("keep_incidence", [True, False])
@pytest.mark.parametrize("initial", ["walks", "slots", "random"])
def test_each_graph_gets_what_equation_16_gives_it_alone(batch, initial, keep_incidence):
    """The padded batch, with and without B, equals matrices B, one graph at a time."""
    encoder = randomised(LinearTransformerPE(initial=initial, keep_incidence=keep_incidence)).double().eval()
    features, phi = encoder(batch), encoder.initial_features(batch)
    for graph, (start, stop) in enumerate(zip(batch.ptr[:-1].tolist(), batch.ptr[1:].tolist(), strict=True)):
        edges = batch.edge_index[:, batch.batch[batch.edge_index[0]] == graph] - start
        simple = sorted({(min(edge), max(edge)) for edge in edges.t().tolist() if edge[0] != edge[1]})
        index = torch.tensor(simple, dtype=torch.int64).reshape(-1, 2).t()
        assert isinstance(encoder.transformer, MolecularTransformer)
        _, own = encoder.transformer(incidence_matrix(index, stop - start), phi[start:stop])
        expected = unit_columns(own @ encoder.readout.weight.mT)
        torch.testing.assert_close(features[start:stop], expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("initial", ["walks", "slots", "random"])
def test_sparse_encoder_is_the_dense_one_whose_b_stays(batch, initial):
    sparse = randomised(LinearTransformerPE(initial=initial, evolve_incidence=False)).double().eval()
    dense = LinearTransformerPE(initial=initial).double().eval()
    state = sparse.state_dict()
    for name, value in dense.state_dict().items():
        if name.endswith("beta"):
            state[name] = torch.cat([torch.full((2,), 9.0), state[name]])  # what α^V = 0 multiplies
        state.setdefault(name, torch.zeros_like(value))
    dense.load_state_dict(state)
    torch.testing.assert_close(sparse(batch), dense(batch), atol=1e-10, rtol=1e-10)
    assert count(sparse) == count(dense) - 3 * 4


def test_sparse_encoder_has_gradients_everywhere(batch):
    encoder = randomised(LinearTransformerPE(evolve_incidence=False))
    encoder(batch)[:, 0].square().mul(torch.arange(batch.num_nodes)).sum().backward()
    gradients = [parameter.grad for parameter in encoder.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("num_steps", [1, 2, 5, 8])
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])  # of entries: dense from the second step, after some steps, never
def test_sparse_walks_are_the_dense_ones(batch, num_steps, share, monkeypatch):
    monkeypatch.setattr(encoder, "_WALK_COLUMNS", (1, 7))
    monkeypatch.setattr(encoder, "_SPARSE_SHARE", share)
    incidence = SparseIncidence.from_batch(batch, torch.float64)
    expected = return_probabilities(incidence.similarity(), num_steps)
    torch.testing.assert_close(sparse_return_probabilities(incidence, num_steps), expected, atol=1e-14, rtol=1e-12)


def test_walks_that_reach_all_nodes_are_not_kept_as_sparse_rows(monkeypatch):
    edges = torch.randint(300, (2, 900), generator=torch.Generator().manual_seed(0))
    kinds, products = [], encoder._products
    batch = GraphTable.from_graphs([{"num_nodes": 300, "edge_index": edges}]).batch([0])
    monkeypatch.setattr(encoder, "_products", lambda *them: kinds.append(type(them[1])) or products(*them))
    sparse_return_probabilities(SparseIncidence.from_batch(batch), 16)
    assert kinds.count(np.ndarray) >= 12  # of 15


@pytest.mark.parametrize("initial", ["walks", "random"])
def test_a_hundred_thousand_edges_pass_forward_and_backward(initial):
    """A dense B or Laplacian of this cylinder would take 10 GB."""
    rows, columns = 500, 101
    node = torch.arange(rows * columns).view(rows, columns)
    across = torch.stack((node.flatten(), node.roll(-1, 1).flatten()))
    down = torch.stack((node[:-1].flatten(), node[1:].flatten()))
    graph = {"num_nodes": rows * columns, "edge_index": torch.cat((across, down), 1)}
    batch = GraphTable.from_graphs([graph]).batch([0])
    encoder = randomised(LinearTransformerPE(initial=initial, num_steps=8, evolve_incidence=False)).eval()
    features = encoder(batch)
    squares = features.double().square().sum(0)
    torch.testing.assert_close(squares, torch.ones(6, dtype=torch.float64), atol=2e-3, rtol=0)
    if initial == "walks":  # turning the cylinder changes nothing
        torch.testing.assert_close(features.view(rows, columns, 6), features.view(rows, columns, 6).roll(7, 1))
    features[0].sum().backward()
    assert encoder.readout.weight.grad.isfinite().all()


def test_same_initial_features_give_equivariant_outputs():
    """Only Φ_0 depends on node numbers, so permuting both B and Φ_0, as the released code does, has no effect."""
    table = tiny_table(tiny_spec())
    permuted, origin = permute_nodes(table)
    first, second = (t.batch(range(len(t))) for t in (table, permuted))
    encoder = randomised(LinearTransformerPE(initial="slots")).double().eval()
    phi = encoder.initial_features(first)
    torch.testing.assert_close(encoder.encode(second, phi[origin]), encoder.encode(first, phi)[origin])
    assert not torch.allclose(encoder(second), encoder(first)[origin], atol=1e-3)


def test_columns_have_unit_norm_over_each_graph(batch):
    features = randomised(LinearTransformerPE())(batch)
    squares = torch.zeros(6, 6).index_add(0, batch.batch, features.detach().square())
    torch.testing.assert_close(squares, torch.ones(6, 6))


def test_return_probabilities_are_powers_of_the_walk_matrix(graph):
    edges = graph.incidence.sign()
    laplacian = edges @ edges.mT
    walk = torch.eye(len(laplacian), dtype=torch.float64) - laplacian / laplacian.diagonal()[:, None]
    expected = [torch.linalg.matrix_power(walk, j).diagonal() for j in (0, 2, 3, 4, 5, 6, 7)]
    torch.testing.assert_close(return_probabilities(laplacian, 7), torch.stack(expected, dim=1))


def test_nodes_without_edges_return_only_at_once():
    assert return_probabilities(torch.zeros(2, 2), 4).tolist() == [[1.0, 0, 0, 0]] * 2


def test_fixed_gaussians_look_gaussian_and_depend_on_the_row_alone():
    rows = fixed_gaussians(torch.arange(4000), 8)
    assert torch.equal(fixed_gaussians(torch.tensor([3, 17]), 8), rows[[3, 17]])
    assert rows.isfinite().all()
    torch.testing.assert_close(rows.mean(0), torch.zeros(8, dtype=torch.float64), atol=0.02, rtol=0)
    torch.testing.assert_close(rows.mT @ rows / 4000, torch.eye(8, dtype=torch.float64), atol=0.05, rtol=0)


def test_random_form_draws_in_training_only(batch):
    encoder = randomised(LinearTransformerPE(initial="random"))
    torch.manual_seed(0)
    first, second = encoder.train()(batch), encoder(batch)
    assert not torch.allclose(first, second, atol=1e-3)
    torch.manual_seed(0)
    assert torch.equal(encoder(batch), first)
    assert torch.equal(encoder.eval()(batch), encoder(batch))


def test_shuffled_slots_are_all_different(batch):
    encoder = LinearTransformerPE(initial="slots", max_nodes=14, shuffle_slots=True)
    with torch.no_grad():
        encoder.slots.copy_(torch.arange(14.0)[:, None].expand(-1, 8))
    slots = encoder.train().initial_features(batch)[:, 0]
    for graph in range(6):
        own = slots[batch.batch == graph]
        assert len(own.unique()) == len(own)
    assert not torch.equal(slots, encoder.initial_features(batch)[:, 0])
    numbers = (torch.arange(batch.num_nodes) - batch.ptr[batch.batch]).float()
    assert torch.equal(encoder.eval().initial_features(batch)[:, 0], numbers)


@pytest.mark.slow
def test_pretraining_on_eigenvectors_lowers_their_loss():
    """Train a few steps towards the first non-trivial eigenvectors of the normalised Laplacian."""
    table = encode(tiny_table(tiny_spec(), 24), [LapPE(2, "symmetric", skip_trivial=True)])
    batch = table.batch(range(len(table)))
    torch.manual_seed(0)
    encoder = LinearTransformerPE(2)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=0.01)
    losses = []
    for _ in range(40):
        loss = eigenvector_loss(encoder(batch), batch.lap_pe_vectors, batch.batch, batch.num_graphs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_it_stands_in_front_of_any_architecture_with_its_own_rate():
    table = tiny_table(SPEC)
    torch.manual_seed(0)
    module = BenchmarkModule(SPEC, Sum, positional_encoding=LinearTransformerPE(3), lr_scales=SCALES)
    groups = module.configure_optimizers()["optimizer"].param_groups
    own = {id(parameter) for parameter in module.positional_encoding.parameters()}
    rates = [group["lr"] for group in groups for parameter in group["params"] if id(parameter) in own]
    assert rates == pytest.approx([1e-2] * len(own))
    batch = table.batch(range(len(table)))
    module(batch).square().sum().backward()
    assert all(parameter.grad is not None for parameter in module.positional_encoding.parameters())


SCALES = {"positional_encoding": 10}
SPEC = BenchmarkSpec("T", "graph-regression", Features((5,)), Features(), "MAE", False, "L1")


def Sum(spec):
    """A minimal architecture that reads dense features."""
    from graphbench import Architecture, Representation
    from graphbench.nn import NodeEncoder

    class _Sum(Architecture):
        def __init__(self):
            super().__init__(spec, 8)
            self.encoder = NodeEncoder(spec, 8)

        def forward(self, batch):
            return Representation(self.encoder(batch))

    return _Sum()


def test_graphs_larger_than_the_slots_are_refused(batch):
    with pytest.raises(BadInput, match="12 nodes, but LinearTransformerPE has 11 slots"):
        LinearTransformerPE(initial="slots", max_nodes=11)(batch)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial": "zeros"}, "initial must be one of"),
        ({"num_loops": 0}, "num_loops must be an integer of at least 1"),
        ({"num_features": 2, "released": True}, "num_features=2"),
        ({"released": True, "evolve_incidence": False}, "in which B evolves"),
    ],
)
def test_bad_options_of_the_encoder_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        LinearTransformerPE(**options)


def test_float32_encoder_agrees_with_float64(batch):
    encoder = randomised(LinearTransformerPE())
    rounded = encoder(batch)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded.double(), encoder.double()(batch), atol=2e-3, rtol=2e-3)


def test_whole_tables_need_no_encoding():
    assert LinearTransformerPE().encodings == ()
    table = GraphTable.from_graphs([{"num_nodes": 2, "edge_index": torch.tensor([[0, 1], [1, 0]])}])
    assert DenseLayout.from_batch(table.batch([0])).is_full


def eigenvector_spec(num_targets):
    spec = tiny_spec("map-recovery")
    return replace(spec, node=Features(), edge=Features(), num_targets=num_targets, loss="eigenvector")


class TestPositions(ArchitectureContract):
    architecture = Positions
    spec = replace(tiny_spec("node-classification"), node=Features(dense=3), num_targets=3)
    most_launches = 50


def test_the_answer_is_what_the_encoding_returns():
    spec = eigenvector_spec(3)
    module = BenchmarkModule(spec, Positions, positional_encoding=LinearTransformerPE(3))
    batch = tiny_table(spec).batch([0, 1, 2])
    torch.testing.assert_close(module(batch), module.positional_encoding(batch))
    assert {name.partition(".")[0] for name, _ in module.named_parameters()} == {"positional_encoding"}


def test_another_width_is_refused():
    with pytest.raises(BadInput, match="positional_encoding with dim 4"):
        BenchmarkModule(eigenvector_spec(4), Positions, positional_encoding=LinearTransformerPE(3))


GRAPH_OF = torch.tensor([0, 0, 0, 1, 1, 3])


@pytest.fixture
def vectors():
    return torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_errors_are_those_of_the_better_sign(vectors):
    target = torch.randn(6, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    errors = sign_invariant_errors(vectors, target, GRAPH_OF, 4)
    assert errors.shape == (4, 2)
    for graph in range(4):
        for column in range(2):
            p, t = vectors[graph == GRAPH_OF, column], target[graph == GRAPH_OF, column]
            expected = min((p - t).square().sum(), (p + t).square().sum())
            assert errors[graph, column].item() == pytest.approx(expected.item())


def test_signs_of_every_graph_and_column_do_not_matter(vectors):
    signs = torch.tensor([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    flipped = signs[GRAPH_OF] * vectors
    assert eigenvector_loss(flipped, vectors, GRAPH_OF, 4).item() == 0
    mixed = vectors * torch.tensor([1.0, -1.0, 1.0, 1.0, 1.0, 1.0], dtype=torch.float64)[:, None]
    assert eigenvector_loss(mixed, vectors, GRAPH_OF, 4) > 0


def test_loss_is_the_mean_over_graphs_of_the_sum_over_columns(vectors):
    target = torch.zeros_like(vectors)
    assert eigenvector_loss(vectors, target, GRAPH_OF, 4).item() == pytest.approx(vectors.square().sum().item() / 4)


def test_loss_has_the_right_gradient(vectors):
    target = vectors.flip(0) + 0.1
    assert torch.autograd.gradcheck(lambda v: eigenvector_loss(v, target, GRAPH_OF, 4), (vectors.requires_grad_(),))


def test_mismatched_shapes_are_refused(vectors):
    with pytest.raises(BadInput, match="predictions and targets"):
        sign_invariant_errors(vectors, vectors[:, :1], GRAPH_OF, 4)
