"""The incidence matrix B of a batch of graphs in three forms, with the products that layers need.

Column j of B `[n, d]` belongs to edge j = (u -> v) of resistance r_j: -1/sqrt(r_j) at u, +1/sqrt(r_j) at v, whichever
way the edge points. L = B B^T is the graph Laplacian (equation 1 of "Graph Transformers Dream of Electric Flow").

* `DenseIncidence` stores B itself, padded with zero rows and columns, and supports everything.
* `SparseIncidence` stores the edges. A product L x costs O(d) per column; B can only be scaled.
* `EvolvingIncidence` stores B = M B_0 as the n x n matrices M and L_0, never as a matrix with one column per edge.

Legend: n nodes (padded), d edges (padded), m features; a batch adds leading axes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphbench import GraphBatch
from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_linear_transformer.checks import check_edges, check_symmetric_resistance, component_labels
from graphbench_linear_transformer.normalise import AbsoluteSums, nonzero, root


class Incidence(ABC):
    """B as seen by the layers; no operation works in place.

    Examples:
        >>> b: Incidence = DenseIncidence(torch.tensor([[1.0], [-1.0]]))  # one edge of resistance 1
        >>> b.product(torch.eye(2)), b.absolute_sums()
        (tensor([[ 1., -1.],
                [-1.,  1.]]), tensor([1., 1.]))
    """

    @property
    @abstractmethod
    def node_shape(self) -> tuple[int, ...]:
        """Leading axes of the batch, then n."""

    @abstractmethod
    def product(self, x: Tensor) -> Tensor:
        """Compute `L x` for `x [..., n, m]`."""

    @abstractmethod
    def similarity(self) -> Tensor:
        """Compute `L = B B^T`, `[..., n, n]`."""

    @abstractmethod
    def absolute_sums(self) -> Tensor:
        """Compute `D_ii = sum_j |B_ij|`, `[..., n]`."""

    @abstractmethod
    def frobenius(self) -> Tensor:
        """Return the Frobenius norm of B, `[..., 1, 1]`."""

    @abstractmethod
    def components(self) -> Tensor:
        """Label the nodes `[..., n]` by connected component; labels are unique across graphs of a batch."""

    @abstractmethod
    def scaled(self, factor: Tensor) -> Incidence:
        """Compute `factor B`; the factor is one number, or one per graph `[..., 1, 1]`."""

    @abstractmethod
    def evolved(self, left: Tensor) -> Incidence:
        """Compute `left B` for `left [..., n, n]`."""

    def normalised(self) -> Incidence:
        """Scale B to Frobenius norm 1; a graph without edges keeps its zeros."""
        return self.scaled(nonzero(self.frobenius()).reciprocal())


@dataclass(frozen=True, eq=False)
class DenseIncidence(Incidence):
    """B as a matrix.

    Args:
        matrix: `[..., n, d]`.

    Examples:
        >>> b = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]])  # three nodes in a row
        >>> DenseIncidence(b).similarity()
        tensor([[ 1., -1.,  0.],
                [-1.,  2., -1.],
                [ 0., -1.,  1.]])
    """

    matrix: Tensor

    @property
    def node_shape(self) -> tuple[int, ...]:
        """Shape of the matrix without its columns."""
        return self.matrix.shape[:-1]

    def product(self, x: Tensor) -> Tensor:
        """Compute `B (B^T x)`, O(n d) per column."""
        return self.matrix @ (self.matrix.mT @ x)

    def similarity(self) -> Tensor:
        """Compute `B B^T`."""
        return self.matrix @ self.matrix.mT

    def absolute_sums(self) -> Tensor:
        """Sum the rows of |B|."""
        return self.matrix.abs().sum(-1)

    def frobenius(self) -> Tensor:
        """Compute the root of the sum of squares."""
        return torch.linalg.vector_norm(self.matrix, dim=(-2, -1), keepdim=True)

    def components(self) -> Tensor:
        """Label nodes and columns of B as the two sides of a bipartite graph whose edges are the entries of B."""
        *_, n, d = self.matrix.shape
        graph, node, edge = self.matrix.reshape(-1, n, d).nonzero().unbind(1)
        total = math.prod(self.matrix.shape[:-1])
        labels = component_labels(graph * n + node, total + graph * d + edge, total + total // max(n, 1) * d)
        return labels[:total].view(self.matrix.shape[:-1])

    def scaled(self, factor: Tensor) -> DenseIncidence:
        """Multiply every entry by the factor."""
        return DenseIncidence(factor * self.matrix)

    def evolved(self, left: Tensor) -> DenseIncidence:
        """Compute `left @ B`."""
        return DenseIncidence(left @ self.matrix)


@dataclass(frozen=True, eq=False)
class SparseIncidence(Incidence):
    """B as a list of edges.

    Args:
        tail: source of each edge `[d]`; node i of graph g has number `g * n + i`.
        head: target of each edge `[d]`.
        weight: `1 / sqrt(r_j)` `[d]`; 0 for an absent edge.
        shape: leading axes of the batch, then n: `(n,)` for one graph, `(B, n)` for B.

    Examples:
        >>> b = SparseIncidence(torch.tensor([0, 1]), torch.tensor([1, 2]), torch.ones(2), (3,))
        >>> b.product(torch.eye(3)), b.dense().matrix.shape
        (tensor([[ 1., -1.,  0.],
                [-1.,  2., -1.],
                [ 0., -1.,  1.]]), torch.Size([3, 2]))
    """

    tail: Tensor
    head: Tensor
    weight: Tensor
    shape: tuple[int, ...]

    @property
    def node_shape(self) -> tuple[int, ...]:
        """Return `shape`."""
        return self.shape

    @classmethod
    def from_edges(cls, edge_index: Tensor, num_nodes: int, resistance: Tensor | None = None) -> SparseIncidence:
        """Create the incidence of one graph.

        Args:
            edge_index: `[2, d]`, every edge once.
            num_nodes: n.
            resistance: r_j > 0 `[d]`; by default 1. Its dtype is that of B (by default float32).

        Raises:
            BadInput: see `checks.check_edges`.
        """
        check_edges(edge_index, num_nodes, resistance)
        weight = torch.ones(edge_index.shape[1], device=edge_index.device) if resistance is None else resistance.rsqrt()
        return cls(edge_index[0], edge_index[1], weight, (num_nodes,))

    @classmethod
    def from_batch(
        cls, batch: GraphBatch, dtype: torch.dtype = torch.float32, resistance: Tensor | None = None
    ) -> SparseIncidence:
        """Create the incidence of a batch of graphs, or of a plain `Batch` of PyG, padded to the largest graph.

        Graphs are made simple and undirected: an edge in either direction counts once, loops are ignored. The other
        copies are kept with weight 0, so without resistances there is no host-device sync. Memory is O(edges).

        Args:
            batch: the graphs.
            dtype: dtype of the weights.
            resistance: resistance of every directed edge `[num_edges]`; by default 1.

        Raises:
            BadInput: a resistance is not positive and finite, or not the same both ways.
        """
        layout = DenseLayout.from_batch(batch, limit=0)
        n, slot = layout.max_nodes, layout.index
        tail, head = slot[batch.edge_index[0]], slot[batch.edge_index[1]]
        # An undirected key of the two ends; the other end is in the same graph, so its place in the graph is enough.
        pair = torch.minimum(tail, head) * n + torch.maximum(tail, head) % max(n, 1)
        ordered, order = pair.sort(stable=True)
        begins = torch.ones_like(ordered, dtype=torch.bool)
        begins[1:] = ordered[1:] != ordered[:-1]
        first = torch.zeros_like(begins).index_put((order,), begins) & (tail != head)
        weight = first.to(dtype)
        if resistance is not None:
            # Loops have weight 0 for any resistance: 0 * rsqrt(r) must not be NaN.
            resistance = torch.where(tail == head, torch.ones_like(resistance), resistance)
            number = torch.arange(len(order), device=order.device)
            group = torch.where(begins, number, 0).cummax(0).values  # of the first copy
            check_symmetric_resistance(resistance, torch.empty_like(order).index_put((order,), order[group]))
            weight = weight * resistance.to(dtype).rsqrt()
        return cls(tail, head, weight, (layout.num_graphs, n))

    @property
    def num_nodes(self) -> int:
        """Nodes n of each graph, padding included."""
        return self.shape[-1]

    def dense(self, num_columns: int | None = None) -> DenseIncidence:
        """Convert to a matrix with as many columns as the largest graph has edges, without absent edges.

        Args:
            num_columns: number of columns, from `count_columns`; None: counting them costs a host-device sync.
        """
        graph, order, present, counts = self._edges_of_graphs()
        width = int(counts.max()) if num_columns is None else num_columns
        flat = self.weight.new_zeros(math.prod(self.shape) * width)
        if width:
            before = counts.cumsum(0) - counts
            # The column of an edge is its number among the present edges of its graph.
            place = torch.where(present, present.cumsum(0) - 1 - before[graph], 0)  # absent edges add nothing
            tail, head, weight = self.tail[order], self.head[order], self.weight[order]
            flat = flat.index_add(0, tail * width + place, -weight).index_add(0, head * width + place, weight)
        return DenseIncidence(flat.view(*self.shape, width))

    def count_columns(self) -> int:
        """Return the number of columns of `dense`, read from the device."""
        return int(self._edges_of_graphs()[3].max())

    def _edges_of_graphs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the graph of each edge, ascending, the order of edges, which are present, and edges per graph."""
        graph, order = (self.head // max(self.num_nodes, 1)).sort(stable=True)
        present = self.weight.detach()[order] != 0
        counts = torch.zeros(math.prod(self.shape[:-1]), dtype=torch.int64, device=graph.device)
        return graph, order, present, counts.index_add_(0, graph, present.long())

    def evolving(self) -> EvolvingIncidence:
        """Convert to the form that can be multiplied from the left without a column per edge."""
        return EvolvingIncidence.from_laplacian(self.similarity(), self)

    def product(self, x: Tensor) -> Tensor:
        """Compute `B (B^T x)`, O(d) per column."""
        rows = x.reshape(-1, x.shape[-1])
        weight = self.weight.unsqueeze(-1)
        flow = weight * weight * (rows[self.head] - rows[self.tail])
        total = torch.zeros_like(rows).index_add(0, self.head, flow).index_add(0, self.tail, -flow)
        return total.view_as(x)

    def similarity(self) -> Tensor:
        """Return the Laplacian as a dense matrix."""
        conductance, head, tail, n = self.weight.square(), self.head, self.tail, self.num_nodes
        flat = self.weight.new_zeros(math.prod(self.shape) * n)
        for row, column, sign in ((head, head, 1), (tail, tail, 1), (head, tail, -1), (tail, head, -1)):
            flat = flat.index_add(0, row * n + column % n, sign * conductance)
        return flat.view(*self.shape, n)

    def absolute_sums(self) -> Tensor:
        """Add the weight of each edge at both ends."""
        total = self.weight.new_zeros(math.prod(self.shape)).index_add(0, self.head, self.weight.abs())
        return total.index_add(0, self.tail, self.weight.abs()).view(self.shape)

    def frobenius(self) -> Tensor:
        """Add twice the squared weight of each edge."""
        graph = self.head // self.num_nodes
        squares = self.weight.new_zeros(math.prod(self.shape[:-1])).index_add(0, graph, 2 * self.weight.square())
        return root(squares).view(*self.shape[:-1], 1, 1)

    def components(self) -> Tensor:
        """Label the nodes by the components of the present edges."""
        present = self.weight != 0
        return component_labels(self.tail[present], self.head[present], math.prod(self.shape)).view(self.shape)

    def scaled(self, factor: Tensor) -> SparseIncidence:
        """Multiply every weight by the factor of its graph."""
        if factor.numel() > 1:
            factor = factor.reshape(-1)[self.head // self.num_nodes]
        return replace(self, weight=(factor * self.weight).view_as(self.weight))

    def evolved(self, left: Tensor) -> SparseIncidence:
        """Raise an error: `left B` has a dense column for every edge.

        Raises:
            BadInput: always.
        """
        raise BadInput(
            "A layer that changes B (alpha_value, evolve_incidence=True) fills it with entries, so it needs "
            "incidence.evolving(), the dense matrix, or evolve_incidence=False."
        )


@dataclass(frozen=True, eq=False)
class EvolvingIncidence(Incidence):
    """B = M B_0 through the n x n matrices M and L_0, without B itself.

    Adding a constant on a connected component to a row of M has no effect, since the columns of B_0 sum to 0. If kept,
    such constants would grow without bound while B is normalised, and M would lose all digits; so M is 0 in the column
    of the first node of each component. Then ‖M‖ is at most ‖B‖ over the smallest singular value of B_0, and
    `M L_0 M^T`, computed from scratch in every layer, has a relative error of about `eps * lambda_max / lambda_min`.

    Args:
        left: M `[..., n, n]`.
        weighted: `M L_0` `[..., n, n]`.
        laplacian: L_0 `[..., n, n]`.
        first: the first node of each node's component `[..., n]`.
        edges: B_0; without it everything except `absolute_sums` works.

    Examples:
        >>> laplacian = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
        >>> EvolvingIncidence.from_laplacian(laplacian).scaled(torch.tensor(2.0)).product(torch.eye(2))  # (2 B) (2 B)^T
        tensor([[ 4., -4.],
                [-4.,  4.]])
    """

    left: Tensor
    weighted: Tensor
    laplacian: Tensor
    first: Tensor
    edges: SparseIncidence | None = None

    @property
    def node_shape(self) -> tuple[int, ...]:
        """Shape of the labels of components."""
        return self.first.shape

    @classmethod
    def from_laplacian(cls, laplacian: Tensor, edges: SparseIncidence | None = None) -> EvolvingIncidence:
        """Start from M = I on graphs with these Laplacians `[..., n, n]` and, if given, their edges."""
        first = _first_of_component(laplacian)
        identity = torch.eye(first.shape[-1], dtype=laplacian.dtype, device=laplacian.device)
        return cls(_ground(identity.expand_as(laplacian), first), laplacian, laplacian, first, edges)

    def product(self, x: Tensor) -> Tensor:
        """Compute `M L_0 M^T x`, O(n^2) per column."""
        return self.weighted @ (self.left.mT @ x)

    def similarity(self) -> Tensor:
        """Compute `M L_0 M^T`."""
        return self.weighted @ self.left.mT

    def absolute_sums(self) -> Tensor:
        """Sum the rows of |M B_0|, one block of edges at a time.

        Raises:
            BadInput: it was created from a Laplacian only.
        """
        if self.edges is None:
            raise BadInput(
                "The Laplacian does not determine the row sums of |B|. Create the incidence from edges: "
                "SparseIncidence.from_edges(...).evolving()."
            )
        return AbsoluteSums.apply(self.left, self.edges.weight, self.edges.tail, self.edges.head)

    def frobenius(self) -> Tensor:
        """Compute `sqrt(trace M L_0 M^T)`."""
        return root((self.weighted * self.left).sum((-2, -1), keepdim=True))

    def components(self) -> Tensor:
        """Return the first node of each component, numbered over the whole batch."""
        n = self.first.shape[-1]
        offset = n * torch.arange(self.first.numel() // max(n, 1), device=self.first.device)
        return self.first + offset.view(*self.first.shape[:-1], 1)

    def scaled(self, factor: Tensor) -> EvolvingIncidence:
        """Multiply M by the factor."""
        return replace(self, left=factor * self.left, weighted=factor * self.weighted)

    def evolved(self, left: Tensor) -> EvolvingIncidence:
        """Compute `left M`."""
        left = _ground(left @ self.left, self.first)
        # Recompute M L_0 instead of `left @ weighted`: errors of earlier layers would accumulate.
        return replace(self, left=left, weighted=left @ self.laplacian)


def _ground(left: Tensor, first: Tensor) -> Tensor:
    """Subtract the column of the first node of each component of M from the columns of the component."""
    return left - left.gather(-1, first.unsqueeze(-2).expand_as(left))


@torch.no_grad()
def _first_of_component(laplacian: Tensor) -> Tensor:
    """Find the smallest reachable node `[..., n]`: reachability by repeated squaring."""
    n = laplacian.shape[-1]
    reached = (laplacian != 0).to(laplacian.dtype) + torch.eye(n, dtype=laplacian.dtype, device=laplacian.device)
    for _ in range(max(n - 1, 1).bit_length()):
        # Clamped, since the numbers of walks would overflow.
        reached = (reached @ reached).clamp(max=1)
    return (reached > 0).int().argmax(-1)


def as_incidence(incidence: Tensor | Incidence) -> Incidence:
    """Wrap a tensor `[..., n, d]` in `DenseIncidence`; return other forms unchanged."""
    return DenseIncidence(incidence) if isinstance(incidence, Tensor) else incidence
