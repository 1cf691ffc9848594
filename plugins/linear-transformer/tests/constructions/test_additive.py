"""Lemmas 1 to 3 against the algorithms themselves, their bounds, and the matrices of the paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from graphbench.benchmarks.electric_flow import all_pairs
from graphbench.errors import BadInput
from graphbench_linear_transformer import SparseIncidence, bounds
from graphbench_linear_transformer.constructions import electric_flow, heat_kernel, resistive_embedding
from graphbench_linear_transformer.graphs import incidence_matrix, pad_incidence, sample_incidence

#: Numbers of layers at which a bound is checked, closer together if it falls faster.
DEPTHS = (1, 2, 3, 5, 8, 13, 21, 34, 60)
FORMS = ("general", "efficient")
#: Rounding error in float64 of an answer of size 1.
ROUNDING = 1e-12


def sized(form, graph):
    """Return the options of a form for three demands on a graph: the general form needs its sizes."""
    sizes = {"num_edges": graph.incidence.shape[1], "num_demands": 3} if form == "general" else {}
    return {"form": form} | sizes


def gradient_descent(laplacian, demands, steps, step):
    x = torch.zeros_like(demands)
    for _ in range(steps):
        x = x - step * (laplacian @ x - demands)
    return x


def root_series(laplacian, demands, terms, step):
    total, power = torch.zeros_like(demands), demands
    for term in range(terms):
        total = total + math.sqrt(step) * math.comb(2 * term, term) / 4**term * power
        power = power - step * laplacian @ power
    return total


def heat_series(laplacian, demands, terms, time):
    total, summand = torch.zeros_like(demands), demands
    for term in range(terms):
        total = total + summand
        summand = -time / (term + 1) * laplacian @ summand
    return total


def worst(answer, exact, demands):
    """Return the largest error of a column per unit of its demand's norm."""
    return ((answer - exact).norm(dim=0) / demands.norm(dim=0)).max().item()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_layers", [1, 2, 7, 30])
