"""Compare the karate club's effective resistances from 8 linear-transformer layers with NetworkX, and draw them."""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import torch
from matplotlib.axes import Axes

from graphbench_linear_transformer import bounds, constructions, effective_resistances
from graphbench_linear_transformer.resistance import largest_eigenvalue_bound, resistances_from_inverse

#: Node whose resistances the picture shows.
SOURCE = 0


def networkx_resistances(graph: nx.Graph) -> np.ndarray:
    """Compute R `[n, n]` from NetworkX's pseudo-inverse."""
    pairs = nx.resistance_distance(graph)
    return np.array([[pairs[u][v] for v in graph] for u in graph])


def draw_graph(axes: Axes, graph: nx.Graph, resistances: np.ndarray) -> None:
    """Draw the graph, coloured by resistance from one node."""
    places = nx.spring_layout(graph, seed=3)
    nx.draw_networkx_edges(graph, places, ax=axes, edge_color="0.75", width=0.8)
    dots = nx.draw_networkx_nodes(
        graph, places, ax=axes, node_color=resistances[SOURCE], cmap="viridis_r", node_size=90, edgecolors="white"
    )
    nx.draw_networkx_nodes(graph, places, [SOURCE], ax=axes, node_color="none", edgecolors="crimson", node_size=170)
    axes.figure.colorbar(dots, ax=axes, shrink=0.8, label="resistance from the ringed node")
    axes.set_axis_off()
    axes.set_title("8 layers")


def draw_errors(axes: Axes, graph: nx.Graph, exact: np.ndarray) -> None:
    """Plot the largest error against the number of layers, with the bound of Lemma 4."""
    laplacian = torch.from_numpy(nx.laplacian_matrix(graph, weight=None).toarray()).double()
    step = 1 / float(largest_eigenvalue_bound(laplacian))
    lambda_min = float(torch.linalg.eigvalsh(laplacian)[1])
    layers = list(range(1, 15))
    models = [constructions.electric_flow_fast(num_layers=n, step=step) for n in layers]
    errors = [np.abs(resistances_from_inverse(model(laplacian)).numpy() - exact).max() for model in models]
    limits = [2 * bounds.electric_flow_fast(n, step, lambda_min) for n in layers]
    axes.semilogy(layers, limits, color="0.6", label="bound (Lemma 4)")
    axes.semilogy(layers, errors, "o-", color="tab:blue", markersize=4, label="largest error against NetworkX")
    axes.set(xlabel="layers", ylim=(1e-16, 1e5), xticks=layers[1::2])
    axes.legend(frameon=False, loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)


def main(arguments: list[str] | None = None) -> None:
    """Compute, compare, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("effective_resistances.png"), help="picture to write")
    options = parser.parse_args(arguments)
    graph = nx.karate_club_graph()
    edges = torch.tensor(list(graph.edges)).t()
    ours = effective_resistances(edges, num_nodes=len(graph), num_layers=8, tolerance=0.01).numpy()
    exact = networkx_resistances(graph)
    print(  # noqa: T201 - a script
        f"largest resistance {exact.max():.3f}, largest error of 8 layers {np.abs(ours - exact).max():.1e}"
    )
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    draw_graph(left, graph, ours)
    draw_errors(right, graph, exact)
    figure.savefig(options.output, dpi=90)


if __name__ == "__main__":
    main()
