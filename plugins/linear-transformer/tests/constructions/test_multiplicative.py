"""Lemmas 4 and 5 against repeated squaring and cubing, their bounds and their rates."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphbench.errors import BadInput
from graphbench_linear_transformer import bounds
from graphbench_linear_transformer.constructions import electric_flow_fast, heat_kernel_fast
from graphbench_linear_transformer.graphs import pad_incidence, sample_incidence

FORMS = ("general", "efficient")
ROUNDING = 1e-11


def spectral(matrix):
    return torch.linalg.matrix_norm(matrix, ord=2).item()


def sized(form, num_nodes):
    return {"form": form} | ({"num_nodes": num_nodes} if form == "general" else {})


def repeated_squaring(laplacian, num_layers, step):
    n = len(laplacian)
    projection = np.eye(n) - 1 / n
    power, product = projection - step * laplacian, step * projection
    for _ in range(num_layers):
        product = product + power @ product
        power = power @ power
    return product


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_layers", [1, 2, 5, 8, 12])
def test_lemma_4_is_repeated_squaring(graph, num_layers, form):
    answer = electric_flow_fast(
        num_layers=num_layers, lambda_max=graph.lambda_max, **sized(form, len(graph.laplacian))
    )(graph.laplacian)
    expected = repeated_squaring(graph.laplacian.numpy(), num_layers, 1 / graph.lambda_max)
    np.testing.assert_allclose(answer.numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_lemma_4_sums_two_to_the_l_steps_of_gradient_descent(graph, form):
    step, n = 1 / graph.lambda_max, len(graph.laplacian)
    x, eye = torch.zeros(n, n, dtype=torch.float64), torch.eye(n, dtype=torch.float64) - 1 / n
    for _ in range(2**5):
        x = x - step * (graph.laplacian @ x - eye)
    torch.testing.assert_close(
        electric_flow_fast(num_layers=5, step=step, **sized(form, len(graph.laplacian)))(graph.laplacian), x
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_layers", [1, 3, 6, 9])
@pytest.mark.parametrize("centred", [True, False])
def test_lemma_5_is_a_power_of_three(graph, num_layers, form, centred):
    time = 0.99 * 3**num_layers / graph.lambda_max
    model = heat_kernel_fast(num_layers=num_layers, time=time, centred=centred, **sized(form, len(graph.laplacian)))
    base = np.eye(len(graph.laplacian)) - time / 3**num_layers * graph.laplacian.numpy()
    expected = np.linalg.matrix_power(base, 3**num_layers)
    np.testing.assert_allclose(model(graph.laplacian).numpy(), expected, atol=1e-10 * max(1, np.abs(expected).max()))


DEPTHS = (*range(1, 13), 20, 40, 60)


def test_lemma_4_meets_its_bound_for_1_to_60_layers(graph):
    step, exact = 1 / graph.lambda_max, graph.function(lambda v: 1 / v)
    for num_layers in DEPTHS:
        error = spectral(electric_flow_fast(num_layers=num_layers, step=step)(graph.laplacian) - exact)
        assert error <= bounds.electric_flow_fast(num_layers, step, graph.lambda_min) + ROUNDING


def test_lemma_5_meets_its_bound_for_1_to_60_layers(graph):
    applied = 0
    for num_layers in DEPTHS:
        for time in (0.1, 1.0):
            bound = bounds.heat_kernel_fast(num_layers, time, graph.lambda_max)
            if bound == np.inf:
                with pytest.raises(BadInput, match=r"3\^L >= s λmax"):
                    heat_kernel_fast(num_layers=num_layers, time=time)(graph.laplacian)
                continue
            exact = (graph.vectors * torch.exp(-time * graph.values)) @ graph.vectors.mT
            error = spectral(heat_kernel_fast(num_layers=num_layers, time=time)(graph.laplacian) - exact)
            assert error <= bound + ROUNDING
            applied += 1
    assert applied >= 20


def test_lemma_5_as_printed_meets_its_bound_until_rounding_takes_over(graph):
    time = 0.1
    exact = (graph.vectors * torch.exp(-time * graph.values)) @ graph.vectors.mT

    def error(num_layers, centred):
        model = heat_kernel_fast(num_layers=num_layers, time=time, centred=centred)
        return spectral(model(graph.laplacian) - exact)

    for num_layers in range(2, 13):
        bound = bounds.heat_kernel_fast(num_layers, time, graph.lambda_max)
        assert error(num_layers, centred=False) <= bound + ROUNDING
    assert error(40, centred=False) > 0.01  # 3^-40 is lost when added to 1: the answer is the identity
    assert error(40, centred=True) < 1e-12


def test_lemma_4_is_doubly_exponential(graph):
    """The logarithm of the relative error doubles with every layer: error_L = (1 - δ λmin)^(2^L) / λmin."""
    step, exact = 1 / graph.lambda_max, graph.function(lambda v: 1 / v)
    logs = []
    for num_layers in range(1, 12):
        error = spectral(electric_flow_fast(num_layers=num_layers, step=step)(graph.laplacian) - exact)
        if error * graph.lambda_min > 1e-9:
            logs.append(np.log(error * graph.lambda_min))
    np.testing.assert_allclose(
        logs, [2**layer * np.log1p(-step * graph.lambda_min) for layer in range(1, len(logs) + 1)], rtol=1e-5
    )
    assert len(logs) >= 4


def test_lemma_5_gains_a_factor_of_three_a_layer(graph):
    time = 1 / graph.lambda_max
    exact = (graph.vectors * torch.exp(-time * graph.values)) @ graph.vectors.mT
    models = [heat_kernel_fast(num_layers=num_layers, time=time) for num_layers in range(6, 20)]
    errors = np.array([spectral(model(graph.laplacian) - exact) for model in models])
    np.testing.assert_allclose(errors[:-1] / errors[1:], 3, rtol=0.01)


def test_lemma_4_weights_are_those_of_the_text():
    """As printed except V: its second identity is in the block (Φ, Φ), not (Φ, Γ)."""
    n, zero, eye = 4, np.zeros((4, 4)), np.eye(4)
    layer = electric_flow_fast(num_layers=2, step=0.1, **sized("general", n)).transformer.layers[0]
    value = np.block([[eye, zero, zero], [zero, zero, zero], [zero, zero, eye]])
    similarity = np.block([[zero, zero, zero], [eye, zero, zero], [zero, zero, zero]])
    residual = np.block([[-eye, zero, zero], [zero, zero, zero], [zero, zero, zero]])
    np.testing.assert_array_equal(layer.value.detach().numpy(), value)
    np.testing.assert_array_equal((layer.query.T @ layer.key).detach().numpy(), similarity)
    np.testing.assert_array_equal(layer.residual.detach().numpy(), residual)


def test_lemma_4_with_v_as_printed_does_not_invert(graph):
    """With V_ΦΓ = I instead of V_ΦΦ the answer would be δ + sum Γ^(2^i), far from L†."""
    n, step = len(graph.laplacian), 1 / graph.lambda_max
    model = electric_flow_fast(num_layers=8, step=step, **sized("general", n)).transformer
    with torch.no_grad():
        model.layers[0].value[2 * n :, 2 * n :] = 0
        model.layers[0].value[2 * n :, :n] = torch.eye(n)
    eye = torch.eye(n, dtype=torch.float64)
    x = torch.cat([eye - 1 / n - step * graph.laplacian, eye, step * (eye - 1 / n)], dim=1)
    answer = model(x[:, :0], x)[1][:, 2 * n :]
    powers = [torch.linalg.matrix_power(x[:, :n], 2 ** (i + 1)) for i in range(8)]
    torch.testing.assert_close(answer, step * (eye - 1 / n) + sum(powers))
    exact = graph.function(lambda v: 1 / v)
    assert spectral(answer - exact) > 100 * spectral(
        electric_flow_fast(num_layers=8, step=step)(graph.laplacian) - exact
    )


def test_lemma_4_with_the_third_block_as_printed_keeps_the_constant(graph):
    """From δI instead of δ(I - 11^T / n) the answer maps 1 to δ 1; on the range of L nothing changes."""
    n, step = len(graph.laplacian), 1 / graph.lambda_max
    eye, model = torch.eye(n, dtype=torch.float64), electric_flow_fast(num_layers=6, step=step, **sized("general", n))
    x = torch.cat([eye - 1 / n - step * graph.laplacian, eye, step * eye], dim=1)
    printed = model.transformer(x[:, :0], x)[1][:, 2 * n :]
    torch.testing.assert_close(printed @ torch.ones(n).double(), step * torch.ones(n).double())
    ours = model(graph.laplacian)
    torch.testing.assert_close(printed - ours, torch.full((n, n), step / n, dtype=torch.float64))
    assert ours.sum(1).abs().max() < 1e-12


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("make", "options"), [(electric_flow_fast, {"step": 0.005}), (heat_kernel_fast, {"time": 0.3})]
)
def test_padded_laplacians_equal_single_ones(make, options, form):
    generator = torch.Generator().manual_seed(0)
    graphs = [sample_incidence("CSL", 1, 10, generator)[0], sample_incidence("FC", 1, 4, generator)[0]]
    incidence, sizes = pad_incidence(graphs)
    together = make(num_layers=7, **sized(form, 10), **options)(incidence @ incidence.mT, sizes)
    for row, b in enumerate(graphs):
        n = len(b)
        alone = make(num_layers=7, **sized(form, n), **options)(b @ b.mT)
        torch.testing.assert_close(together[row, :n, :n], alone, atol=1e-12, rtol=1e-10)
        assert together[row, n:].eq(0).all()
        assert together[row, :, n:].eq(0).all()


def test_efficient_blocks_do_not_depend_on_the_graph():
    model = electric_flow_fast(num_layers=4, step=0.01, form="efficient")
    assert sum(parameter.numel() for parameter in model.parameters()) == 36


def test_general_form_is_made_for_one_number_of_nodes(graph):
    with pytest.raises(BadInput, match="made for num_nodes=3"):
        electric_flow_fast(num_layers=4, lambda_max=graph.lambda_max, **sized("general", 3))(graph.laplacian)


def test_what_is_no_laplacian_of_a_connected_graph_is_refused(graph):
    model = electric_flow_fast(num_layers=4, lambda_max=2 * graph.lambda_max)
    n = len(graph.laplacian)
    cases = [
        (graph.laplacian + torch.eye(n), "rows of a Laplacian add up to 0"),
        (graph.laplacian.triu(), "not symmetric"),
        (graph.laplacian * torch.nan, "not finite"),
        (torch.block_diag(graph.laplacian, graph.laplacian), "not connected"),
    ]
    for matrix, message in cases:
        with pytest.raises(BadInput, match=message):
            model(matrix)
    with pytest.raises(BadInput, match="allows eigenvalues"):
        electric_flow_fast(num_layers=4, step=1.3 / graph.lambda_max)(graph.laplacian)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: electric_flow_fast(num_layers=2), "either step or lambda_max"),
        (lambda: heat_kernel_fast(num_layers=2, time=-1.0), "time must be a positive number"),
        (lambda: heat_kernel_fast(num_layers=0, time=1.0), "num_layers must be an integer of at least 1"),
        (
            lambda: electric_flow_fast(num_layers=2, step=0.1)(torch.rand(3, 4)),
            r"Expected a Laplacian \[\.\.\., n, n\]",
        ),
    ],
)
def test_bad_input_of_multiplicative_forms_is_refused(call, message):
    with pytest.raises(BadInput, match=message):
        call()
