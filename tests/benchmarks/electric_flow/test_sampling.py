"""Maps in float64 against NumPy and SciPy, resistances against their distribution."""

from typing import get_args

import numpy as np
import pytest
import scipy.linalg
import torch

from graphbench.benchmarks.electric_flow import centred, make_wiring, map_demands, sample_resistors, sampling
from graphbench.benchmarks.electric_flow.resistor_graphs import Family
from graphbench.benchmarks.electric_flow.sampling import Problem, laplacians


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def graphs(generator):
    """Return Laplacians of graphs of 5 to 9 nodes, and their sizes."""
    wires, resistance = sample_resistors(make_wiring("ER", range(5, 10)), 20, generator)
    assert len(wires.num_nodes.unique()) > 1
    return laplacians(wires, resistance), wires.num_nodes


def matrices(graphs, target, time=0.5):
    """Yield (Laplacian, U) of every graph `[n, n]`; U is read from the images of unit demands."""
    laplacian, sizes = graphs
    mapped = map_demands(laplacian, sizes, torch.eye(laplacian.shape[-1]).double().expand_as(laplacian), target, time)
    for row, n in enumerate(sizes.tolist()):
        assert mapped[row, n:].eq(0).all()
        yield laplacian[row, :n, :n].numpy(), mapped[row, :n, :n].numpy()


@pytest.mark.parametrize(
    ("target", "expected"),
    [("electric", np.linalg.pinv), ("heat", lambda laplacian: scipy.linalg.expm(-0.3 * laplacian))],
)
def test_maps_are_those_of_numpy_and_scipy(graphs, target, expected):
    for laplacian, mapped in matrices(graphs, target, 0.3):
        np.testing.assert_allclose(mapped, expected(laplacian), atol=1e-11)


def test_resistive_map_is_the_symmetric_root_of_the_electric_one(graphs):
    for (_, root), (laplacian, _) in zip(matrices(graphs, "resistive"), matrices(graphs, "electric"), strict=True):
        np.testing.assert_allclose(root @ root, np.linalg.pinv(laplacian), atol=1e-11)
        np.testing.assert_allclose(root, root.T, atol=1e-12)
        assert np.linalg.eigvalsh(root).min() > -1e-12


@pytest.mark.parametrize("target", ["electric", "heat", "eigenvectors"])
def test_few_large_graphs_are_mapped_at_a_time_and_to_the_same_targets(target, monkeypatch):
    def draw():
        return Problem(make_wiring("ER", range(5, 10)), target, 4).draw(20, torch.Generator().manual_seed(0)).targets

    sizes, expected = [], draw()
    monkeypatch.setattr(sampling, "_BLOCK_ENTRIES", 3 * 9**2)
    monkeypatch.setattr(sampling, "laplacians", lambda *them: sizes.append(len(them[1])) or laplacians(*them))
    assert torch.equal(draw(), expected)
    assert sizes == [3] * 6 + [2]


def test_centred_demands_add_up_to_zero_on_every_graph(generator):
    sizes = torch.tensor([3, 7, 5])
    demands = torch.randn(3, 7, 4, generator=generator, dtype=torch.float64)
    found = centred(demands, sizes)
    for row, n in enumerate(sizes.tolist()):
        torch.testing.assert_close(found[row, :n], demands[row, :n] - demands[row, :n].mean(0))
        assert found[row, n:].eq(0).all()


def test_resistances_are_log_uniform(generator):
    _, resistance = sample_resistors(make_wiring("FC", [10]), 300, generator, log_resistance=1.5)
    logarithm = resistance.log()
    assert logarithm.abs().max() <= 1.5 + 1e-6
    assert logarithm.var().item() == pytest.approx(3**2 / 12, rel=0.05)


def test_a_problem_has_the_graphs_that_its_seed_gives():
    wiring = make_wiring("CSL", range(8, 11))
    wires, resistance = sample_resistors(wiring, 6, torch.Generator().manual_seed(3), 0.5)
    networks = Problem(wiring, "heat", 2, log_resistance=0.5).draw(6, torch.Generator().manual_seed(3))
    assert torch.equal(networks.resistance, resistance)
    assert torch.equal(networks.wires.tail, wires.tail)
    assert torch.equal(networks.wires.head, wires.head)


@pytest.mark.parametrize("family", get_args(Family))
def test_the_default_dtype_changes_no_graph(family):
    """Of the same seed torch draws other numbers in float64, so the fixed splits of a seed would differ."""
    problem = Problem(make_wiring(family, [8], edge_probability=0.4), "heat", 3)
    drawn = []
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            drawn.append(problem.draw(5, torch.Generator().manual_seed(0)).batch().to_dict())
        finally:
            torch.set_default_dtype(torch.float32)
    for name in ("edge_index", "edge_dense", "x_dense", "y"):
        assert drawn[0][name].dtype == drawn[1][name].dtype
        assert torch.equal(drawn[0][name], drawn[1][name])
