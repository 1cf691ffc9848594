"""Check graphs, demands and Laplacians before computing from them.

Legend: n nodes, d edges, k demands; a batch adds leading axes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from graphbench.errors import BadInput

#: Number of products in `rayleigh_quotient`.
_POWER_STEPS = 16
#: Allowed relative excess over a limit: eigenvalues computed in float32 are rounded.
_SLACK = 1e-4


def check_edges(edge_index: Tensor, num_nodes: int, resistance: Tensor | None = None) -> None:
    """Check that edges are those of a simple undirected graph, each listed once and with its resistance.

    Args:
        edge_index: `[2, d]`.
        num_nodes: n.
        resistance: resistance of every edge `[d]`; by default 1.

    Raises:
        BadInput: an edge has a node outside `0 .. n - 1`, joins a node to itself or is listed more than once (in either
            direction), or a resistance is not a positive finite number.
    """
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.is_floating_point():
        raise BadInput(f"edge_index must be integers [2, edges], but got {edge_index.dtype} {list(edge_index.shape)}.")
    if edge_index.numel() and (int(edge_index.min()) < 0 or int(edge_index.max()) >= num_nodes):
        raise BadInput(
            f"edge_index has nodes {int(edge_index.min())} to {int(edge_index.max())}, but the graph has nodes 0 to "
            f"{num_nodes - 1}."
        )
    if bool((edge_index[0] == edge_index[1]).any()):
        raise BadInput("An edge of edge_index joins a node to itself, so it carries no current: remove loops.")
    if resistance is not None and (resistance.shape != edge_index.shape[1:] or not bool((resistance > 0).all())):
        raise BadInput(
            f"resistance must be one positive number per edge, [{edge_index.shape[1]}], but has shape "
            f"{list(resistance.shape)} or values that are not positive."
        )
    if resistance is not None and not bool(resistance.isfinite().all()):
        raise BadInput("A resistance is infinite, so the edge carries no current: remove it from edge_index.")
    _check_once(edge_index, num_nodes, resistance)


def _check_once(edge_index: Tensor, num_nodes: int, resistance: Tensor | None) -> None:
    """Reject parallel edges: two of them halve a resistance."""
    key = edge_index.amin(0).long() * num_nodes + edge_index.amax(0)
    unique, counts = key.unique(return_counts=True)
    if len(unique) == len(key):
        return
    twice = int(unique[counts > 1][0])
    copies = (key == twice).nonzero().flatten()
    values = "" if resistance is None else f", with resistances {', '.join(f'{r:g}' for r in resistance[copies])}"
    raise BadInput(
        f"The edge between nodes {twice // num_nodes} and {twice % num_nodes} is listed {len(copies)} times{values}. "
        "Every copy would carry current, and a resistance has no direction: list each edge once, in either direction, "
        "such as edge_index[:, edge_index[0] < edge_index[1]]."
    )


def check_symmetric_resistance(resistance: Tensor, first: Tensor) -> None:
    """Check that resistances are positive and the same both ways.

    Args:
        resistance: resistance of every directed edge `[d]`.
        first: number of the first copy of each edge, in either direction `[d]`.

    Raises:
        BadInput: see above.
    """
    if not bool((resistance.isfinite() & (resistance > 0)).all()):
        raise BadInput("Every resistance must be a positive finite number, but the batch has others.")
    different = (resistance != resistance[first]).nonzero().flatten()
    if len(different):
        edge = int(different[0])
        raise BadInput(
            f"A resistance has no direction, but an edge has {float(resistance[edge]):g} one way and "
            f"{float(resistance[first[edge]]):g} the other way."
        )


def component_labels(tail: Tensor, head: Tensor, num_nodes: int) -> Tensor:
    """Label the nodes `[num_nodes]` by connected component, on the device of the edges."""
    ends = tail.cpu().numpy(), head.cpu().numpy()
    adjacency = coo_matrix((np.ones(len(ends[0]), dtype=np.int8), ends), shape=(num_nodes, num_nodes))
    labels = connected_components(adjacency, directed=False)[1]
    return torch.from_numpy(labels).to(tail.device, torch.int64)


def check_demands(demands: Tensor, labels: Tensor | None = None) -> None:
    """Check that demands are finite and, with components, that a current can meet them.

    Args:
        demands: Ψ `[..., n, k]`.
        labels: component of each node `[..., n]`, unique across graphs of a batch.

    Raises:
        BadInput: a demand is not finite, or does not sum to 0 over a connected component.
    """
    if not bool(demands.isfinite().all()):
        raise BadInput("The demands contain values that are not finite numbers.")
    if labels is None:
        return
    columns, flat = demands.reshape(-1, demands.shape[-1]), labels.reshape(-1)
    zero = columns.new_zeros(int(flat.max()) + 1 if len(flat) else 0, columns.shape[1])
    total, size = zero.index_add(0, flat, columns).abs(), zero.index_add(0, flat, columns.abs())
    if not bool((total > torch.finfo(demands.dtype).eps ** 0.5 * size).any()):
        return
    # Balanced over the graph but not over a part: a different error with a different remedy.
    if bool((demands.sum(-2).abs() <= torch.finfo(demands.dtype).eps ** 0.5 * demands.abs().sum(-2)).all()):
        raise BadInput(
            f"The graph is not connected, and a demand adds up to {float(total.max()):.3g} over one of its parts: no "
            "current flows between parts, so demands must add up to 0 over each of them."
        )
    raise BadInput(
        f"Every demand must add up to 0 over the nodes (what flows in flows out), but one adds up to "
        f"{float(total.max()):.3g}. Subtract its mean: demands - demands.mean(-2, keepdim=True)."
    )


def rayleigh_quotient(product: Callable[[Tensor], Tensor], like: Tensor) -> float:
    """Estimate the largest eigenvalue over all graphs from below: `x^T L x / x^T x` after power iterations.

    Args:
        product: `x -> L x` for `x [..., n, 1]`.
        like: a tensor `[..., n, m]` with the dtype and device of x.
    """
    with torch.no_grad():
        shape = (*like.shape[:-1], 1)
        # A separate generator: a check must not change later draws of training.
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(like)
        for _ in range(_POWER_STEPS):
            image = product(x)
            length = torch.linalg.vector_norm(image, dim=-2, keepdim=True)
            # A graph without edges keeps its x, whose quotient is 0.
            x = torch.where(length > 0, image / length.clamp(min=torch.finfo(image.dtype).tiny), x)
        quotient = (x * product(x)).sum((-2, -1)) / x.square().sum((-2, -1))
    return float(quotient.max())


def check_largest(product: Callable[[Tensor], Tensor], like: Tensor, limit: float, reason: str) -> None:
    """Check that no eigenvalue exceeds the limit of the weights.

    Args:
        product: see `rayleigh_quotient`.
        like: see `rayleigh_quotient`.
        limit: largest eigenvalue that the construction allows.
        reason: the option that sets the limit, with its value.

    Raises:
        BadInput: an eigenvalue is above the limit, so that the layers may diverge.
    """
    largest = rayleigh_quotient(product, like)
    if not largest <= limit * (1 + _SLACK):
        raise BadInput(
            f"{reason} allows eigenvalues of the Laplacian up to {limit:.6g}, but one is at least {largest:.6g}, "
            "so the layers would diverge. Use the largest eigenvalue of all graphs, or a number above it."
        )


def check_laplacian(laplacian: Tensor) -> None:
    """Check that matrices are symmetric and finite.

    Raises:
        BadInput: see above.
    """
    if laplacian.dim() < 2 or laplacian.shape[-2] != laplacian.shape[-1] or not laplacian.is_floating_point():
        raise BadInput(f"Expected a Laplacian [..., n, n], but got {laplacian.dtype} {list(laplacian.shape)}.")
    if torch.compiler.is_compiling():
        return
    if not bool(laplacian.isfinite().all()):
        raise BadInput("The Laplacian contains values that are not finite numbers.")
    rounding = torch.finfo(laplacian.dtype).eps ** 0.5
    if bool(((laplacian - laplacian.mT).abs() > rounding * laplacian.abs().amax((-2, -1), keepdim=True)).any()):
        raise BadInput("The Laplacian is not symmetric: a resistance has no direction.")


def check_connected(laplacian: Tensor, present: Tensor) -> None:
    """Check that Laplacians are those of connected graphs.

    Args:
        laplacian: L `[..., n, n]`.
        present: 1 for nodes that exist, else 0 `[..., n]`.

    Raises:
        BadInput: rows do not sum to 0, or a graph has several components.
    """
    rounding = torch.finfo(laplacian.dtype).eps ** 0.5
    if bool((laplacian.sum(-1).abs() > rounding * laplacian.abs().sum(-1)).any()):
        raise BadInput("The rows of a Laplacian add up to 0, but these do not: L = D - A = B B^T.")
    n = laplacian.shape[-1]
    graph, row, column = laplacian.reshape(-1, n, n).nonzero().unbind(1)
    labels = component_labels(graph * n + row, graph * n + column, present.numel()).view(-1, n)
    exists = present.reshape(-1, n) > 0
    reference = labels.gather(1, exists.int().argmax(1, keepdim=True))
    if bool(((labels != reference) & exists).any()):
        raise BadInput("The graph is not connected, and between its parts resistance is infinite. Use one of them.")
