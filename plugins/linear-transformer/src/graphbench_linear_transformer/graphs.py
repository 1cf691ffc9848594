"""The paper's random graphs and the maps that the transformer is to compute on them.

Section 3.5 and appendix 13 of arXiv 2410.16699. Graphs come as incidence matrices `[num_graphs, n, d]`: all graphs of a
family have equally many nodes and edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from graphbench.errors import BadInput
from graphbench_linear_transformer.checks import check_edges

#: "FC": all pairs of nodes. "CSL": a cycle and links that skip an even number of nodes.
Family = Literal["FC", "CSL"]
#: The quantity that maps demands to answers: L†, its root, or e^(-sL).
Target = Literal["electric", "resistive", "heat"]


def fully_connected(num_nodes: int) -> Tensor:
    """All pairs of nodes, `[2, n (n - 1) / 2]`."""
    return torch.combinations(torch.arange(num_nodes)).t().contiguous()


def circular_skip_links(num_nodes: int, skip: int) -> Tensor:
    """A cycle, and a link from every node to the one `skip` further on, `[2, 2 n]`.

    Raises:
        BadInput: links would fall on the cycle or on each other.
    """
    if not 2 <= skip <= num_nodes - 2 or 2 * skip == num_nodes:
        raise BadInput(
            f"skip must be from 2 to {num_nodes - 2} and not half of {num_nodes} nodes, but is {skip}: links would "
            "coincide."
        )
    node = torch.arange(num_nodes)
    return torch.cat([torch.stack([node, (node + hop) % num_nodes]) for hop in (1, skip)], dim=1)


def incidence_matrix(
    edge_index: Tensor, num_nodes: int, resistance: Tensor | None = None, dtype: torch.dtype = torch.float64
) -> Tensor:
    """B `[n, d]` of equation (1): column j has `-1/sqrt(r_j)` at the tail and `+1/sqrt(r_j)` at the head of edge j.

    Args:
        edge_index: `[2, d]`, every edge once.
        num_nodes: n.
        resistance: r_j > 0 `[d]`; 1 without it.
        dtype: of the result.

    Raises:
        BadInput: see `checks.check_edges`.
    """
    check_edges(edge_index, num_nodes, resistance)
    edges = torch.arange(edge_index.shape[1], device=edge_index.device)
    weight = torch.ones(len(edges), device=edges.device) if resistance is None else resistance
    weight = weight.to(dtype).rsqrt()
    incidence = torch.zeros(num_nodes, len(edges), dtype=dtype, device=edges.device)
    incidence[edge_index[0], edges] = -weight
    incidence[edge_index[1], edges] = weight
    return incidence


def pad_incidence(incidences: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Graphs of different sizes in one batch.

    Args:
        incidences: B `[n_g, d_g]` of each graph.

    Returns:
        B `[num_graphs, n, d]` with zero rows and columns for what is absent, and the nodes of each graph.
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
    """Random graphs of a family: resistances e^u with u uniform in [-2, 2], nodes and edges in random order.

    Args:
        family: see `Family`; the skip of "CSL" is uniform among the even numbers from 2 to n - 2, but for n / 2.
        num_graphs: how many.
        num_nodes: n; the paper takes 10.
        generator: source of randomness, else torch's own.
        dtype: of the result.

    Returns:
        B `[num_graphs, n, d]`, d = n (n - 1) / 2 or 2 n.

    Raises:
        BadInput: the family is not known, or "CSL" has no skip for so few nodes.
    """
    if family not in get_args(Family):
        raise BadInput(f"family must be one of {get_args(Family)}, but got {family!r}.")
    skips = [skip for skip in range(2, num_nodes - 1, 2) if 2 * skip != num_nodes] if family == "CSL" else []
    if family == "CSL" and not skips:
        raise BadInput(f"CSL graphs of {num_nodes} nodes have no even skip; take at least 5 nodes.")
    kinds = [circular_skip_links(num_nodes, skip) for skip in skips] or [fully_connected(num_nodes)]
    matrices = torch.stack([incidence_matrix(edges, num_nodes, dtype=dtype) for edges in kinds])
    incidence = matrices[torch.randint(len(kinds), (num_graphs,), generator=generator)]
    _, n, d = incidence.shape
    log_resistance = 4 * torch.rand(num_graphs, 1, d, generator=generator, dtype=dtype) - 2
    incidence = incidence * torch.exp(-log_resistance / 2)
    nodes = torch.rand(num_graphs, n, 1, generator=generator).argsort(1)
    edges = torch.rand(num_graphs, 1, d, generator=generator).argsort(2)
    return incidence.gather(1, nodes.expand(-1, -1, d)).gather(2, edges.expand(-1, n, -1))


def sample_demands(
    num_graphs: int,
    num_nodes: int,
    num_demands: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Gaussian demands Ψ `[num_graphs, n, k]` whose columns add up to 0."""
    demands = torch.randn(num_graphs, num_nodes, num_demands, generator=generator, dtype=dtype)
    return demands - demands.mean(-2, keepdim=True)


def target_matrix(laplacian: Tensor, target: Target, time: float = 0.5) -> Tensor:
    """The matrix U of a target `[..., n, n]`, from the eigenvalues and eigenvectors of connected graphs.

    Args:
        laplacian: L `[..., n, n]`.
        target: "electric" for L†, "resistive" for its principal root, "heat" for e^(-sL).
        time: s.

    Raises:
        BadInput: the target is not known.
    """
    if target not in get_args(Target):
        raise BadInput(f"target must be one of {get_args(Target)}, but got {target!r}.")
    values, vectors = torch.linalg.eigh(laplacian)
    if target == "heat":
        mapped = torch.exp(-time * values)
    else:
        mapped = values.clamp(min=torch.finfo(values.dtype).tiny) ** (-1.0 if target == "electric" else -0.5)
        mapped[..., 0] = 0.0
    return (vectors * mapped.unsqueeze(-2)) @ vectors.mT
