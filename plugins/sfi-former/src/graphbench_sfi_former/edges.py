"""The sparse flow over a given graph: links are edges, and nothing of the size of nodes times nodes is made."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from graphbench.errors import BadInput
from graphbench_sfi_former.arguments import solving_dtype


def sparse_flow_edges(
    resistance: Tensor,
    friction: Tensor,
    target: Tensor,
    num_nodes: int,
    penalty: float | Tensor,
    alpha: float | None = None,
) -> Tensor:
    """The flow of least energy into every node over the edges of a graph, exactly.

    As `sparse_flow` (SFi-Former, equations 7 and 11), where node i draws on the sources of the edges that end in it:
    a row of the matrix is the set of edges with one target. Any edges will do: those of the graph, loops, shortcuts,
    or virtual nodes (`with_virtual_nodes`).

    The active set is found by passes over all edges at once: start with all, put the water level where the active
    edges have it, drop those above it, and repeat until none drops. Each pass is linear in the edges; the gradient
    runs through the last level alone.

    Args:
        resistance: r `[E, ...]`, positive; further dimensions, such as heads, are solved side by side.
        friction: f `[E, ...]`, non-negative.
        target: node that each edge ends in, int64 `[E]`, in any order.
        num_nodes: nodes.
        penalty: weight of the friction, non-negative: a number, or one a node `[num_nodes]`.
        alpha: weight of the unit-inflow term, positive; None for the hard constraint.

    Returns:
        Flow `[E, ...]` in the dtype of `resistance`; half precision is solved in float32.

    Raises:
        BadInput: shapes or values that do not fit.
    """
    _check(resistance, friction, target, num_nodes, penalty, alpha)
    dtype = solving_dtype(resistance, friction)
    rows = _Rows(target, num_nodes)
    links = resistance.to(dtype).clamp_min(torch.finfo(dtype).tiny)
    least = rows.spread(scatter(links.detach(), target, 0, num_nodes, reduce="min"))
    weight = least / links  # at most 1: the sum cannot overflow
    total = rows.spread(rows.sum(weight))
    weight, unit = weight / total, least / total
    toll = torch.as_tensor(penalty, dtype=dtype, device=links.device).expand(num_nodes)[target]
    cost = friction.to(dtype) * toll.reshape(-1, *(1,) * (links.dim() - 1)) / unit
    slack: Tensor | float = 0.0 if alpha is None else unit / alpha
    with torch.no_grad():
        active = torch.ones_like(cost, dtype=torch.bool)
        while True:
            kept = active & (cost < rows.level(weight, cost, slack, active))
            if torch.equal(kept, active):
                break
            active = kept
    gap = rows.level(weight, cost, slack, active) - cost
    return torch.where(active, weight * gap, 0.0).to(resistance.dtype)


class _Rows:
    """Sums over the edges of each target."""

    def __init__(self, target: Tensor, num_nodes: int) -> None:
        self.target, self.num_nodes = target, num_nodes

    def sum(self, values: Tensor) -> Tensor:
        """`[num_nodes, ...]` of `[E, ...]`."""
        return scatter(values, self.target, 0, self.num_nodes, reduce="sum")

    def spread(self, of_nodes: Tensor) -> Tensor:
        """`[E, ...]` of `[num_nodes, ...]`."""
        return of_nodes.index_select(0, self.target)

    def level(self, weight: Tensor, cost: Tensor, slack: Tensor | float, active: Tensor) -> Tensor:
        """Water level of each edge's row `[E, ...]`: t with sum_A S (t - g) + slack t = 1, see `rows`."""
        held = torch.where(active, weight, 0.0)
        slope = self.spread(self.sum(held)) + slack
        return (1 + self.spread(self.sum(held * torch.where(active, cost, 0.0)))) / slope


def with_virtual_nodes(edge_index: Tensor, graph_of: Tensor, num_graphs: int, num_virtual: int = 1) -> Tensor:
    """The edges of a batch and those of virtual nodes, each joined to all nodes of its graph in both directions.

    Virtual node v of graph g has number `T + g * num_virtual + v`, behind the T nodes.

    Args:
        edge_index: `[2, E]`.
        graph_of: graph of each node `[T]`.
        num_graphs: graphs.
        num_virtual: virtual nodes of each graph.

    Returns:
        `[2, E + 2 T num_virtual]`.
    """
    num_nodes = graph_of.shape[0]
    node = torch.arange(num_nodes, device=graph_of.device).repeat_interleave(num_virtual)
    own = graph_of.repeat_interleave(num_virtual) * num_virtual
    virtual = num_nodes + own + torch.arange(num_virtual, device=graph_of.device).repeat(num_nodes)
    joined = torch.stack((node, virtual))
    return torch.cat((edge_index, joined, joined.flip(0)), dim=1)


def _check(
    resistance: Tensor, friction: Tensor, target: Tensor, num_nodes: int, penalty: float | Tensor, alpha: float | None
) -> None:
    if resistance.shape != friction.shape or resistance.dim() < 1 or target.shape != resistance.shape[:1]:
        raise BadInput(
            "resistance and friction must have one shape [E, ...] and target [E], but have "
            f"{tuple(resistance.shape)}, {tuple(friction.shape)} and {tuple(target.shape)}."
        )
    if target.numel() and not 0 <= int(target.min()) <= int(target.max()) < num_nodes:
        raise BadInput(
            f"target must lie in 0 .. {num_nodes - 1}, but lies in {int(target.min())} .. {int(target.max())}."
        )
    number = torch.as_tensor(penalty)
    if number.dim() and number.shape != (num_nodes,):
        raise BadInput(f"penalty must be a number or one a node [{num_nodes}], but has shape {tuple(number.shape)}.")
    for name, tensor in (("friction", friction), ("penalty", number), ("resistance", resistance)):
        if not bool((tensor >= 0).all()):
            raise BadInput(f"{name} must be non-negative, but its least value is {float(tensor.min())}.")
    if alpha is not None and not 0 < alpha < math.inf:
        raise BadInput(f"alpha must be positive and finite, or None for the hard constraint, but is {alpha}.")
