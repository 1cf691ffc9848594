"""Sample resistor networks and compute their targets, many graphs at once on any device.

"Graph Transformers Dream of Electric Flow" (Cheng, Carin, Sra, ICLR 2025, arXiv 2410.16699), sections 3.5 and 4.1 and
appendix 13. Legend: G graphs, N nodes and D undirected edges of the largest one, k demands. L is the Laplacian with
conductances 1 / r as weights, L† its pseudo-inverse; all graphs are connected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from graphbench.benchmarks.electric_flow.resistor_graphs import Wires, Wiring
from graphbench.benchmarks.tables import make_table
from graphbench.contracts import GraphBatch, GraphTable
from graphbench.contracts.table import EDGE, NODE
from graphbench.errors import BadInput

#: Map of the demands Ψ: L† Ψ, √L† Ψ, e^(-sL) Ψ; or the eigenvectors of L, which need no demands.
Target = Literal["electric", "resistive", "heat", "eigenvectors"]

#: Norm of a target relative to its demands, below which it consists of rounding errors.
_MIN_NORM = 1e-5
#: Mean loss of a model that returns its input, below which the rest is rounding errors and there is nothing to learn.
_MIN_LOSS = 1e-9
#: Entries of the Laplacians of which targets are computed at once, 32 MB: those of 1,000 graphs up to 64 nodes.
_BLOCK_ENTRIES = 2**22

_AXES = {"edge_index": EDGE, "edge_dense": EDGE, "x_dense": NODE, "y": NODE}


@dataclass(frozen=True)
class Problem:
    """Distribution of networks and their targets.

    Args:
        wiring: distribution of the graphs.
        target: see `Target`.
        num_targets: k demands, or the number of eigenvectors.
        log_resistance: resistances are e^u with u uniform between minus and plus this.
        time: s of the heat kernel.
        normalised: compute eigenvectors of `D^(-1/2) L D^(-1/2)`.
        skip: number of eigenvectors to omit, from the smallest eigenvalue on.
        centred: whether the columns of demands add up to 0.
        unit: whether the columns of demands have length 1.
    """

    wiring: Wiring
    target: Target
    num_targets: int
    log_resistance: float = 2.0
    time: float = 0.5
    normalised: bool = False
    skip: int = 0
    centred: bool = True
    unit: bool = False

    def draw(self, num_graphs: int, generator: torch.Generator) -> Networks:
        """Sample networks with nodes and edges in random order, using only the generator, on its device."""
        wires, resistance = sample_resistors(self.wiring, num_graphs, generator, self.log_resistance)
        demands = None if self.target == "eigenvectors" else self._demands(wires, generator)
        # Some graphs at a time: float64 matrices of all of them would be many times as large as the targets.
        count = max(1, _BLOCK_ENTRIES // max(1, wires.max_nodes) ** 2)
        rows = [slice(first, first + count) for first in range(0, max(1, num_graphs), count)]
        parts = [self._targets(wires.take(r), resistance[r], None if demands is None else demands[r]) for r in rows]
        return Networks(wires, resistance, demands, parts[0] if len(parts) == 1 else torch.cat(parts))

    def _demands(self, wires: Wires, generator: torch.Generator) -> Tensor:
        """Sample Ψ `[G, N, k]`."""
        shape = (len(wires.tail), wires.max_nodes, self.num_targets)
        # Not the default dtype, in which the same seed would give other graphs.
        demands = torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32)
        if self.centred:
            demands = centred(demands, wires.num_nodes)
        else:
            demands = demands * _node_mask(wires.num_nodes, wires.max_nodes)[..., None]
        return torch.nn.functional.normalize(demands, dim=1) if self.unit else demands

    def _targets(self, wires: Wires, resistance: Tensor, demands: Tensor | None) -> Tensor:
        """Compute the targets `[G, N, num_targets]`; without demands these are eigenvectors."""
        laplacian = laplacians(wires, resistance)
        if demands is not None:
            return map_demands(laplacian, wires.num_nodes, demands.double(), self.target, self.time).float()
        laplacian = symmetric_normalised(laplacian) if self.normalised else laplacian
        targets = smallest_eigenvectors(laplacian, wires.num_nodes, self.skip + self.num_targets)
        return targets[..., self.skip :].float()


@dataclass(frozen=True)
class Networks:
    """G graphs as padded rows.

    Args:
        wires: the edges.
        resistance: resistance of every edge `[G, D]`.
        demands: Ψ `[G, N, k]`, or None.
        targets: `[G, N, num_targets]`.
    """

    wires: Wires
    resistance: Tensor
    demands: Tensor | None
    targets: Tensor

    def check(self, options: str) -> None:
        """Refuse a map that removes the demands or leaves nothing to learn; the message starts with `options`.

        Raises:
            BadInput: the loss, which divides maps by their norms, is 0 / 0, or 0 for a model that returns its input.
        """
        if self.demands is None:
            return
        lengths = [torch.linalg.vector_norm(matrix, dim=(1, 2)) for matrix in (self.targets, self.demands)]
        norm = float((lengths[0] / lengths[1]).min())
        if not norm > _MIN_NORM:
            raise BadInput(
                f"{options}: the map leaves {norm:.1g} of the norm of some demands, which is rounding error, and the "
                "loss divides by it. Use values for which it leaves more."
            )
        units = [m / n[:, None, None] for m, n in zip((self.targets, self.demands), lengths, strict=True)]
        loss = float((units[0] - units[1]).square().sum((1, 2)).mean())
        if loss < _MIN_LOSS:
            raise BadInput(
                f"{options}: the target is a multiple of the demands, so a model that returns its input has loss "
                f"{loss:.1g}. Use values for which the graph matters."
            )

    def table(self) -> GraphTable:
        """Return the graphs as a table on the CPU; node numbers as int16 where they fit, else int32."""
        columns, nodes, edges = self._columns()
        ends = torch.stack((columns.pop("tail"), columns.pop("head")), dim=1)
        columns["edge_index"] = ends.to(torch.int16 if self.wires.max_nodes < 2**15 else torch.int32)
        return make_table(
            {name: (column.cpu(), _AXES[name]) for name, column in columns.items()}, nodes.cpu(), edges.cpu()
        )

    def batch(self, first_id: int = 0) -> GraphBatch:
        """Return the graphs as a batch on their device, numbered from `first_id`."""
        columns, nodes, edges = self._columns()
        device, num_graphs = nodes.device, len(nodes)
        ptr = torch.zeros(num_graphs + 1, dtype=torch.int64, device=device)
        torch.cumsum(nodes, 0, out=ptr[1:])
        total = len(columns["y"])
        graph = torch.arange(num_graphs, device=device)
        shift = torch.repeat_interleave(ptr[:-1], edges, output_size=len(columns["tail"]))
        batch = GraphBatch()
        batch.edge_index = torch.stack((columns.pop("tail"), columns.pop("head"))) + shift
        for name, column in columns.items():
            batch[name] = column
        batch.batch, batch.ptr = torch.repeat_interleave(graph, nodes, output_size=total), ptr
        batch.graph_id = graph + first_id
        batch.num_nodes, batch.num_graphs, batch.max_nodes = total, num_graphs, self.wires.max_nodes
        if total != num_graphs * self.wires.max_nodes:  # else the host does not have to wait for the device
            batch.max_nodes = int(nodes.max())
        return batch

    def _columns(self) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Return the rows of all graphs, and the numbers of nodes and of directed edges of each graph.

        Each graph has all its edges in one direction, then all in the other.
        """
        wires = self.wires
        present = wires.present.repeat(1, 2)
        columns = {
            "tail": _rows(torch.cat((wires.tail, wires.head), 1), present),
            "head": _rows(torch.cat((wires.head, wires.tail), 1), present),
            "edge_dense": _rows(self.resistance.repeat(1, 2), present)[:, None],
        }
        nodes = _node_mask(wires.num_nodes, wires.max_nodes)
        if self.demands is not None:
            columns["x_dense"] = _rows(self.demands, nodes)
        columns["y"] = _rows(self.targets, nodes)
        return columns, wires.num_nodes, present.sum(1)


