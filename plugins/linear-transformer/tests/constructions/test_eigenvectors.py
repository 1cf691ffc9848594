"""Lemma 6 and Corollary 7 against the block power method with NumPy's QR."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphbench.errors import BadInput
from graphbench_linear_transformer import MolecularTransformer
from graphbench_linear_transformer.constructions import bottom_eigenvectors, top_eigenvectors

FORMS = ("general", "efficient")
K = 3


def sized(form, num_edges):
    return {"form": form} | ({"num_edges": num_edges} if form == "general" else {})


def power_method(matrix, initial, steps):
    """Run the block power method; the last column comes first, as in Gram-Schmidt from the last column to the first."""
    columns = initial.numpy()
    for _ in range(steps):
        q, r = np.linalg.qr((matrix.numpy() @ columns)[:, ::-1])
        columns = (q * np.sign(np.diag(r)))[:, ::-1]
    return torch.from_numpy(columns.copy())


@pytest.fixture
def initial(graph):
    return torch.randn(len(graph.laplacian), K, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("steps", [1, 2, 5, 15])
def test_lemma_6_is_the_block_power_method(graph, initial, steps, form):
    answer = top_eigenvectors(num_layers=steps * (K + 1), k=K, **sized(form, graph.incidence.shape[1]))(
        graph.incidence, initial
    )
    torch.testing.assert_close(answer, power_method(graph.laplacian, initial, steps), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("steps", [1, 2, 5, 15])
def test_corollary_7_is_the_block_power_method_on_the_shifted_laplacian(graph, initial, steps, form):
    shift = 1.1 * graph.lambda_max
    answer = bottom_eigenvectors(num_layers=steps * (K + 1), k=K, shift=shift, **sized(form, graph.incidence.shape[1]))(
        graph.incidence, initial
    )
    shifted = shift * torch.eye(len(graph.laplacian), dtype=torch.float64) - graph.laplacian
    torch.testing.assert_close(answer, power_method(shifted, initial, steps), atol=1e-10, rtol=1e-10)


def residuals(laplacian, columns):
    """`‖L φ - (φ^T L φ) φ‖` of every column: 0 for eigenvectors, however close their eigenvalues are."""
    image = laplacian @ columns
    return (image - columns * (columns * image).sum(0)).norm(dim=0)


@pytest.mark.parametrize("form", FORMS)
def test_top_eigenvectors_converge(graph, initial, form):
    answer = top_eigenvectors(num_layers=400 * (K + 1), k=K, **sized(form, graph.incidence.shape[1]))(
        graph.incidence, initial
    )
    assert residuals(graph.laplacian, answer).max() < 1e-2 * graph.lambda_max
    rayleigh = (answer * (graph.laplacian @ answer)).sum(0)
    torch.testing.assert_close(rayleigh, graph.values[-K:], rtol=1e-3, atol=0)
    torch.testing.assert_close(answer.mT @ answer, torch.eye(K, dtype=torch.float64), atol=1e-10, rtol=0)


def test_bottom_eigenvectors_converge(graph, initial):
    model = bottom_eigenvectors(num_layers=1500 * (K + 1), k=K, shift=graph.lambda_max, form="efficient")
    answer = model(graph.incidence, initial)
    constant = torch.full((len(answer),), len(answer) ** -0.5, dtype=torch.float64)
    torch.testing.assert_close(answer[:, -1].abs(), constant, atol=1e-8, rtol=0)
    assert residuals(graph.laplacian, answer).max() < 1e-2
    rayleigh = (answer * (graph.laplacian @ answer)).sum(0)
    torch.testing.assert_close(rayleigh.flip(0), graph.values[:K], atol=1e-3, rtol=1e-3)


def test_layers_between_two_steps_orthogonalise_one_column_each(graph, initial):
    """After 1 + j layers the last j columns are orthonormal (Lemma 8)."""
    for layers in range(1, K + 2):
        answer = top_eigenvectors(num_layers=layers, k=K)(graph.incidence, initial)
        done = answer[:, K - layers + 1 :]
        torch.testing.assert_close(done.mT @ done, torch.eye(layers - 1, dtype=torch.float64), atol=1e-12, rtol=0)
        torch.testing.assert_close(answer.norm(dim=0), torch.ones(K, dtype=torch.float64))


@pytest.mark.parametrize("name", ["top", "bottom"])
def test_weights_are_those_of_equation_14_corrected(name):
    """W^R has 0 for B (printed: I), and Corollary 7's V has the sign that (μI - L)Φ needs."""
    d, shift, zero = 5, 3.0, np.zeros
    model = (
        top_eigenvectors(num_layers=2, k=K, **sized("general", d))
        if name == "top"
        else bottom_eigenvectors(num_layers=2, k=K, shift=shift, **sized("general", d))
    )
    layer = model.transformer.layers[0]
    sign, residual = (1, -1.0) if name == "top" else (-1, shift - 1)
    eye, corner = np.eye(K), zero((d, K))
    np.testing.assert_array_equal(layer.value.detach(), np.block([[zero((d, d)), corner], [corner.T, sign * eye]]))
    np.testing.assert_array_equal(
        layer.residual.detach(), np.block([[zero((d, d)), corner], [corner.T, residual * eye]])
    )
    similarity = (layer.query.T @ layer.key).detach()
    np.testing.assert_array_equal(similarity, np.block([[np.eye(d), corner], [corner.T, zero((K, K))]]))


