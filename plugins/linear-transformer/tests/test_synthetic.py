"""The trainable linear transformer: contract, its two forms, and Lemma 1 inside it."""

import dataclasses
import math
from functools import partial

import pytest
import torch
from quick import one_of_each, slow

from graphbench import BenchmarkModule, BenchmarkSpec, Features, GraphTable
from graphbench.benchmarks import ElectricFlow
from graphbench.benchmarks.electric_flow import centred
from graphbench.errors import BadInput
from graphbench.testing import ArchitectureContract
from graphbench_linear_transformer.graphs import sample_incidence
from graphbench_linear_transformer.synthetic import LinearTransformer

MAPS = BenchmarkSpec(
    name="maps",
    task="map-recovery",
    node=Features(dense=3),
    edge=Features(dense=1, names=("resistance",)),
    metric="log_loss",
    higher_is_better=False,
    loss="normalised_MSE",
    num_targets=3,
    max_nodes=24,
)
VECTORS = dataclasses.replace(MAPS, node=Features(), num_targets=4, max_nodes=8, loss="eigenvector")


def table_of(incidences, demands=None):
    """Return graphs with the edges of these incidence matrices, every edge in both directions."""
    graphs = []
    for number, matrix in enumerate(incidences):
        tail, head = matrix.argmin(0), matrix.argmax(0)
        resistance = matrix.amax(0) ** -2
        graph = {
            "num_nodes": matrix.shape[0],
            "edge_index": torch.stack((torch.cat((tail, head)), torch.cat((head, tail)))),
            "edge_dense": torch.cat((resistance, resistance))[:, None],
        }
        graphs.append(graph if demands is None else graph | {"x_dense": demands[number]})
    return GraphTable.from_graphs(graphs)


def batch_of(incidences, demands=None):
    table = table_of(incidences, demands)
    return table.batch(range(len(table)))


class TestMapsOfDemands(ArchitectureContract):
    architecture = LinearTransformer
    options = {"num_layers": 2, "form": "efficient"}  # noqa: RUF012
    spec = dataclasses.replace(MAPS, node=Features(dense=3), edge=Features())
    most_launches = 308


class TestGeneralForm(ArchitectureContract):
    """Weights belong to edges by their order, which a renumbering of nodes does not change."""

    architecture = LinearTransformer
    options = {"num_layers": 2}  # noqa: RUF012
    spec = dataclasses.replace(MAPS, edge=Features())
    numbered_edges = "the general form has a row of weights for every edge"
    most_launches = 267


class TestTrainedInitialFeatures(ArchitectureContract):
    architecture = LinearTransformer
    options = {"num_layers": 2, "form": "efficient"}  # noqa: RUF012
    spec = dataclasses.replace(VECTORS, edge=Features(), max_nodes=24)
    random_method = "Φ_0 has one row per node slot"
    most_launches = 335


def test_incidence_has_resistances_and_padding():
    generator = torch.Generator().manual_seed(0)
    large, small = sample_incidence("FC", 1, 6, generator)[0], sample_incidence("CSL", 1, 5, generator)[0]
    model = LinearTransformer(MAPS, num_edges=20).double()
    batch = batch_of([large, small], [torch.zeros(6, 3).double(), torch.zeros(5, 3).double()])
    matrix = model.incidence(batch, torch.float64)
    assert matrix.shape == (2, 6, 20)
    torch.testing.assert_close(matrix[0] @ matrix[0].mT, large @ large.mT)
    torch.testing.assert_close((matrix[1] @ matrix[1].mT)[:5, :5], small @ small.mT)
    assert not matrix[1, 5].any()
    assert not matrix[0, :, 15:].any()


def demands_of(num_graphs, num_nodes, num_demands, generator):
    demands = torch.randn(num_graphs, num_nodes, num_demands, generator=generator, dtype=torch.float64)
    return centred(demands, torch.full((num_graphs,), num_nodes))


