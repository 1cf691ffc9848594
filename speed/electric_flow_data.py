"""Compare the speed of sampling resistor networks, including targets, with a loop over graphs in NumPy.

Prints graphs per second by family, target and number of nodes; the baseline samples one graph after the other with
NumPy, the usual way to generate such data. Both alternate, so a busy machine slows both; numbers are medians, and the
median of the ratios.

    python speed/electric_flow_data.py --threads 2
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from typing import get_args

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from graphbench.benchmarks.electric_flow import Family, Target, make_wiring
from graphbench.benchmarks.electric_flow.sampling import Problem, stream

DEGREE, PROBABILITY = 3, 0.5
BASELINE_GRAPHS = 100  # per round: the rate does not depend on the number


def with_numpy(num_graphs: int, n: int, family: Family, target: Target, rng: np.random.Generator) -> list[np.ndarray]:
    """Return graphs, demands and targets of "FC" and "CSL", one graph after the other."""
    answers = []
    for _ in range(num_graphs):
        if family == "FC":
            tail, head = np.triu_indices(n, 1)
        else:
            skip = rng.choice([s for s in range(2, n - 1, 2) if 2 * s != n])
            tail = np.tile(np.arange(n), 2)
            head = (tail + np.repeat([1, skip], n)) % n
        nodes, order = rng.permutation(n), rng.permutation(len(tail))
        tail, head = nodes[tail[order]], nodes[head[order]]
        incidence = np.zeros((n, len(tail)))
        weight = np.exp(-rng.uniform(-2, 2, len(tail)) / 2)
        incidence[tail, np.arange(len(tail))] = -weight
        incidence[head, np.arange(len(tail))] = weight
        laplacian = incidence @ incidence.T
        demands = rng.standard_normal((n, n))
        demands -= demands.mean(0)
        answers.append(solved(laplacian, demands, target))
    return answers


def solved(laplacian: np.ndarray, demands: np.ndarray, target: Target) -> np.ndarray:
    """Return the target of one graph."""
    if target == "electric":
        return np.linalg.pinv(laplacian, hermitian=True) @ demands
    values, vectors = np.linalg.eigh(laplacian)
    if target == "eigenvectors":
        return vectors
    mapped = np.exp(-0.5 * values) if target == "heat" else np.append(0.0, values[1:] ** -0.5)
    return vectors @ (mapped[:, None] * (vectors.T @ demands))


def rate(run: Callable[[], object], num_graphs: int) -> float:
    """Return graphs per second."""
    started = time.perf_counter()
    run()
    return num_graphs / (time.perf_counter() - started)


def compare(family: Family, target: Target, n: int, num_graphs: int, rounds: int, device: torch.device) -> list[str]:
    """Return one row of the table."""
    problem = Problem(make_wiring(family, [n], PROBABILITY, DEGREE), target, n)
    rng, rates = np.random.default_rng(0), {"ours": [], "baseline": []}  # type: ignore[var-annotated]

    def ours() -> None:
        y = problem.draw(num_graphs, stream(device, 0)).batch().y
        y.sum().item()  # waits for a GPU

    ours()
    for _ in range(rounds):
        rates["ours"].append(rate(ours, num_graphs))
        if family in ("FC", "CSL"):
            rates["baseline"].append(rate(lambda: with_numpy(BASELINE_GRAPHS, n, family, target, rng), BASELINE_GRAPHS))
    row = [family, target, str(n), f"{statistics.median(rates['ours']):,.0f}", f"{max(rates['ours']):,.0f}"]
    if not rates["baseline"]:
        return [*row, "-", "-"]
    ratio = statistics.median(a / b for a, b in zip(rates["ours"], rates["baseline"], strict=True))
    return [*row, f"{statistics.median(rates['baseline']):,.0f}", f"{ratio:,.0f}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=10_000, help="graphs of 10 nodes per batch; fewer larger ones")
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 20, 40])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    title = f"Graphs per second; torch {torch.__version__}, {platform.machine()}, {options.threads} threads"
    table = Table(title=f"{title}, {options.device}", title_justify="left")
    for header in ("family", "target", "n", "median", "best", "NumPy loop", "ratio"):
        table.add_column(header, justify="left" if header in ("family", "target") else "right")
    cells: list[tuple[Family, Target, int]] = [
        (family, target, n) for family in ("FC", "CSL") for target in get_args(Target) for n in options.nodes
    ]
    cells += [(family, "electric", options.nodes[0]) for family in ("ER", "grid", "regular")]
    for family, target, n in cells:
        graphs = max(100, options.graphs * 100 // n**2)
        table.add_row(*compare(family, target, n, graphs, options.rounds, torch.device(options.device)))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
