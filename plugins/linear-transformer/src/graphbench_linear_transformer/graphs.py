"""Incidence matrices of graphs, the input of the linear transformers.

Graphs and resistances are those of `graphbench.benchmarks.electric_flow`. Legend: G graphs, n nodes, d edges.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphbench.benchmarks.electric_flow import Family, Wires, make_wiring, sample_resistors
from graphbench_linear_transformer.checks import check_edges


def incidence_matrix(
    edge_index: Tensor, num_nodes: int, resistance: Tensor | None = None, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Build B `[n, d]` of equation (1): column j has `-1/sqrt(r_j)` at the tail of edge j, `1/sqrt(r_j)` at its head.

    Args:
        edge_index: `[2, d]`, every edge once.
        num_nodes: n.
        resistance: r_j > 0 `[d]`; by default 1.
        dtype: dtype of the result.

    Raises:
        BadInput: see `checks.check_edges`.

    Examples:
        >>> import torch
        >>> from graphbench_linear_transformer.graphs import incidence_matrix
        >>> incidence_matrix(torch.tensor([[0, 1], [1, 2]]), 3, torch.tensor([1.0, 4.0])).tolist()
        [[-1.0, 0.0], [1.0, -0.5], [0.0, 0.5]]
    """
    check_edges(edge_index, num_nodes, resistance)
    if resistance is None:
        resistance = torch.ones(edge_index.shape[1], device=edge_index.device)
    edges = edge_index.long()[:, None]
    sizes = torch.tensor([num_nodes], device=edge_index.device)
    wires = Wires(edges[0], edges[1], torch.ones_like(edges[0], dtype=torch.bool), sizes, num_nodes)
    return incidence_matrices(wires, resistance[None], dtype)[0]


def incidence_matrices(wires: Wires, resistance: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """Build B `[G, n, d]` of many graphs, with zero rows and columns for absent nodes and edges.

    Args:
        wires: the edges.
        resistance: resistance of every edge `[G, d]`.
        dtype: dtype of the result.
    """
    weight = resistance.to(dtype).rsqrt() * wires.present
    incidence = weight.new_zeros(len(weight), wires.max_nodes, weight.shape[1])
    incidence.scatter_(1, wires.tail[:, None], -weight[:, None])
    # Absent edges go from node 0 to itself with weight 0; assigning them would erase an entry, adding does not.
    return incidence.scatter_add_(1, wires.head[:, None], weight[:, None])


def pad_incidence(incidences: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Pad graphs of different sizes to one batch.

    Args:
        incidences: B `[n_g, d_g]` of each graph.

    Returns:
        B `[num_graphs, n, d]` with zero rows and columns for absent nodes and edges, and the nodes of each graph.
    """
    sizes = torch.tensor([matrix.shape for matrix in incidences])
    largest = sizes.amax(0).tolist()
    padded = incidences[0].new_zeros(len(incidences), *largest)
    for target, matrix in zip(padded, incidences, strict=True):
        target[: matrix.shape[0], : matrix.shape[1]] = matrix
    return padded, sizes[:, 0].to(padded.device)


def sample_incidence(
    family: Family,
    num_graphs: int,
    num_nodes: int = 10,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Sample graphs of a family of `ElectricFlow`, with resistances e^u for u uniform in [-2, 2].

    Args:
        family: FC or CSL as in the paper, or another family of `ElectricFlow`.
        num_graphs: G.
        num_nodes: n; the paper uses 10.
        generator: source of randomness; by default torch's generator.
        dtype: dtype of the result.

    Returns:
        B `[G, n, d]`, with d = n (n - 1) / 2 for FC and 2 n for CSL.

    Raises:
        BadInput: the family is unknown, or has no graph with `num_nodes` nodes.

    Examples:
        >>> import torch
        >>> from graphbench_linear_transformer.graphs import sample_incidence
        >>> sample_incidence("CSL", 4, generator=torch.Generator().manual_seed(0)).shape
        torch.Size([4, 10, 20])
    """
    wiring = make_wiring(family, [num_nodes])
    return incidence_matrices(*sample_resistors(wiring, num_graphs, generator or torch.default_generator), dtype)
