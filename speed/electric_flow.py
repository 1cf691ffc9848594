"""Measure the accuracy of the linear transformer's constructions by number of layers, and their cost.

Prints the error of every construction of "Graph Transformers Dream of Electric Flow" with the bound of its lemma (`inf`
if it makes no statement); Lemmas 1 to 3 and the Chebyshev series that the same layer runs, on an ill-conditioned graph;
and the median times for all effective resistances of a graph, alternating with NumPy's pseudo-inverse.

    python speed/electric_flow.py --rounds 5 --threads 1
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from graphbench.benchmarks.electric_flow import Family, Target, centred, map_demands
from graphbench_linear_transformer import bounds, constructions
from graphbench_linear_transformer.constructions import Form
from graphbench_linear_transformer.graphs import incidence_matrix, sample_incidence
from graphbench_linear_transformer.resistance import largest_eigenvalue_bound, resistances_from_inverse

FAMILIES: tuple[Family, ...] = ("FC", "CSL")
TARGETS: tuple[Target, ...] = ("electric", "resistive", "heat")
LAYERS = (1, 2, 4, 8, 16, 32, 60)
#: Temperature of the heat kernels of the first tables; Lemma 3 applies from 8 s λmax layers on.
HEAT_TIME = 0.05
#: Temperature of the heat kernels of the series on a path.
PATH_TIME = 3.0
#: Layers of the fast flow in the table of times; enough for the largest κ there.
FLOW_LAYERS = 12


def largest_error(answer: Tensor, exact: Tensor, demands: Tensor) -> float:
    """Return the largest Euclidean error of a column per unit of its demand's norm."""
    return float(((answer - exact).norm(dim=-2) / demands.norm(dim=-2)).max())


def eigenvalue_range(laplacian: Tensor) -> tuple[float, float]:
    """Return λmin and λmax over all graphs."""
    values = torch.linalg.eigvalsh(laplacian)
    return float(values[..., 1].min()), float(values[..., -1].max())


def gaussian_demands(num_graphs: int, num_nodes: int) -> Tensor:
    """Return five centred demands per graph, `[G, n, 5]`, the same ones every time."""
    generator = torch.Generator().manual_seed(1)
    demands = torch.randn(num_graphs, num_nodes, 5, generator=generator, dtype=torch.float64)
    return centred(demands, torch.full((num_graphs,), num_nodes))


def map_matrix(laplacian: Tensor, target: Target, time: float) -> Tensor:
    """Return U `[G, n, n]` of a target: its answers for unit demands."""
    sizes = torch.full((len(laplacian),), laplacian.shape[-1])
    eye = torch.eye(laplacian.shape[-1], dtype=laplacian.dtype).expand_as(laplacian)
    return map_demands(laplacian, sizes, eye, target, time)


def print_errors(family: Family, incidence: Tensor, layers: tuple[int, ...] = LAYERS) -> None:
    """Print one row per number of layers: error and, after the bar, bound."""
    laplacian = incidence @ incidence.mT
    low, high = eigenvalue_range(laplacian)
    demands = gaussian_demands(len(incidence), incidence.shape[1])
    exact = {name: map_matrix(laplacian, name, HEAT_TIME) for name in TARGETS}
    print(
        f"\n{len(incidence)} {family} graphs, n = {incidence.shape[1]}, λmin {low:.3g}, λmax {high:.3g}: error | bound"
    )
    names = ("1 flow", "2 resistive", "3 heat", "4 fast flow", "5 fast heat")
    print(f"{'layers':>6}" + "".join(f"{'Lemma ' + name:>22}" for name in names))
    for count in layers:
        by_incidence: tuple[tuple[nn.Module, Target], ...] = (
            (constructions.electric_flow(num_layers=count, lambda_max=high), "electric"),
            (constructions.resistive_embedding(num_layers=count, lambda_max=high), "resistive"),
            (constructions.heat_kernel(num_layers=count, time=HEAT_TIME), "heat"),
        )
        fast = constructions.electric_flow_fast(num_layers=count, lambda_max=high)
        by_laplacian: list[tuple[nn.Module, Target]] = [(fast, "electric")]
        if HEAT_TIME * high <= 3.0**count:  # Lemma 5 makes no statement before
            by_laplacian.append((constructions.heat_kernel_fast(num_layers=count, time=HEAT_TIME), "heat"))
        errors = [largest_error(model(incidence, demands), exact[to] @ demands, demands) for model, to in by_incidence]
        errors += [float(torch.linalg.matrix_norm(model(laplacian) - exact[to], 2).max()) for model, to in by_laplacian]
        errors += [float("nan")] * (5 - len(errors))
        limits = (
            bounds.electric_flow(count, 1 / high, low),
            bounds.resistive_embedding(count, low, high),
            bounds.heat_kernel(count, HEAT_TIME, high),
            bounds.electric_flow_fast(count, 1 / high, low),
            bounds.heat_kernel_fast(count, HEAT_TIME, high),
        )
        cells = (f"{error:.1e} | {limit:.1e}" for error, limit in zip(errors, limits, strict=True))
        print(f"{count:>6}" + "".join(f"{cell:>22}" for cell in cells))