def test_lemma_1_is_gradient_descent(graph, num_layers, form):
    step = 0.9 / graph.lambda_max
    answer = electric_flow(num_layers=num_layers, step=step, **sized(form, graph))(graph.incidence, graph.demands)
    expected = gradient_descent(graph.laplacian, graph.demands, num_layers, step)
    torch.testing.assert_close(answer, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_layers", [1, 2, 7, 30])
def test_lemma_2_is_the_power_series_of_the_root(graph, num_layers, form):
    model = resistive_embedding(num_layers=num_layers, lambda_max=graph.lambda_max, **sized(form, graph))
    expected = root_series(graph.laplacian, graph.demands, num_layers, 1 / graph.lambda_max)
    torch.testing.assert_close(model(graph.incidence, graph.demands), expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_layers", [1, 2, 7, 30])
def test_lemma_3_is_the_power_series_of_the_heat_kernel(graph, num_layers, form):
    time = num_layers / (8 * graph.lambda_max)
    expected = heat_series(graph.laplacian, graph.demands, num_layers, time)
    answer = heat_kernel(num_layers=num_layers, time=time, **sized(form, graph))(graph.incidence, graph.demands)
    torch.testing.assert_close(answer, expected, atol=1e-10, rtol=1e-10)


def test_lemma_1_meets_its_bound_for_1_to_60_layers(graph):
    step, exact = 1 / graph.lambda_max, graph.function(lambda v: 1 / v) @ graph.demands
    for num_layers in DEPTHS:
        answer = electric_flow(num_layers=num_layers, step=step)(graph.incidence, graph.demands)
        error = worst(answer, exact, graph.demands)
        assert error <= bounds.electric_flow(num_layers, step, graph.lambda_min) + ROUNDING
        if graph.lambda_min >= 1:
            assert error <= bounds.electric_flow_printed(num_layers, step, graph.lambda_min) + ROUNDING


def test_printed_bound_of_lemma_1_holds_for_the_energy(graph):
    step, exact = 1 / graph.lambda_max, graph.function(lambda v: 1 / v) @ graph.demands
    root = graph.function(torch.sqrt)
    for num_layers in range(1, 61, 7):
        answer = electric_flow(num_layers=num_layers, step=step)(graph.incidence, graph.demands)
        error = worst(root @ answer, root @ exact, graph.demands)
        assert error <= bounds.electric_flow_printed(num_layers, step, graph.lambda_min) + ROUNDING


def test_printed_bound_of_lemma_1_fails_for_small_eigenvalues():
    """A path of 12 nodes has λmin = 0.068; along its eigenvector one step leaves almost all of 1 / λmin."""
    path = incidence_matrix(torch.stack([torch.arange(11), torch.arange(1, 12)]), 12)
    values, vectors = torch.linalg.eigh(path @ path.mT)
    lambda_min, step = float(values[1]), 1 / float(values[-1])
    demand = vectors[:, 1:2]
    error = (electric_flow(num_layers=1, step=step)(path, demand) - demand / lambda_min).norm().item()
    assert error > 3 * bounds.electric_flow_printed(1, step, lambda_min)
    assert error == pytest.approx(bounds.electric_flow(1, step, lambda_min), rel=1e-9)


def test_lemma_2_meets_its_bound_for_1_to_60_layers(graph):
    exact = graph.function(lambda v: v**-0.5) @ graph.demands
    for num_layers in DEPTHS:
        answer = resistive_embedding(num_layers=num_layers, lambda_max=graph.lambda_max)(graph.incidence, graph.demands)
        bound = bounds.resistive_embedding(num_layers, graph.lambda_min, graph.lambda_max)
        assert worst(answer, exact, graph.demands) <= bound + ROUNDING


def test_lemma_3_meets_its_bound_for_1_to_60_layers(graph):
    for num_layers in DEPTHS:
        time = 0.999 * num_layers / (8 * graph.lambda_max)
        answer = heat_kernel(num_layers=num_layers, time=time)(graph.incidence, graph.demands)
        exact = graph.vectors @ torch.diag(torch.exp(-time * graph.values)) @ graph.vectors.mT @ graph.demands
        bound = bounds.heat_kernel(num_layers, time, graph.lambda_max)
        assert worst(answer, exact, graph.demands) <= bound + ROUNDING


def block_diagonal(*parts):
    size = sum(len(part) for part in parts)
    whole, start = np.zeros((size, size)), 0
    for part in parts:
        whole[start : start + len(part), start : start + len(part)] = part
        start += len(part)
    return whole


@pytest.mark.parametrize("lemma", [1, 2, 3])
def test_general_weights_are_the_matrices_in_print(lemma):
    """Equations (10) and (12) and the proof of Lemma 3 for d = 5, k = 2, layer 3."""
    d, k, delta, time = 5, 2, 0.1, 0.4
    zero, eye = np.zeros((k, k)), np.eye(k)
    sizes = {"form": "general", "num_edges": d, "num_demands": k}
    model = {
        1: electric_flow(num_layers=4, step=delta, **sizes),
        2: resistive_embedding(num_layers=4, lambda_max=1 / delta, **sizes),
        3: heat_kernel(num_layers=4, time=time, **sizes),
    }[lemma]
    layer = model.transformer.layers[3]
    alpha = {1: delta, 2: math.sqrt(delta) * 20 / 64, 3: -(time**3) / 6}[lemma]
    value = {1: (zero, -delta * eye), 2: (-delta * eye, zero), 3: (eye, zero)}[lemma]
    residual = block_diagonal(np.zeros((d, d)), -eye if lemma == 3 else zero, zero)
    residual[d + k :, d : d + k] = alpha * eye
    similarity = (layer.query.T @ layer.key).detach().numpy()
    np.testing.assert_allclose(layer.value.detach().numpy(), block_diagonal(np.zeros((d, d)), *value), atol=1e-15)
    np.testing.assert_allclose(similarity, block_diagonal(np.eye(d), zero, zero), atol=1e-15)
    np.testing.assert_allclose(layer.residual.detach().numpy(), residual, atol=1e-15)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("make", [electric_flow, resistive_embedding])
def test_step_and_largest_eigenvalue_are_two_names_of_one_thing(graph, make, form):
    step = 0.9 / graph.lambda_max
    by_step = make(num_layers=5, step=step, **sized(form, graph))
    by_value = make(num_layers=5, lambda_max=1 / step, **sized(form, graph))
    torch.testing.assert_close(by_step(graph.incidence, graph.demands), by_value(graph.incidence, graph.demands))


@pytest.mark.parametrize("form", FORMS)
def test_batch_of_constructions_equals_one_by_one(form):
    generator = torch.Generator().manual_seed(0)
    graphs = [sample_incidence("CSL", 1, 10, generator)[0], sample_incidence("FC", 1, 4, generator)[0]]
    demands = [torch.randn(len(b), 3, generator=generator, dtype=torch.float64) for b in graphs]
    demands = [psi - psi.mean(0) for psi in demands]
    sizes = {"num_edges": 20, "num_demands": 3} if form == "general" else {}
    model = electric_flow(num_layers=6, step=0.005, form=form, **sizes)
    together = model(pad_incidence(graphs)[0], pad_incidence(demands)[0])
    for row, (b, psi) in enumerate(zip(graphs, demands, strict=True)):
        torch.testing.assert_close(together[row, : len(b)], model(b, psi), atol=1e-13, rtol=1e-12)
        assert together[row, len(b) :].eq(0).all()


@pytest.mark.parametrize(("make", "options"), [(electric_flow, {"step": 0.1}), (heat_kernel, {"time": 0.1})])
def test_sparse_incidence_gives_the_same_answer(make, options):
    edges = all_pairs(8)[:, ::2]
    psi = torch.randn(8, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    psi -= psi.mean(0)
    model = make(num_layers=9, form="efficient", **options)
    sparse = SparseIncidence.from_edges(edges, 8, torch.ones(edges.shape[1], dtype=torch.float64))
    expected = model(incidence_matrix(edges, 8), psi)
    torch.testing.assert_close(model(sparse, psi), expected, atol=1e-13, rtol=1e-12)
    torch.testing.assert_close(model(sparse.evolving(), psi), expected, atol=1e-13, rtol=1e-12)
    for b in (sparse, sparse.dense(), sparse.evolving()):
        for others in (torch.zeros_like(psi[:7]), torch.zeros(9, 2).double()):
            with pytest.raises(BadInput, match="of the same nodes"):
                model(b, others)


def test_general_form_needs_a_matrix(graph):
    sparse = SparseIncidence.from_edges(all_pairs(len(graph.laplacian)), len(graph.laplacian))
    with pytest.raises(BadInput, match="form='efficient'"):
        electric_flow(num_layers=1, step=0.1, **sized("general", graph))(sparse, graph.demands)


@pytest.mark.parametrize("form", FORMS)
def test_float32_constructions_lose_only_digits(graph, form):
    model = electric_flow(num_layers=20, lambda_max=graph.lambda_max, **sized(form, graph))
    exact = model(graph.incidence, graph.demands)
    with pytest.raises(BadInput, match=r"torch.float64 .* its input is torch.float32"):
        model(graph.incidence.float(), graph.demands.float())
    rounded = model.float()(graph.incidence.float(), graph.demands.float())
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded.double(), exact, atol=1e-4, rtol=1e-4)


def test_constructed_transformers_can_be_trained_further(graph):
    model = electric_flow(num_layers=3, lambda_max=graph.lambda_max)
    parameters = list(model.parameters())
    assert len(parameters) == 7
    assert not any(parameter.requires_grad for parameter in parameters)
    model.requires_grad_()(graph.incidence, graph.demands).square().sum().backward()
    assert all(parameter.grad is not None for parameter in parameters)


@pytest.mark.parametrize("make", [electric_flow, resistive_embedding])
def test_efficient_weights_do_not_depend_on_graph_or_demands(make):
    """A few scalars per layer: forty layers for 400 demands took 819 MB when blocks were matrices."""
    model = make(num_layers=40, lambda_max=9.0)
    assert sum(parameter.numel() for parameter in model.parameters()) <= 40 * (4 * 4 + 3)
    state = model.state_dict()
    for num_nodes, k in ((6, 2), (9, 30)):
        demands = torch.randn(num_nodes, k, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        demands -= demands.mean(0)
        b = incidence_matrix(all_pairs(num_nodes), num_nodes)
        whole = make(num_layers=40, lambda_max=9.0, form="general", num_edges=b.shape[1], num_demands=k)
        torch.testing.assert_close(model(b, demands), whole(b, demands), atol=1e-12, rtol=1e-10)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_general_form_is_made_for_one_size(graph):
    model = electric_flow(num_layers=2, lambda_max=graph.lambda_max, **sized("general", graph))
    with pytest.raises(BadInput, match=r"num_demands=3, but B has .* 2 demands"):
        model(graph.incidence, graph.demands[:, :2])
    wider = torch.cat([graph.incidence, graph.incidence[:, :1]], dim=1)
    with pytest.raises(BadInput, match="was made for num_edges"):
        model(wider, graph.demands)
    fewer = graph.incidence.clone()[:, 1:]
    expected = gradient_descent(fewer @ fewer.mT, graph.demands, 2, 1 / graph.lambda_max)
    if graph.name != "molecule":  # without a bond it is not connected
        torch.testing.assert_close(model(fewer, graph.demands), expected)


def test_steps_beyond_the_largest_eigenvalue_are_refused(graph):
    for make in (electric_flow, resistive_embedding):
        make(num_layers=3, step=1 / graph.lambda_max)(graph.incidence, graph.demands)
        with pytest.raises(BadInput, match=r"step=.* allows eigenvalues of the Laplacian up to"):
            make(num_layers=3, step=1.5 / graph.lambda_max)(graph.incidence, graph.demands)


def test_demands_that_are_not_numbers_are_refused(graph):
    demands = graph.demands.clone()
    demands[1, 0] = math.nan
    for model in (electric_flow(num_layers=2, lambda_max=graph.lambda_max), heat_kernel(num_layers=2, time=0.1)):
        with pytest.raises(BadInput, match="not finite"):
            model(graph.incidence, demands)


@pytest.mark.parametrize("form", ["dense", "sparse", "evolving"])
def test_parts_of_a_graph_need_demands_of_their_own(form):
    """Two triangles: a demand may be met within each, and not from one to the other."""
    edges = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3]])
    sparse = SparseIncidence.from_edges(edges, 6, torch.ones(6, dtype=torch.float64))
    b = {"dense": sparse.dense().matrix, "sparse": sparse, "evolving": sparse.evolving()}[form]
    within = torch.tensor([[1.0, -1, 0, 2, 0, -2]], dtype=torch.float64).mT
    model = electric_flow(num_layers=60, lambda_max=3.0)
    exact = torch.linalg.pinv(sparse.similarity()) @ within
    torch.testing.assert_close(model(b, within), exact)
    across = torch.tensor([[1.0, 0, 0, -1, 0, 0]], dtype=torch.float64).mT
    for make in (electric_flow, resistive_embedding):
        with pytest.raises(BadInput, match="not connected"):
            make(num_layers=60, lambda_max=3.0)(b, across)


