import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from graphbench.benchmarks.electric_flow import all_pairs, centred
from graphbench.errors import BadInput
from graphbench_linear_transformer import (
    BlockTransformer,
    EfficientTransformer,
    GeneralTransformer,
    MolecularTransformer,
    SparseIncidence,
)
from graphbench_linear_transformer import normalise as absolute_sums
from graphbench_linear_transformer.graphs import incidence_matrix, pad_incidence, sample_incidence

SIZES = ((10, "CSL"), (5, "FC"), (6, "FC"), (8, "CSL"))
FEATURES = 4
NORMS = [("none", "none"), ("frobenius", "columns"), ("frobenius", "frobenius")]


def randomised(model, dtype=torch.float64, size=0.3):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(size * torch.randn(parameter.shape, generator=generator))
    return model.to(dtype)


@pytest.fixture
def graphs():
    """Return graphs of different sizes: a list of B and of Φ_0, both scaled so that nothing diverges."""
    generator = torch.Generator().manual_seed(0)
    incidences = [0.3 * sample_incidence(family, 1, n, generator)[0] for n, family in SIZES]
    return incidences, [0.3 * torch.randn(n, FEATURES, generator=generator, dtype=torch.float64) for n, _ in SIZES]


def padded(graphs):
    incidences, features = graphs
    incidence, sizes = pad_incidence(incidences)
    return incidence, pad_incidence(features)[0], sizes


def cut(model, num_edges):
    """Return the general transformer with the weights of the first `num_edges` edges and of all features."""
    kept = torch.cat([torch.arange(num_edges), torch.arange(model.num_edges, model.num_edges + model.num_features)])
    small = GeneralTransformer(
        len(model.layers), num_edges, model.num_features, model.incidence_norm, model.feature_norm, model.scale_by_nodes
    ).double()
    for ours, theirs in zip(small.parameters(), model.parameters(), strict=True):
        ours.data = theirs.data[kept][:, kept]
    return small


@pytest.mark.parametrize(("incidence_norm", "feature_norm"), NORMS)
@pytest.mark.parametrize("scale_by_nodes", [False, True])
def test_general_batch_of_different_sizes_equals_one_by_one(graphs, incidence_norm, feature_norm, scale_by_nodes):
    incidence, features, sizes = padded(graphs)
    model = randomised(
        GeneralTransformer(3, incidence.shape[-1], FEATURES, incidence_norm, feature_norm, scale_by_nodes), size=0.1
    )
    together = model(incidence, features, sizes)
    for row, (b, phi) in enumerate(zip(*graphs, strict=True)):
        n, d = b.shape
        alone = cut(model, d)(b, phi)
        for whole, own, columns in zip(together, alone, (d, FEATURES), strict=True):
            torch.testing.assert_close(whole[row, :n, :columns], own, atol=1e-12, rtol=1e-10)
            assert whole[row, n:].eq(0).all()
            assert whole[row, :, columns:].eq(0).all()


@pytest.mark.parametrize("kind", ["efficient", "scaled by nodes", "molecular"])
def test_batch_of_different_sizes_equals_one_by_one(graphs, kind):
    incidence, features, sizes = padded(graphs)
    if kind == "molecular":
        model = randomised(MolecularTransformer(2, FEATURES, 2))
        together, rest = model(incidence, features), ()
    else:
        model = randomised(EfficientTransformer(3, FEATURES, scale_by_nodes=kind != "efficient"))
        together, rest = model(incidence, features, sizes), None
    for row, (b, phi) in enumerate(zip(*graphs, strict=True)):
        n, d = b.shape
        alone = model(b, phi, *(() if rest is not None else (torch.tensor(n),)))
        torch.testing.assert_close(together[0].matrix[row, :n, :d], alone[0].matrix, atol=1e-12, rtol=1e-10)
        torch.testing.assert_close(together[1][row, :n], alone[1], atol=1e-12, rtol=1e-10)
        assert together[0].matrix[row, n:].eq(0).all()
        assert together[0].matrix[row, :, d:].eq(0).all()
        assert together[1][row, n:].eq(0).all()