def sample_resistors(
    wiring: Wiring, num_graphs: int, generator: torch.Generator, log_resistance: float = 2.0
) -> tuple[Wires, Tensor]:
    """Sample graphs with nodes and edges in random order, and resistances e^u of their edges.

    Args:
        wiring: distribution of the graphs.
        num_graphs: G.
        generator: source of all randomness; the graphs are on its device.
        log_resistance: u is uniform between minus and plus this.

    Returns:
        The edges, and a resistance for each `[G, D]`, float32; those of absent edges are arbitrary.

    Examples:
        >>> import torch
        >>> from graphbench.benchmarks.electric_flow import make_wiring, sample_resistors
        >>> wires, resistance = sample_resistors(make_wiring("CSL", [10]), 3, torch.Generator().manual_seed(0))
        >>> resistance.shape, wires.num_nodes.tolist()
        (torch.Size([3, 20]), [10, 10, 10])
    """
    wires = wiring.draw(num_graphs, generator).shuffled(generator)
    uniform = torch.rand(wires.tail.shape, generator=generator, device=generator.device, dtype=torch.float32)
    return wires, torch.exp(log_resistance * (2 * uniform - 1))


def _rows(padded: Tensor, present: Tensor) -> Tensor:
    """Return the rows `[rows, ...]` of `padded [G, width, ...]` where `present [G, width]`."""
    if padded.shape[1] == 0 or bool(present.all()):
        return padded.flatten(0, 1)
    return padded[present]


def _node_mask(num_nodes: Tensor, max_nodes: int) -> Tensor:
    return torch.arange(max_nodes, device=num_nodes.device) < num_nodes[:, None]