def test_gram_schmidt_layers_are_those_of_lemma_8():
    d = 5
    layer = top_eigenvectors(num_layers=K + 1, k=K, **sized("general", d)).transformer.layers[K]  # i = 1
    similarity = (layer.query.T @ layer.key).detach()
    assert layer.value.detach().nonzero().tolist() == [[d, d]]
    assert layer.value[d, d] == -1
    assert similarity.nonzero().tolist() == [[d + 1, d + 1], [d + 2, d + 2]]
    assert layer.residual.detach().eq(0).all()


def test_molecular_form_does_subspace_iteration_on_the_normalised_laplacian(graph, initial):
    """Appendix 14.2: with (16) the construction of Lemma 6 finds eigenvectors of D^(-1/2) L D^(-1/2)."""
    steps = 12
    model = MolecularTransformer(num_layers=K + 1, num_features=K, num_loops=1).double()
    with torch.no_grad():
        for number, layer in enumerate(model.layers):
            product = number == 0
            layer.alpha.fill_(1.0)
            layer.beta.copy_(torch.tensor([0.0, 0.0, float(product), float(not product)]))
            layer.residual.fill_(-1.0 if product else 0.0)
            column = K - number
            layer.value.copy_(torch.ones(K) if product else -(torch.arange(K) == column).double())
            layer.query.copy_((torch.arange(K) > column).double())
    state, features = graph.incidence, initial
    for _ in range(steps):
        state, features = model(state, features)
    root = graph.incidence.abs().sum(1) ** -0.5
    expected = power_method(root[:, None] * graph.laplacian * root, initial, steps)
    torch.testing.assert_close(features, expected, atol=1e-10, rtol=1e-10)


def test_shifts_below_the_largest_eigenvalue_are_refused(graph, initial):
    with pytest.raises(BadInput, match=r"shift=.* allows eigenvalues"):
        bottom_eigenvectors(num_layers=8, k=K, shift=0.5 * graph.lambda_max)(graph.incidence, initial)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: top_eigenvectors(num_layers=4, k=0), "k must be an integer of at least 1"),
        (lambda: bottom_eigenvectors(num_layers=4, k=2, shift=0.0), "shift must be a positive number"),
        (lambda: top_eigenvectors(num_layers=4, k=2)(torch.rand(5, 6), torch.rand(5, 3)), "k = 2 columns"),
        (lambda: top_eigenvectors(num_layers=4, k=3)(torch.rand(3, 6), torch.rand(3, 3)), "rank at most 2"),
        (lambda: bottom_eigenvectors(num_layers=4, k=4, shift=1.0)(torch.rand(3, 6), torch.rand(3, 4)), "too many"),
    ],
)
def test_bad_input_of_subspace_iteration_is_refused(call, message):
    with pytest.raises(BadInput, match=message):
        call()