@pytest.mark.parametrize("form", ["general", "efficient"])
def test_lemma_1_is_one_of_its_configurations(form):
    """Gradient descent, with the norms in between: L† Ψ up to scale."""
    generator = torch.Generator().manual_seed(1)
    incidence = sample_incidence("FC", 4, 8, generator)
    demands = demands_of(4, 8, 3, generator)
    model = LinearTransformer(MAPS, form, num_layers=300, num_edges=28).double()
    size = model.num_edges
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for layer in model.transformer.layers:
            eye = torch.eye(3).double()
            # B has Frobenius norm 1 from the second layer on, so L has trace 1 and a step of 1 is safe; attention is
            # divided by n. The common norm of (Λ, Φ) scales both alike.
            layer.value[size + 3 :, size + 3 :] = -8 * eye
            layer.residual[size + 3 :, size : size + 3] = eye
            if form == "general":
                layer.query[:size, :size] = layer.key[:size, :size] = torch.eye(size)
            else:
                layer.alpha_query.fill_(1.0)
                layer.alpha_key.fill_(1.0)
    answer = model(batch_of(incidence, demands)).node.view(4, 8, 3)
    exact = torch.linalg.pinv(incidence @ incidence.mT) @ demands
    norms = [torch.linalg.matrix_norm(matrix)[:, None, None] for matrix in (answer, exact)]
    torch.testing.assert_close(answer / norms[0], exact / norms[1], atol=1e-4, rtol=0)


def test_eigenvectors_start_from_the_trained_rows():
    incidence = sample_incidence("CSL", 3, 8, torch.Generator().manual_seed(2))
    model = LinearTransformer(VECTORS, "efficient", num_layers=4).double()
    answer = model(batch_of(incidence)).node.view(3, 8, 4)
    first = model.initial[:, 8:12]  # W^V = W^R = 0 at the start: only lengths change
    torch.testing.assert_close(answer, (first / first.norm(dim=0)).expand(3, -1, -1))
    assert {name for name, _ in model.named_parameters()} >= {"initial"}


@pytest.mark.parametrize("form", ["general", "efficient"])
def test_near_identity_start(form):
    layer = LinearTransformer(MAPS, form, num_layers=1, num_edges=9, start="near_identity").transformer.layers[0]
    for weight in (layer.query, layer.key):
        assert torch.equal(weight, torch.eye(len(weight)))
    for weight in (layer.value, layer.residual):
        assert 0 < weight.std() < 0.02


def test_sizes_follow_the_benchmark():
    spec = dataclasses.replace(MAPS, node=Features(dense=10), num_targets=10, max_nodes=10)
    limited = dataclasses.replace(spec, extra={"max_edges": "20"})
    for given, edges in ((spec, 45), (limited, 20)):
        model = LinearTransformer(given, num_layers=3)
        assert sum(p.numel() for p in model.parameters()) == 3 * 4 * (edges + 20) ** 2
    efficient = LinearTransformer(limited, "efficient", num_layers=3)
    assert sum(p.numel() for p in efficient.parameters()) == 3 * (4 * 20**2 + 4)


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """`(target, centred) -> (specification, batch of 64 training graphs)`."""

    def make(target, centred):
        folder = str(tmp_path_factory.mktemp("flow"))
        data = ElectricFlow("CSL", target, centred=centred, root=folder, sizes=(4, 4, 4), batch_size=64, num_demands=3)
        data.prepare_data()
        data.setup()
        return data.spec, next(iter(data.train_dataloader()))

    return make


