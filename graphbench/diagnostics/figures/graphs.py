"""Draw graphs: positions of nodes, and nodes and edges painted in given colours.

Molecules are drawn by RDKit, other graphs as discs and lines at their own coordinates or at positions that approximate
graph distances.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, Normalize
from PIL import Image
from rdkit import Chem, rdBase
from rdkit.Chem import rdDepictor
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist
from torch import Tensor

from graphbench.diagnostics.figures.molecules import rdkit_drawing

Colour = tuple[float, float, float]

#: Pixels across a molecule's drawing.
_WIDTH = 360
#: Nodes of the largest graph whose layout takes only some seconds.
MOST_LAID_OUT = 1000
#: Flattest and tallest drawings, height over width.
_ASPECTS = (0.35, 1.2)


def painted(values: Tensor, scale: Normalize, colours: Colormap) -> list[Colour]:
    """Map values `[n]` to colours on a scale."""
    return [tuple(map(float, colour[:3])) for colour in colours(scale(values.numpy()))]  # type: ignore[misc]


def undirected_pairs(edge_index: Tensor) -> Tensor:
    """Return every connected pair once, without loops `[2, pairs]`, lower number first."""
    ordered = edge_index.sort(0).values
    return ordered[:, ordered[0] != ordered[1]].unique(dim=1)


@dataclass(frozen=True)
class MoleculeDrawing:
    """A molecule as RDKit depicts it, with colours behind atoms and bonds."""

    molecule: Chem.Mol  # with atoms in node order, and positions in the plane

    @classmethod
    def of(cls, smiles: str, edge_index: Tensor, num_nodes: int) -> MoleculeDrawing | None:
        """Draw a SMILES; None if its atoms and bonds are not the nodes and edges of the graph."""
        rdkit_drawing()
        with rdBase.BlockLogs():
            molecule = Chem.MolFromSmiles(smiles)
        if molecule is None or molecule.GetNumAtoms() != num_nodes:
            return None
        rdDepictor.Compute2DCoords(molecule)
        rdDepictor.StraightenDepiction(molecule)
        drawing = cls(molecule)
        same = torch.equal(undirected_pairs(drawing.pairs), undirected_pairs(edge_index))
        return drawing if same else None

    @cached_property
    def pairs(self) -> Tensor:
        """Atoms of each bond `[2, bonds]`."""
        ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in self.molecule.GetBonds()]
        return torch.tensor(ends, dtype=torch.int64).reshape(-1, 2).t()

    @property
    def labels(self) -> list[str]:
        """Element and number of each atom."""
        return [f"{atom.GetSymbol()}{atom.GetIdx()}" for atom in self.molecule.GetAtoms()]

    @property
    def aspect(self) -> float:
        """Height over width of the depiction, with room for the colours around it."""
        return _aspect(self.molecule.GetConformer().GetPositions()[:, :2], margin=2.0)

    def paint(self, axes: Axes, nodes: Sequence[Colour], lines: Sequence[Colour]) -> None:
        """Draw into `axes`, with a colour for each atom and bond."""
        drawing = rdkit_drawing()
        drawer = drawing.MolDraw2DCairo(_WIDTH, round(_WIDTH * self.aspect))
        options = drawer.drawOptions()
        options.useBWAtomPalette()
        options.padding = 0.04
        options.highlightRadius = 0.42
        options.highlightBondWidthMultiplier = 16
        drawing.PrepareAndDrawMolecule(
            drawer, self.molecule,
            highlightAtoms=list(range(len(nodes))), highlightAtomColors=dict(enumerate(nodes)),
            highlightBonds=list(range(len(lines))), highlightBondColors=dict(enumerate(lines)),
        )  # fmt: skip
        drawer.FinishDrawing()
        axes.imshow(np.asarray(Image.open(io.BytesIO(drawer.GetDrawingText()))), interpolation="antialiased")


@dataclass(frozen=True)
class PlainDrawing:
    """Any graph as discs and lines."""

    num_nodes: int
    pairs: Tensor  # connected nodes `[2, pairs]`, each pair once
    coordinates: np.ndarray | None = None  # of the nodes `[n, 2]`

    @classmethod
    def of(cls, edge_index: Tensor, num_nodes: int, coordinates: Tensor | None = None) -> PlainDrawing:
        """Draw a graph, at the first two of its coordinates `[n, >= 2]` if it has any."""
        plane = None
        if coordinates is not None and coordinates.shape[1] >= 2:
            plane = coordinates[:, :2].double().numpy()
        return cls(num_nodes, undirected_pairs(edge_index), plane)

    @cached_property
    def positions(self) -> np.ndarray:
        """Positions of the nodes `[n, 2]`."""
        return distance_layout(self.pairs, self.num_nodes) if self.coordinates is None else self.coordinates

    @property
    def takes_long(self) -> bool:
        """Return whether there are too many nodes for a layout in some seconds, and no coordinates."""
        return self.coordinates is None and self.num_nodes > MOST_LAID_OUT

    @property
    def labels(self) -> list[str]:
        """Numbers of the nodes."""
        return [str(number) for number in range(self.num_nodes)]

    @property
    def aspect(self) -> float:
        """Height over width."""
        return _aspect(self.positions, margin=1.0)

    def paint(self, axes: Axes, nodes: Sequence[Colour], lines: Sequence[Colour]) -> None:
        """Draw into `axes`, with a colour for each node and pair."""
        ends = self.positions[self.pairs.t().numpy()]
        axes.add_collection(LineCollection(list(ends), colors="0.55", linewidths=3.2, zorder=1))
        axes.add_collection(LineCollection(list(ends), colors=list(lines), linewidths=2.4, zorder=2))
        size = float(np.clip(700 / max(len(nodes), 1), 8, 48))
        axes.scatter(
            self.positions[:, 0], self.positions[:, 1], s=size, c=list(nodes), edgecolors="0.35", linewidths=0.6,
            zorder=3,
        )  # fmt: skip
        axes.margins(0.08)
        axes.set_aspect("equal", adjustable="datalim")


#: A graph that can be painted.
GraphDrawing = MoleculeDrawing | PlainDrawing


def _aspect(positions: np.ndarray, margin: float) -> float:
    """Return height over width of the box around positions `[n, 2]`, limited to what a panel can show."""
    extent = np.ptp(positions, axis=0) + margin if len(positions) > 1 else np.ones(2)
    return float(np.clip(extent[1] / max(extent[0], 1e-9), *_ASPECTS))


def distance_layout(pairs: Tensor, num_nodes: int, steps: int = 100) -> np.ndarray:
    """Return positions in the plane that approximate graph distances, float64 `[n, 2]`, without random numbers.

    Classical scaling in several variants, then majorisation of the stress `sum_{i<j} (|x_i - x_j| - d_ij)^2 / d_ij^2`
    (Gansner, Koren & North, "Graph drawing by stress majorization", 2004), keeping the result with the least stress.
    Disconnected parts are placed side by side. Connected nodes are `pairs [2, pairs]`.
    """
    if num_nodes < 2:
        return np.zeros((num_nodes, 2))
    ends = pairs.numpy()
    adjacency = csr_matrix((np.ones(len(ends[0])), (ends[0], ends[1])), shape=(num_nodes, num_nodes))
    distance = shortest_path(adjacency, directed=False, unweighted=True)
    finite = np.isfinite(distance)
    # Disconnected parts are two edges beyond the longest path.
    distance = np.where(finite, distance, distance[finite].max() + 2.0)
    centre = np.eye(num_nodes) - 1.0 / num_nodes
    values, vectors = np.linalg.eigh(-0.5 * centre @ distance**2 @ centre)
    scaled = vectors * np.sqrt(values.clip(min=0.0))
    angle = 2.4 * np.arange(num_nodes)
    spiral = np.stack((np.cos(angle), np.sin(angle)), 1)  # different for every node, which separates twins
    starts = [(second, shift) for second in (2, min(3, num_nodes)) for shift in (0.1, 0.5, 1.5)]
    one = np.eye(num_nodes)
    weight = (1.0 - one) / (distance + one) ** 2
    inverse = np.linalg.pinv(np.diag(weight.sum(1)) - weight, hermitian=True)

    def majorise(positions: np.ndarray) -> tuple[float, np.ndarray]:
        """Return stress and positions after some steps from a start `[n, 2]`."""
        for _ in range(steps):
            # Each step minimises a quadratic that touches the stress from above, so the stress never increases.
            pull = weight * distance / (cdist(positions, positions) + one).clip(min=1e-9)
            positions = inverse @ (pull.sum(1)[:, None] * positions - pull @ positions)  # in this order O(n^2)
        return float((weight * (cdist(positions, positions) - distance) ** 2).sum()), positions

    layouts = [majorise(scaled[:, [-1, -second]] + shift * spiral) for second, shift in starts]
    return min(layouts, key=lambda result: result[0])[1]