@pytest.mark.parametrize("kind", [EfficientTransformer, GeneralTransformer])
def test_a_graph_without_nodes_changes_no_gradient(kind):
    generator = torch.Generator().manual_seed(0)
    incidence = torch.cat([sample_incidence("FC", 1, 4, generator), torch.zeros(1, 4, 6, dtype=torch.float64)])
    features = torch.randn(2, 4, FEATURES, generator=generator, dtype=torch.float64)
    sizes = (6, FEATURES) if kind is GeneralTransformer else (FEATURES,)
    model = randomised(kind(2, *sizes, scale_by_nodes=True))
    gradients = []
    for graphs in (1, 2):
        out = model(incidence[:graphs], features[:graphs], torch.tensor([4, 0])[:graphs])[1]
        gradients.append(torch.autograd.grad(out[0].sum(), list(model.parameters()), allow_unused=True))
    torch.testing.assert_close(gradients[1], gradients[0])


def test_rows_beyond_a_graph_are_ignored(graphs):
    incidence, features, sizes = padded(graphs)
    model = randomised(EfficientTransformer(2, FEATURES))
    dirty = features.clone()
    dirty[1, 5:] = 7.0
    assert torch.equal(model(incidence, dirty, sizes)[1], model(incidence, features, sizes)[1])


@pytest.mark.parametrize("kind", ["efficient", "molecular"])
def test_lemma_10_edges_permute_with_b_and_leave_features(graphs, kind):
    b, phi = graphs[0][0], graphs[1][0]
    order = torch.randperm(b.shape[1], generator=torch.Generator().manual_seed(3))
    model = EfficientTransformer(4, FEATURES) if kind == "efficient" else MolecularTransformer(2, FEATURES, 2)
    model = randomised(model)
    (incidence, features), (permuted, same) = model(b, phi), model(b[:, order], phi)
    torch.testing.assert_close(permuted.matrix, incidence.matrix[:, order], atol=1e-13, rtol=1e-12)
    torch.testing.assert_close(same, features, atol=1e-13, rtol=1e-12)


def test_lemma_10_fails_for_the_general_form(graphs):
    b, phi = graphs[0][0], graphs[1][0]
    model = randomised(GeneralTransformer(2, b.shape[1], FEATURES))
    assert not torch.allclose(model(b.flip(1), phi)[1], model(b, phi)[1], atol=1e-3)


@pytest.mark.parametrize("kind", ["general", "efficient", "molecular", "flipped edge"])
def test_nodes_permute_with_everything(graphs, kind):
    b, phi = graphs[0][0], graphs[1][0]
    order = torch.randperm(len(b), generator=torch.Generator().manual_seed(4))
    if kind == "general":
        model = randomised(GeneralTransformer(3, b.shape[1], FEATURES, "frobenius", "columns"))
    else:
        model = EfficientTransformer(3, FEATURES) if kind == "efficient" else MolecularTransformer(3, FEATURES, 3)
        model = randomised(model)
    other = b[order] * (-1 if kind == "flipped edge" else 1)
    torch.testing.assert_close(model(other, phi[order])[1], model(b, phi)[1][order], atol=1e-12, rtol=1e-10)


@pytest.fixture
def edges():
    """Return a batch of two graphs as edges, and the same as a padded matrix."""
    index = all_pairs(6)[:, ::2]
    resistance = torch.linspace(0.5, 2, index.shape[1], dtype=torch.float64)
    one, two = incidence_matrix(index, 6, resistance), incidence_matrix(index[:, :5], 6, resistance[:5])
    dense, _ = pad_incidence([one, two])
    tail, head = torch.cat([index, index[:, :5] + 6], dim=1)
    weight = torch.cat([resistance, resistance[:5]]).rsqrt()
    return dense, SparseIncidence(tail, head, weight, (2, 6))