def laplacians(wires: Wires, resistance: Tensor) -> Tensor:
    """Return `L = D - A` with `A_uv = 1 / r_uv`: `[G, N, N]`, float64; absent nodes have zero rows and columns."""
    n = wires.max_nodes
    # float64: conductances span e^4, and L† divides by the smallest eigenvalue.
    conductance = resistance.double().reciprocal() * wires.present
    adjacency = conductance.new_zeros(len(wires.tail), n * n)
    adjacency.scatter_add_(1, wires.tail * n + wires.head, conductance)
    adjacency = adjacency.view(-1, n, n)
    adjacency = adjacency + adjacency.mT
    return torch.diag_embed(adjacency.sum(-1)) - adjacency


def centred(demands: Tensor, num_nodes: Tensor) -> Tensor:
    """Centre demands `[G, N, k]`: columns add up to 0 over the nodes of each graph; absent nodes have 0.

    Examples:
        >>> import torch
        >>> from graphbench.benchmarks.electric_flow import centred
        >>> centred(torch.tensor([[[1.0], [2.0], [9.0]]]), torch.tensor([2])).flatten().tolist()
        [-0.5, 0.5, 0.0]
    """
    mask = _node_mask(num_nodes, demands.shape[1])[..., None].to(demands.dtype)
    demands = demands * mask
    return demands - mask * demands.sum(1, keepdim=True) / num_nodes[:, None, None]


def map_demands(laplacian: Tensor, num_nodes: Tensor, demands: Tensor, target: Target, time: float = 0.5) -> Tensor:
    """Return `U Ψ` `[G, N, k]` for U = L†, √L† or e^(-sL).

    `L† = (L + 11^T / n)^(-1) - 11^T / n` on a connected graph, so `L† Ψ = (L + 11^T / n)^(-1) Ψ` for centred columns
    of Ψ, and centring them changes nothing for L†; the other maps are computed from eigenvalues.

    Args:
        laplacian: L `[G, N, N]`; absent nodes have zero rows and columns.
        num_nodes: nodes of each graph `[G]`.
        demands: Ψ `[G, N, k]`; 0 at absent nodes.
        target: "electric", "resistive" or "heat".
        time: s.

    Examples:
        >>> import torch
        >>> from graphbench.benchmarks.electric_flow import map_demands
        >>> wire = torch.tensor([[[0.5, -0.5], [-0.5, 0.5]]], dtype=torch.float64)  # of resistance 2
        >>> current = torch.tensor([[[1.0], [-1.0]]], dtype=torch.float64)
        >>> map_demands(wire, torch.tensor([2]), current, "electric").flatten().tolist()  # potentials, 2 apart
        [1.0, -1.0]
    """
    mask = _node_mask(num_nodes, laplacian.shape[-1]).to(laplacian.dtype)
    if target == "electric":
        ones = mask[:, :, None] * mask[:, None, :] / num_nodes[:, None, None]
        inverse = torch.linalg.inv_ex(laplacian + ones + torch.diag_embed(1 - mask)).inverse
        return inverse @ centred(demands, num_nodes)
    values, vectors = _eigen(laplacian, mask)
    if target == "heat":
        mapped = torch.exp(-time * values)
    else:
        mapped = values.clamp(min=torch.finfo(values.dtype).tiny).rsqrt()
        mapped[:, 0] = 0.0  # the constant vector
    return vectors @ (mapped[..., None] * (vectors.mT @ demands)) * mask[..., None]


def symmetric_normalised(laplacian: Tensor) -> Tensor:
    """Return `D^(-1/2) L D^(-1/2)` `[G, N, N]`, D the diagonal of L; absent nodes have zero rows and columns."""
    degree = laplacian.diagonal(dim1=-2, dim2=-1)
    root = torch.where(degree > 0, degree, 1.0).rsqrt()
    return root[..., :, None] * laplacian * root[..., None, :]


def smallest_eigenvectors(laplacian: Tensor, num_nodes: Tensor, number: int) -> Tensor:
    """Return v_1, v_2, ... in ascending order of eigenvalues `[G, N, number]`; v_1 of L is the constant `1 / sqrt(n)`.

    Graphs with fewer nodes have columns of zeros instead.
    """
    mask = _node_mask(num_nodes, laplacian.shape[-1]).to(laplacian.dtype)
    vectors = _eigen(laplacian, mask)[1][..., :number] * mask[..., None]
    return torch.nn.functional.pad(vectors, (0, number - vectors.shape[-1]))


def _eigen(laplacian: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues `[G, N]` in ascending order and eigenvectors; those of absent nodes come last."""
    largest = 2 * laplacian.diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True)  # no eigenvalue of L is above
    values, vectors = torch.linalg.eigh(laplacian + torch.diag_embed((1 - mask) * (1 + largest)))
    return values, vectors


def stream(device: torch.device, *numbers: int) -> torch.Generator:
    """Return a generator seeded with the numbers."""
    state = np.random.SeedSequence([number % (1 << 64) for number in numbers]).generate_state(1, np.uint64)
    return torch.Generator(device).manual_seed(int(state[0] >> np.uint64(1)))