def test_gradients_reach_the_resistances(graph):
    """The answer is differentiable in B and in the demands although the weights are frozen."""
    b, psi = graph.incidence.clone().requires_grad_(), graph.demands.clone().requires_grad_()
    model = electric_flow(num_layers=4, lambda_max=graph.lambda_max)
    gradients = torch.autograd.grad(model(b, psi).square().sum(), (b, psi))
    direct = gradient_descent(b @ b.mT, psi, 4, 1 / graph.lambda_max).square().sum()
    for ours, theirs in zip(gradients, torch.autograd.grad(direct, (b, psi)), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-8)


def test_building_a_construction_draws_no_random_numbers(graph):
    before = torch.get_rng_state()
    electric_flow(num_layers=2, lambda_max=graph.lambda_max)(graph.incidence, graph.demands)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: electric_flow(num_layers=3), "either step or lambda_max"),
        (lambda: electric_flow(num_layers=3, step=0.1, lambda_max=2.0), "either step or lambda_max"),
        (lambda: electric_flow(num_layers=0, step=0.1), "num_layers must be an integer of at least 1"),
        (lambda: electric_flow(num_layers=2, step=0.1, form="general", num_edges=3), "num_edges and num_demands"),
        (lambda: electric_flow(num_layers=2, step=0.1, num_edges=3), "num_edges belong to form='general'"),
        (
            lambda: electric_flow(num_layers=2, step=0.1, form="general", num_edges=0, num_demands=1),
            "num_edges must be an integer of at least 1",
        ),
        (lambda: electric_flow(num_layers=2, step=-0.1), "step must be a positive number"),
        (lambda: resistive_embedding(num_layers=2, lambda_max=math.inf), "lambda_max must be a positive"),
        (lambda: heat_kernel(num_layers=2, time=0.0), "time must be a positive number"),
        (lambda: heat_kernel(num_layers=2, time=1.0, form="sparse"), "form must be one of"),
        (
            lambda: electric_flow(num_layers=1, step=0.1)(torch.rand(3, 2).double(), torch.ones(3, 1).double()),
            "add up to 0",
        ),
        (lambda: electric_flow(num_layers=1, step=0.1)(torch.rand(3, 2), torch.zeros(4, 1)), "of the same nodes"),
    ],
)
def test_bad_quantities_are_refused(call, message):
    with pytest.raises(BadInput, match=message):
        call()
