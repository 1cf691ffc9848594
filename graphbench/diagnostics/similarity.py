"""Measure how similar the tokens of a graph are: over all pairs, and along edges.

Legend: T tokens of all graphs, G graphs (`num_graphs`; the last ones may have no tokens), n tokens of one graph, d
width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from graphbench.diagnostics.ragged import checked_rows, result_dtype, single_graph, sum_per_graph
from graphbench.errors import BadInput, check_choice

#: Edges whose tokens are compared at a time.
_EDGES = 1 << 16


def token_similarity(tokens: Tensor) -> Tensor:
    """Compute the mean cosine similarity of pairs of distinct tokens `[n, d]`, -1 / (n - 1) to 1; NaN for one token.

    `(||sum_i u_i||^2 - sum_i ||u_i||^2) / (n (n - 1))` with `u_i = x_i / ||x_i||`: no n x n matrix is formed. A zero
    token counts with similarity 0. "Sampling Foundational Transformer", figure 8.

    Examples:
        >>> token_similarity(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]))
        tensor(0.3333)
    """
    return token_similarity_per_graph(tokens, single_graph(tokens), 1)[0]


def token_similarity_per_graph(tokens: Tensor, batch: Tensor, num_graphs: int | None = None) -> Tensor:
    """Compute `token_similarity` of each graph `[G]` from tokens `[T, d]` and the graph of each, `batch [T]`.

    Examples:
        >>> token_similarity_per_graph(torch.tensor([[1.0], [2.0], [3.0], [-1.0]]), torch.tensor([0, 0, 1, 1]))
        tensor([ 1., -1.])
    """
    rows, numbers, count = checked_rows(tokens, batch, num_graphs)
    unit = torch.nn.functional.normalize(rows, dim=-1, eps=torch.finfo(torch.float64).tiny)
    pairs = sum_per_graph(unit, numbers, count).square().sum(-1)
    alone = sum_per_graph(unit.square().sum(-1), numbers, count)
    sizes = torch.bincount(numbers, minlength=count).double()
    similarity = (pairs - alone) / (sizes * (sizes - 1))
    return torch.where(sizes > 1, similarity, torch.nan).to(result_dtype(tokens))


def dirichlet_energy(
    tokens: Tensor,
    edge_index: Tensor,
    laplacian: Literal["combinatorial", "symmetric"] = "combinatorial",
    relative: bool = False,
) -> Tensor:
    """Compute the Dirichlet energy `tr(X^T L X)`: how much tokens differ along edges.

    With `L = D - A` it is `1/2 sum_(i,j) ||x_i - x_j||^2` over directed edges; with "symmetric",
    `L = D^-1/2 (D - A) D^-1/2`, it is `1/2 sum_(i,j) ||x_i / sqrt(d_i) - x_j / sqrt(d_j)||^2`. Used as a measure of
    over-smoothing by Cai & Wang, "A note on over-smoothing for graph neural networks", 2020.

    Args:
        tokens: X `[n, d]`.
        edge_index: `[2, num_edges]`; list an undirected edge in both directions; one in a single direction counts half.
        laplacian: which Laplacian L.
        relative: divide by `||X||_F^2`, which makes it independent of scale; NaN if X is zero.

    Examples:
        >>> dirichlet_energy(torch.tensor([[0.0], [3.0]]), torch.tensor([[0, 1], [1, 0]]))
        tensor(9.)
    """
    return dirichlet_energy_per_graph(tokens, edge_index, single_graph(tokens), laplacian, relative, 1)[0]


def dirichlet_energy_per_graph(
    tokens: Tensor,
    edge_index: Tensor,
    batch: Tensor,
    laplacian: Literal["combinatorial", "symmetric"] = "combinatorial",
    relative: bool = False,
    num_graphs: int | None = None,
) -> Tensor:
    """Compute `dirichlet_energy` per graph `[G]`, 0 without edges, from tokens `[T, d]` and their graphs `batch [T]`.

    Raises:
        BadInput: `edge_index` is not `[2, num_edges]` or names absent tokens; `laplacian` is unknown.

    Examples:
        >>> edges, batch = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 0, 1])
        >>> dirichlet_energy_per_graph(torch.tensor([[0.0], [3.0], [5.0]]), edges, batch)
        tensor([9., 0.])
    """
    rows, numbers, count = checked_rows(tokens, batch, num_graphs)
    if edge_index.dim() != 2 or len(edge_index) != 2:
        raise BadInput(f"edge_index must be [2, num_edges], got {list(edge_index.shape)}.")
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < len(tokens):
        low, high = int(edge_index.min()), int(edge_index.max())
        raise BadInput(f"edge_index must name rows 0 to {len(tokens) - 1} of tokens, got {low} to {high}.")
    check_choice("laplacian", laplacian, ("combinatorial", "symmetric"))
    edge_index = edge_index.to(rows.device)
    target = edge_index[1]
    scaled = rows
    if laplacian == "symmetric":
        # A node without edges has no term, but must not divide by 0.
        degree = torch.bincount(target, minlength=len(rows)).clamp(min=1)
        scaled = rows / degree.double().sqrt().unsqueeze(-1)
    # Some edges at a time: tokens at both ends of a million edges take gigabytes.
    along_edges = [(scaled[i] - scaled[j]).square().sum(-1) for i, j in edge_index.split(_EDGES, dim=1)]
    energy = 0.5 * sum_per_graph(torch.cat(along_edges), numbers[target], count)
    if relative:
        energy = energy / sum_per_graph(rows.square().sum(-1), numbers, count)
    return energy.to(result_dtype(tokens))
