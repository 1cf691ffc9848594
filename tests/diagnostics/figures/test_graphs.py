"""Drawings: molecules only if they are the graph, and layouts that keep distances."""

from __future__ import annotations

import sys

import networkx as nx
import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from graphbench.diagnostics.figures.graphs import MoleculeDrawing, PlainDrawing, distance_layout, undirected_pairs
from graphbench.errors import BadInput

PYRIDINE_BONDS = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
BOTH_WAYS = torch.cat((PYRIDINE_BONDS, PYRIDINE_BONDS.flip(0)), 1)


def painted(drawing: PlainDrawing | MoleculeDrawing) -> np.ndarray:
    """Return the pixels of a drawing with red nodes and blue lines."""
    figure = Figure(figsize=(2, 2), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    drawing.paint(axes, [(1.0, 0.0, 0.0)] * len(drawing.labels), [(0.0, 0.0, 1.0)] * drawing.pairs.shape[1])
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].reshape(-1, 3).astype(int)


def share(pixels: np.ndarray, colour: tuple[int, int, int]) -> float:
    return float((np.abs(pixels - colour).max(1) < 60).mean())


def test_pairs_are_undirected_and_without_loops() -> None:
    edges = torch.tensor([[1, 0, 2, 2, 0], [0, 1, 2, 1, 1]])
    assert undirected_pairs(edges).tolist() == [[0, 1], [1, 2]]


def test_a_molecule_is_drawn_only_where_it_is_the_graph() -> None:
    drawing = MoleculeDrawing.of("n1ccccc1", BOTH_WAYS, 6)
    assert drawing is not None
    assert drawing.labels == ["N0", "C1", "C2", "C3", "C4", "C5"]
    assert MoleculeDrawing.of("n1ccccc1", BOTH_WAYS, 7) is None
    assert MoleculeDrawing.of("CCCCCC", BOTH_WAYS, 6) is None  # same atoms, one bond less
    assert MoleculeDrawing.of("n1cccc", BOTH_WAYS, 6) is None  # not a SMILES string


@pytest.mark.parametrize("kind", ["molecule", "plain"])
def test_nodes_and_lines_have_their_colours(kind: str) -> None:
    molecule = MoleculeDrawing.of("n1ccccc1", BOTH_WAYS, 6)
    assert molecule is not None
    pixels = painted(molecule if kind == "molecule" else PlainDrawing.of(BOTH_WAYS, 6))
    assert share(pixels, (255, 0, 0)) > 0.005
    assert share(pixels, (0, 0, 255)) > 0.005
    assert share(pixels, (255, 255, 255)) > 0.3


@pytest.mark.parametrize("graph", [nx.path_graph(9), nx.cycle_graph(8), nx.grid_2d_graph(4, 5), nx.balanced_tree(2, 3)])
def test_layout_keeps_distances_as_well_as_networkx(graph: nx.Graph) -> None:
    graph = nx.convert_node_labels_to_integers(graph)
    distance = np.asarray(nx.floyd_warshall_numpy(graph))

    def stress(positions: np.ndarray) -> float:
        between = np.linalg.norm(positions[:, None] - positions[None], axis=-1)
        return float((((between - distance) / (distance + np.eye(len(graph)))) ** 2).sum())

    ours = distance_layout(torch.tensor(list(graph.edges)).t(), len(graph))
    theirs = np.array(list(nx.kamada_kawai_layout(graph).values()))
    best_scale = min(stress(theirs * scale) for scale in np.linspace(0.3, 6, 300))
    assert stress(ours) <= 1.05 * best_scale + 1e-6


def test_smallest_and_broken_graphs_have_layouts() -> None:
    none = torch.zeros(2, 0, dtype=torch.int64)
    assert distance_layout(none, 0).shape == (0, 2)
    assert distance_layout(none, 1).tolist() == [[0.0, 0.0]]
    apart = distance_layout(torch.tensor([[0, 2], [1, 3]]), 5)
    assert np.isfinite(apart).all()
    between = np.linalg.norm(apart[:, None] - apart[None], axis=-1) + 9 * np.eye(5)
    assert between.min() > 0.3
    assert 0.3 < PlainDrawing.of(none, 1).aspect < 1.3


def test_coordinates_of_the_graph_are_kept() -> None:
    pos = torch.tensor([[0.0, 1.0, 5.0], [2.0, 3.0, 5.0]])
    assert PlainDrawing.of(torch.tensor([[0], [1]]), 2, pos).positions.tolist() == [[0.0, 1.0], [2.0, 3.0]]


def test_a_system_without_x_libraries_is_told_which(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit.Chem.Draw", None)
    with pytest.raises(BadInput, match="apt-get install libxrender1 libxext6"):
        MoleculeDrawing.of("CC", torch.tensor([[0, 1], [1, 0]]), 2)
