"""Draw the three figures: trained transformers (mean and spread over seeds) and the paper's constructions."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

import matplotlib as mpl
import torch
from points import FAMILIES, LAYERS, MAPS
from torch import Tensor

from graphbench.benchmarks.electric_flow import map_demands
from graphbench_linear_transformer import constructions
from graphbench_linear_transformer.graphs import sample_incidence

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

Row = Mapping[str, str]
NODES, GRAPHS, HEAT_TIME = 10, 200, 0.5
COLOURS = {"FC": "tab:blue", "CSL": "tab:orange"}
NUMBERS = tuple(range(1, max(LAYERS) + 1))


def draw_all(rows: Sequence[Row], folder: Path, recipe: str) -> list[Path]:
    """Draw every figure that has points of a recipe.

    Args:
        rows: rows of the CSV.
        folder: folder to write to.
        recipe: recipe of the rows to draw.

    Returns:
        The files written.
    """
    selected = [row for row in rows if row["recipe"] == recipe]
    drawers: dict[str, Callable[[Sequence[Row], Path], None]] = {"1": _maps, "2": _eigenvectors, "15": _efficient}
    written = []
    for figure, draw in drawers.items():
        for centred, frozen in product(("True", "False"), ("False", "True")):
            chosen = [
                row for row in selected if (row["figure"], row["centred"], row["frozen"]) == (figure, centred, frozen)
            ]
            name = f"figure-{figure}-{recipe}" + "-uncentred" * (centred == "False") + "-frozen" * (frozen == "True")
            if chosen:
                written.append(folder / f"{name}.png")
                draw(chosen, written[-1])
    return written


def _maps(rows: Sequence[Row], path: Path) -> None:
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for target, ax in zip(MAPS, axes, strict=True):
        _panel(ax, [row for row in rows if row["target"] == target], target)
    _finish(figure, path)


def _efficient(rows: Sequence[Row], path: Path) -> None:
    figure, axes = plt.subplots(1, 4, figsize=(17, 4), layout="constrained")
    for target, ax in zip((*MAPS, "eigenvectors"), axes, strict=True):
        _panel(ax, [row for row in rows if row["target"] == target], target)
    _finish(figure, path)


def _eigenvectors(rows: Sequence[Row], path: Path) -> None:
    """Draw rows trained on loss_1-5 and on loss_1-10. Columns: that loss, and single eigenvectors on FC and CSL."""
    figure, axes = plt.subplots(2, 3, figsize=(13, 8), layout="constrained")
    for line, number in zip(axes, ("5", "10"), strict=True):
        selected = [row for row in rows if row["num_eigenvectors"] == number]
        _panel(line[0], selected, "eigenvectors", int(number))
        for family, ax in zip(FAMILIES, line[1:], strict=True):
            ax.set(title=f"{family}, trained on loss_1-{number}", xlabel="layers", ylabel="log loss_i")
            curve = [row for row in selected if row["family"] == family]
            for i in range(2, int(number) + 1):  # v_1 is constant and its loss is off the chart
                _curve(ax, curve, f"log_loss_{i}", plt.get_cmap("viridis")((i - 2) / 9), f"$v_{{{i}}}$")
            if curve:
                ax.legend(fontsize="small", ncols=2)
    _finish(figure, path)


def _panel(ax: Axes, rows: Sequence[Row], target: str, number: int = NODES) -> None:
    """Plot trained curves of both families, solid, and constructions, dashed and dotted."""
    title = f"loss_1-{number}" if target == "eigenvectors" else target
    ax.set(title=title, xlabel="layers", ylabel="log loss", xticks=LAYERS)
    for family in FAMILIES:
        _curve(ax, [row for row in rows if row["family"] == family], "log_loss", COLOURS[family], f"{family}, trained")
        styles = iter(("--", ":"))
        for name, losses in constructed(family, target, number).items():
            ax.plot(NUMBERS, losses, next(styles), color=COLOURS[family], label=f"{family}, {name}")
    ax.legend(fontsize="x-small")


def _curve(ax: Axes, rows: Sequence[Row], column: str, colour: object, label: str) -> None:
    """Plot the mean over seeds, and the range from the lowest to the highest."""
    values: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        values[int(row["num_layers"])].append(float(row[column]))
    layers = sorted(values)
    if not layers:
        return
    mean = [sum(values[layer]) / len(values[layer]) for layer in layers]
    ax.plot(layers, mean, "o-", color=colour, label=label, markersize=4)
    ax.fill_between(layers, [min(values[n]) for n in layers], [max(values[n]) for n in layers], color=colour, alpha=0.2)


def _finish(figure: plt.Figure, path: Path) -> None:
    figure.savefig(path, dpi=120)
    plt.close(figure)


@functools.cache
def constructed(family: str, target: str, number: int = NODES) -> dict[str, list[float]]:
    """Compute the log loss of the paper's constructions for 1, 2, ... layers, on fixed graphs of the family.

    Losses are scale-invariant, so for L† and its root every B is first divided by its Frobenius norm, as in the trained
    transformers; the constructions are then built for the range of eigenvalues over all graphs.

    Args:
        family: FC or CSL.
        target: electric, resistive, heat or eigenvectors.
        number: number of smallest eigenvectors.

    Returns:
        Name of the construction -> one number per number of layers.
    """
    incidence = sample_incidence(family, GRAPHS, NODES, torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    if target != "heat":
        incidence = incidence / torch.linalg.matrix_norm(incidence)[:, None, None]
    laplacian = incidence @ incidence.mT
    values, vectors = torch.linalg.eigh(laplacian)
    low, high = float(values[:, 1].min()), float(values[:, -1].max())
    if target == "eigenvectors":
        initial = torch.randn(GRAPHS, NODES, number, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        return {
            "Corollary 7": [
                _eigenvector_log_loss(
                    constructions.bottom_eigenvectors(num_layers=count, k=number, shift=high)(incidence, initial),
                    vectors[..., :number],
                )
                for count in NUMBERS
            ]
        }
    demands = torch.randn(GRAPHS, NODES, NODES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    demands -= demands.mean(1, keepdim=True)
    sizes = torch.full((GRAPHS,), NODES)
    exact = map_demands(laplacian, sizes, demands, target, HEAT_TIME)  # type: ignore[arg-type]
    return {
        name: [_log_loss(make(count)(incidence, demands), exact) for count in NUMBERS]
        for name, make in _makers(target, low, high).items()
    }


def _makers(target: str, low: float, high: float) -> dict[str, Callable[[int], torch.nn.Module]]:
    """Return name -> number of layers -> construction."""
    if target == "electric":
        return {
            "Lemma 1": lambda n: constructions.electric_flow(num_layers=n, lambda_max=high),
            "Chebyshev": lambda n: constructions.electric_flow_chebyshev(num_layers=n, lambda_min=low, lambda_max=high),
        }
    if target == "resistive":
        return {
            "Lemma 2": lambda n: constructions.resistive_embedding(num_layers=n, lambda_max=high),
            "Chebyshev": lambda n: constructions.resistive_embedding_chebyshev(
                num_layers=n, lambda_min=low, lambda_max=high
            ),
        }
    return {
        "Lemma 3": lambda n: constructions.heat_kernel(num_layers=n, time=HEAT_TIME),
        "Chebyshev": lambda n: constructions.heat_kernel_chebyshev(num_layers=n, time=HEAT_TIME, lambda_max=high),
    }


def _log_loss(answer: Tensor, exact: Tensor) -> float:
    """Return the logarithm of the mean over graphs of `‖ Φ / ‖Φ‖_F - T / ‖T‖_F ‖²_F`."""
    unit = [matrix / torch.linalg.matrix_norm(matrix)[:, None, None] for matrix in (answer, exact)]
    return float((unit[0] - unit[1]).square().sum((1, 2)).mean().log())


def _eigenvector_log_loss(answer: Tensor, exact: Tensor) -> float:
    """Return the log of the mean over graphs and columns; the last column of the answer is the smallest eigenvector."""
    unit = torch.nn.functional.normalize(answer.flip(-1), dim=1)
    errors = [(unit - sign * exact).square().sum(1) for sign in (1, -1)]
    return float(torch.minimum(*errors).mean().log())