@pytest.fixture
def initial():
    return torch.randn(2, 6, FEATURES, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def test_sparse_path_equals_dense_path(edges, initial):
    dense, sparse = edges
    model = randomised(EfficientTransformer(4, FEATURES, evolve_incidence=False, incidence_norm="frobenius"))
    state, features = model(sparse, initial)
    expected_state, expected = model(dense, initial)
    torch.testing.assert_close(features, expected, atol=1e-12, rtol=1e-10)
    torch.testing.assert_close(state.similarity(), expected_state.similarity(), atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("kind", ["efficient", "molecular"])
def test_path_without_b_equals_the_one_with_it(edges, initial, kind):
    dense, sparse = edges
    if kind == "molecular":
        model = randomised(MolecularTransformer(3, FEATURES, 3))
    else:
        model = randomised(EfficientTransformer(4, FEATURES, incidence_norm="frobenius", feature_norm="columns"))
    initial.requires_grad_()
    gradients = []
    for incidence in (dense, sparse.evolving()):
        state, features = model(incidence, initial)
        torch.testing.assert_close(features, model(dense, initial)[1], atol=1e-10, rtol=1e-9)
        torch.testing.assert_close(
            state.absolute_sums(), model(dense, initial)[0].absolute_sums(), atol=1e-10, rtol=1e-9
        )
        loss = (features**3).sum() + state.similarity().square().sum()
        gradients.append(torch.autograd.grad(loss, [initial, *model.parameters()]))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-8, rtol=1e-8)


class LargestTensor(TorchDispatchMode):
    """Record the size of the largest tensor that any operation returns."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.numbers = max(
            [
                self.numbers,
                *(t.numel() for t in (out if isinstance(out, tuple) else (out,)) if isinstance(t, torch.Tensor)),
            ]
        )
        return out


@pytest.mark.parametrize("kind", ["sparse", "efficient", "molecular"])
def test_no_matrix_with_a_column_an_edge_is_stored(kind, monkeypatch):
    monkeypatch.setattr(absolute_sums, "_BLOCK_NUMBERS", 2000)
    n = 40
    index = all_pairs(n)
    sparse = SparseIncidence.from_edges(index, n)
    phi = torch.randn(n, FEATURES, requires_grad=True)
    model = {
        "sparse": EfficientTransformer(2, FEATURES, evolve_incidence=False),
        "efficient": EfficientTransformer(2, FEATURES),
        "molecular": MolecularTransformer(1, FEATURES, 2),
    }[kind]
    with LargestTensor() as mode:
        state = sparse if kind == "sparse" else sparse.evolving()
        model(state, phi)[1].square().sum().backward()
    assert mode.numbers < n * index.shape[1] / 8
    assert mode.numbers <= max(n * n, FEATURES * index.shape[1], 2000)


@pytest.mark.parametrize("kind", ["general", "efficient", "molecular"])
def test_float32_agrees_with_float64(graphs, kind):
    incidence, features, _ = padded(graphs)
    model = {
        "general": GeneralTransformer(3, incidence.shape[-1], FEATURES, "frobenius", "columns"),
        "efficient": EfficientTransformer(3, FEATURES, feature_norm="columns"),
        "molecular": MolecularTransformer(2, FEATURES, 2),
    }[kind]
    exact = randomised(model)(incidence, features)[1]
    rounded = model.float()(incidence.float(), features.float())[1]
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded.double(), exact, atol=1e-4, rtol=1e-4)


def test_layers_of_the_molecular_transformer_are_looped(graphs):
    b, phi = graphs[0][0], graphs[1][0]
    looped, unrolled = randomised(MolecularTransformer(2, FEATURES, 3)), MolecularTransformer(6, FEATURES, 1).double()
    for number, layer in enumerate(unrolled.layers):
        layer.load_state_dict(looped.layers[number // 3].state_dict())
    torch.testing.assert_close(looped(b, phi)[1], unrolled(b, phi)[1])


def test_normalised_columns_have_unit_norm(graphs):
    incidence, features, sizes = padded(graphs)
    model = randomised(GeneralTransformer(2, incidence.shape[-1], FEATURES, "frobenius", "columns"))
    b, phi = model(incidence, features, sizes)
    torch.testing.assert_close(phi.norm(dim=1), torch.ones(4, FEATURES, dtype=torch.float64))
    torch.testing.assert_close(b.norm(dim=(1, 2)), torch.ones(4, dtype=torch.float64))


def test_compiled_transformer_agrees():
    model, b, phi = randomised(EfficientTransformer(2, FEATURES)), torch.rand(6, 9).double(), torch.rand(6, 4).double()
    compiled = torch.compile(lambda b, phi: model(b, phi)[1], backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(b, phi), model(b, phi)[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GeneralTransformer(1, 4, 2, feature_norm="rows"), "feature_norm must be one of"),
        (lambda: EfficientTransformer(1, 2, incidence_norm="l1"), "incidence_norm must be one of"),
        (lambda: GeneralTransformer(1, 4, 2)(torch.rand(3, 5), torch.rand(3, 2)), "made for 4 edges and 2 features"),
        (lambda: GeneralTransformer(1, 4, 2)(torch.rand(3, 4), torch.rand(4, 2)), "of the same nodes"),
        (lambda: EfficientTransformer(1, 2)(torch.rand(3, 4), torch.rand(3, 2).double()), "use one dtype for both"),
    ],
)
def test_bad_input_of_transformers_is_refused(call, message):
    with pytest.raises(BadInput, match=message):
        call()


def test_block_transformer_runs_its_layers_in_turn():
    model, x = randomised(BlockTransformer(2, 3)), torch.rand(4, 6).double()
    torch.testing.assert_close(model(x), model.layers[1](model.layers[0](x)))


def test_demands_of_the_synthetic_experiments_keep_balance(graphs):
    """With 1^T B = 0 and balanced features every layer keeps 1^T Φ = 0: flow conservation."""
    incidence = sample_incidence("FC", 2, generator=torch.Generator().manual_seed(0))
    psi = torch.randn(2, 10, FEATURES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    psi = centred(psi, torch.tensor([10, 10]))
    model = randomised(GeneralTransformer(3, 45, FEATURES, "frobenius", "frobenius", True))
    assert model(incidence, psi)[1].sum(1).abs().max() < 1e-12


def test_frozen_layers_leave_b_its_direction_and_share_one_norm(graphs):
    incidence, features, sizes = padded(graphs)
    d = incidence.shape[-1]
    model = randomised(GeneralTransformer(2, d, FEATURES, frozen=True), size=0.1)
    last_b, last_phi = model(incidence, features, sizes)
    for row, (b, phi) in enumerate(zip(*graphs, strict=True)):
        n, own = b.shape
        z = torch.cat([torch.nn.functional.pad(b, (0, d - own)), phi], dim=1).T
        present = torch.ones(d + FEATURES, dtype=torch.float64)
        present[own:d] = 0
        for layer in model.layers:
            v, q, k, r = (
                torch.diag(present) @ w @ torch.diag(present)
                for w in (layer.value, layer.query, layer.key, layer.residual)
            )
            step = v @ z @ z.T @ q.T @ k @ z + r @ z
            step[:d] = 0
            z = (z + step) / torch.linalg.matrix_norm(z + step)
        torch.testing.assert_close(last_phi[row, :n], z[d:].T, atol=1e-12, rtol=1e-10)
        torch.testing.assert_close(last_b[row, :n], z[:d].T, atol=1e-12, rtol=1e-10)
        torch.testing.assert_close(last_b[row, :n, :own] / last_b[row].norm(), b / b.norm())
    with pytest.raises(BadInput, match="must be 'none'"):
        GeneralTransformer(2, d, FEATURES, "frobenius", frozen=True)


def test_features_must_be_blocks_of_equal_width(graphs):
    with pytest.raises(BadInput, match="made for 3 features"):
        EfficientTransformer(2, 3).double()(graphs[0][0], graphs[1][0])