def best_of_two_numbers(batch):
    """Least log loss of `a Ψ + b L Ψ` with numbers a and b for all graphs, over a fine grid of their ratio, float64."""
    laplacian = torch.zeros(64, 10, 10, dtype=torch.float64)
    for (tail, head), resistance in zip(batch.edge_index.t().tolist(), batch.edge_dense[:, 0].tolist(), strict=True):
        laplacian[tail // 10, tail % 10, head % 10] -= 1 / resistance
        laplacian[tail // 10, tail % 10, tail % 10] += 1 / resistance
    demands, target = (matrix.double().view(64, 10, 3) for matrix in (batch.x_dense, batch.y))

    def loss(angle):
        maps = [math.cos(angle) * demands + math.sin(angle) * laplacian @ demands, target]
        units = [matrix / torch.linalg.matrix_norm(matrix)[:, None, None] for matrix in maps]
        return float((units[0] - units[1]).square().sum((1, 2)).mean())

    return math.log(min(loss(2 * math.pi * step / 4000) for step in range(4000)))


#: Log loss of the best `a I + b L` over many CSL graphs and ten demands, which one layer reaches in the authors'
#: notebooks; these centre demands only for the heat kernel.
KNOWN = {
    ("electric", True): -1.65,
    ("electric", False): -0.96,
    ("resistive", True): -3.04,
    ("resistive", False): -1.56,
}


@pytest.mark.parametrize("centred", [True, slow(False)])
@pytest.mark.parametrize("target", one_of_each(["electric", "resistive", "heat"]))
def test_one_layer_learns_the_best_polynomial_of_degree_one(networks, target, centred):
    """`Φ+ = R_ΦΛ Ψ + α L Ψ V_ΦΛ`: one layer can compute a I + b L, and little more. Tests data, loss, model at once."""
    spec, batch = networks(target, centred)
    best = best_of_two_numbers(batch)
    assert best == pytest.approx(KNOWN.get((target, centred), best), abs=0.3)
    torch.manual_seed(0)
    module = BenchmarkModule(spec, partial(LinearTransformer, form="efficient", num_layers=1, start="near_identity"))
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.LBFGS(trained, max_iter=150, history_size=20, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = module.task.loss(module(batch), batch).log()
        loss.backward()
        return loss

    optimizer.step(closure)
    final = float(closure())
    assert best - 0.15 < final < best + 0.1


def test_frozen_stack_returns_the_demands_own_block():
    generator = torch.Generator().manual_seed(0)
    incidence, demands = sample_incidence("CSL", 2, 8, generator), demands_of(2, 8, 3, generator)
    model = LinearTransformer(MAPS, num_layers=1, num_edges=16, frozen=True).double()
    assert sum(p.numel() for p in model.parameters()) == 4 * (16 + 3) ** 2
    for weight in model.parameters():
        weight.data.zero_()
    model.transformer.layers[0].residual.data[16:, 16:] = 2 * torch.eye(3)
    answer = model(batch_of(incidence, demands)).node.view(2, 8, 3)
    lengths = (torch.linalg.matrix_norm(incidence) ** 2 + 9 * torch.linalg.matrix_norm(demands) ** 2).sqrt()
    torch.testing.assert_close(answer, 3 * demands / lengths[:, None, None])
    for spec, options in ((VECTORS, {}), (MAPS, {"form": "efficient"})):
        with pytest.raises(BadInput, match="frozen=True needs form=general"):
            LinearTransformer(spec, frozen=True, **options)


def test_what_does_not_fit_says_so():
    for options, message in (
        ({"form": "sparse"}, "form"),
        ({"start": "identity"}, "start"),
        ({"evolve_incidence": False}, "evolve_incidence=False is for form=efficient"),
    ):
        with pytest.raises(BadInput, match=message):
            LinearTransformer(MAPS, **options)
    with pytest.raises(BadInput, match="number of nodes"):
        LinearTransformer(dataclasses.replace(MAPS, max_nodes=None))
    large = dataclasses.replace(MAPS, max_nodes=500)  # all pairs are 124,750 edges
    with pytest.raises(BadInput, match=r"124,750 edges: 249 GB per layer\. Use form=efficient"):
        LinearTransformer(large)
    LinearTransformer(large, form="efficient", num_layers=1)
    with pytest.raises(BadInput, match="eigenvectors"):
        LinearTransformer(dataclasses.replace(VECTORS, num_targets=9))
    incidence = sample_incidence("FC", 1, 10, torch.Generator().manual_seed(0)).float()
    with pytest.raises(BadInput, match="raise num_edges"):
        LinearTransformer(MAPS, num_edges=20)(batch_of(incidence, torch.zeros(1, 10, 3)))
    with pytest.raises(BadInput, match="rows of initial features"):
        LinearTransformer(VECTORS)(batch_of(incidence))