def path(num_nodes: int) -> Tensor:
    """Return B of a path, whose condition number grows like (2 n / π)²."""
    node = torch.arange(num_nodes - 1)
    return incidence_matrix(torch.stack([node, node + 1]), num_nodes)


def print_series(incidence: Tensor, layers: tuple[int, ...] = (10, 20, 40, 60, 100, 200)) -> None:
    """Print errors of the paper's series and the Chebyshev series, for the flow, its root and the heat kernel."""
    laplacian = incidence @ incidence.mT
    low, high = eigenvalue_range(laplacian)
    demands = gaussian_demands(1, len(incidence))[0]
    exact = [map_matrix(laplacian[None], to, PATH_TIME)[0] @ demands for to in TARGETS]
    print(f"\nPath of {len(incidence)} nodes, κ = {high / low:.0f}, heat at s = {PATH_TIME}: error | bound")
    names = ("Lemma 1", "Chebyshev", "Lemma 2", "Chebyshev", "Lemma 3", "Chebyshev")
    print(f"{'layers':>6}" + "".join(f"{name:>21}" for name in names))
    form: Form = "efficient"
    for n in layers:
        models = (
            constructions.electric_flow(num_layers=n, lambda_max=high, form=form),
            constructions.electric_flow_chebyshev(num_layers=n, lambda_min=low, lambda_max=high, form=form),
            constructions.resistive_embedding(num_layers=n, lambda_max=high, form=form),
            constructions.resistive_embedding_chebyshev(num_layers=n, lambda_min=low, lambda_max=high, form=form),
            constructions.heat_kernel(num_layers=n, time=PATH_TIME, form=form),
            constructions.heat_kernel_chebyshev(num_layers=n, time=PATH_TIME, lambda_max=high, form=form),
        )
        limits = (
            bounds.electric_flow(n, 1 / high, low),
            bounds.electric_flow_chebyshev(n, low, high),
            bounds.resistive_embedding(n, low, high),
            bounds.resistive_embedding_chebyshev(n, low, high),
            bounds.heat_kernel(n, PATH_TIME, high),
            bounds.heat_kernel_chebyshev(n, PATH_TIME, high),
        )
        errors = [largest_error(model(incidence, demands), exact[i // 2], demands) for i, model in enumerate(models)]
        cells = (f"{error:.1e} | {limit:.1e}" for error, limit in zip(errors, limits, strict=True))
        print(f"{n:>6}" + "".join(f"{cell:>21}" for cell in cells))


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def print_times(rounds: int) -> None:
    """Time all effective resistances of random graphs of mean degree 6: ours in both forms, NumPy's pseudo-inverse."""
    print(f"\nEffective resistances, {FLOW_LAYERS} layers of Lemma 4 against numpy.linalg.pinv (float64, ms, medians)")
    print(f"{'n':>5}{'efficient':>12}{'general':>12}{'pinv':>10}{'pinv / efficient':>18}{'largest difference':>20}")
    for n in (10, 20, 50, 100, 200):
        generator = torch.Generator().manual_seed(n)
        upper = (torch.rand(n, n, generator=generator) < 6 / n).triu(1)
        upper |= torch.diag(torch.ones(n - 1, dtype=torch.bool), 1)
        incidence = incidence_matrix(upper.nonzero().t(), n)
        laplacian = incidence @ incidence.mT
        step = 1 / float(largest_eigenvalue_bound(laplacian))
        efficient = constructions.electric_flow_fast(num_layers=FLOW_LAYERS, step=step, form="efficient")
        general = constructions.electric_flow_fast(num_layers=FLOW_LAYERS, step=step, form="general", num_nodes=n)
        dense = laplacian.numpy()
        works: tuple[Callable[[], Tensor], ...] = (
            lambda m=efficient, at=laplacian: resistances_from_inverse(m(at)),  # type: ignore[misc]
            lambda m=general, at=laplacian: resistances_from_inverse(m(at)),  # type: ignore[misc]
            lambda at=dense: resistances_from_inverse(torch.from_numpy(np.linalg.pinv(at, hermitian=True))),  # type: ignore[misc]
        )
        ours, theirs = works[0](), works[2]()
        works[1]()
        times = [[1e3 * seconds(work) for work in works] for _ in range(rounds)]
        medians = [statistics.median(column) for column in zip(*times, strict=True)]
        ratio = statistics.median(row[2] / row[0] for row in times)
        print(f"{n:>5}{medians[0]:>12.2f}{medians[1]:>12.2f}{medians[2]:>10.2f}{ratio:>17.2f}x"
              f"{float((ours - theirs).abs().max()):>20.1e}")  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=20, help="graphs of each family")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; each runs every side once")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{platform.processor() or platform.machine()}, {options.threads} threads, torch {torch.__version__}")
    for family in FAMILIES:
        print_errors(family, sample_incidence(family, options.graphs, generator=torch.Generator().manual_seed(0)))
    print_series(path(24))
    print_times(options.rounds)


if __name__ == "__main__":
    main()
