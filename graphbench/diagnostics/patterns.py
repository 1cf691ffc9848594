"""Attention patterns of substructures: where an ideal head would look.

DeepGraph (Zhao et al., ICLR 2023), section 4.1: a pattern e of a substructure S is a row of attention weights that is
positive only on the nodes of S and sums to one; Appendix G uses uniform patterns.

Legend: m (or S over all graphs) patterns, M their members, n nodes of a graph, T nodes of all graphs, G graphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from graphbench.diagnostics.ragged import Ragged
from graphbench.errors import BadInput


def pattern_matrix(member_index: Tensor, member_substructure: Tensor, num_substructures: int, num_nodes: int) -> Tensor:
    """Return uniform patterns as a dense matrix `[num_substructures, num_nodes]`: `1 / |S|` on the nodes of S, float32.

    Members are pairs of a node and a substructure, `[M]` each. For one graph the result is its patterns `E^T`; for a
    batch, whose nodes and substructures are numbered consecutively, it is the block-diagonal matrix of all graphs.
    `Patterns` stores the same without the zeros.

    Raises:
        BadInput: a member is out of range, or a substructure has no members.

    Examples:
        >>> pattern_matrix(torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1]), num_substructures=2, num_nodes=3)
        tensor([[0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 1.0000]])
    """
    _check_members(member_index, member_substructure, num_substructures, num_nodes)
    place = member_substructure.long() * num_nodes + member_index.long()
    counts = torch.bincount(place, minlength=num_substructures * num_nodes).reshape(num_substructures, num_nodes)
    return counts / counts.sum(1, keepdim=True)


def _check_members(node: Tensor, pattern: Tensor, num_patterns: int, num_nodes: int) -> None:
    if node.dim() != 1 or node.shape != pattern.shape:
        raise BadInput(
            f"A pattern's members are two vectors of one length, got shapes {list(node.shape)} and "
            f"{list(pattern.shape)}."
        )
    for name, index, limit in (("node", node, num_nodes), ("substructure", pattern, num_patterns)):
        if len(index) and not 0 <= int(index.min()) <= int(index.max()) < limit:
            raise BadInput(f"Members name {name}s {int(index.min())} to {int(index.max())}, but there are {limit}.")
    empty = torch.bincount(pattern.long(), minlength=num_patterns) == 0
    if bool(empty.any()):
        raise BadInput(f"Every substructure needs at least one node; number {int(empty.nonzero()[0])} has none.")


@dataclass(frozen=True)
class Patterns:
    """Attention patterns of a batch of graphs, in ragged form: sparse rows of `E^T`, ordered by graph.

    Build it with `Patterns.uniform`, or pass custom weights.

    Args:
        node: node of each member, numbered across the batch `[M]`.
        pattern: pattern of each member, ascending `[M]`.
        weight: attention weight of each member `[M]`, non-negative, sums to one in every pattern.
        batch: graph of each pattern `[S]`.
        num_nodes: nodes of each graph `[G]`.

    Raises:
        BadInput: members, weights and graphs do not match.

    Examples:
        >>> members, of = torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1])
        >>> patterns = Patterns.uniform(members, of, torch.tensor([0, 0]), num_nodes=torch.tensor([3]))
        >>> patterns.apply(torch.tensor([[2.0], [4.0], [6.0]]))
        tensor([[3.],
                [6.]])
    """

    node: Tensor
    pattern: Tensor
    weight: Tensor
    batch: Tensor
    num_nodes: Tensor

    def __post_init__(self) -> None:
        _check_members(self.node, self.pattern, len(self.batch), int(self.num_nodes.sum()))
        if bool((self.pattern.diff() < 0).any()):
            raise BadInput("Members of patterns must be sorted by pattern; Patterns.uniform sorts them.")
        if len(self.batch) and not 0 <= int(self.batch.min()) <= int(self.batch.max()) < self.num_graphs:
            low, high = int(self.batch.min()), int(self.batch.max())
            raise BadInput(f"Patterns name graphs {low} to {high}, but num_nodes describes {self.num_graphs}.")
        if bool((self.graph_of_node[self.node] != self.batch[self.pattern]).any()):
            raise BadInput("A pattern has nodes of another graph; nodes are numbered across the whole batch.")
        total = self.weight.new_zeros(len(self.batch)).index_add_(0, self.pattern, self.weight)
        if bool((self.weight < 0).any()) or not bool(((total - 1).abs() <= 1e-4).all()):  # also NaN
            raise BadInput("The weights of a pattern must be non-negative and sum to one.")

    @classmethod
    def uniform(
        cls, member_node: Tensor, member_substructure: Tensor, substructure_batch: Tensor, num_nodes: Tensor
    ) -> Patterns:
        """Create patterns with weight `1 / |S|` on every node of S, from the fields of a batch with substructures.

        Patterns.uniform(batch.member_node, batch.member_substructure, batch.substructure_batch, batch.ptr.diff())
        """
        pattern, order = member_substructure.long().sort(stable=True)
        size = torch.bincount(pattern, minlength=len(substructure_batch))
        return cls(member_node.long()[order], pattern, 1.0 / size[pattern].double(), substructure_batch, num_nodes)

    @property
    def num_graphs(self) -> int:
        """Number of graphs G of the batch."""
        return len(self.num_nodes)

    @cached_property
    def graph_of_node(self) -> Tensor:
        """Graph of each node `[T]`."""
        return torch.repeat_interleave(torch.arange(self.num_graphs, device=self.num_nodes.device), self.num_nodes)

    @cached_property
    def counts(self) -> Tensor:
        """Number of patterns of each graph `[G]`."""
        return torch.bincount(self.batch, minlength=self.num_graphs)

    def apply(self, values: Tensor) -> Tensor:
        """Compute what each pattern attends to, `E^T V`: `[T, ...]` -> `[S, ...]`, in the type of `values`."""
        size = torch.bincount(self.pattern, minlength=len(self.batch))
        mixed = F.embedding_bag(
            self.node.to(values.device),
            values.flatten(1),
            (size.cumsum(0) - size).to(values.device),
            mode="sum",
            per_sample_weights=self.weight.to(values),
        )
        return mixed.unflatten(1, values.shape[1:])

    @cached_property
    def centred_norm(self) -> Tensor:
        """Return `||P_m E^T||_2` of each graph, `P_m = I - 1 1^T / m`, float64 `[G]`; 0 without patterns."""
        ragged = Ragged(self.batch, self.num_graphs)
        number, most = ragged.position(), int(self.num_nodes.max()) if self.num_graphs else 0
        first = self.num_nodes.cumsum(0) - self.num_nodes
        norms = torch.zeros(self.num_graphs, dtype=torch.float64, device=self.node.device)
        slot = torch.full((self.num_graphs,), -1, device=self.node.device)
        for graphs, width in ragged.buckets(lambda m: m * most):
            # `slot` is a graph's position in its bucket, -1 for the members of all other graphs.
            slot[:] = -1
            slot[graphs] = torch.arange(len(graphs), device=graphs.device)
            graph = self.batch[self.pattern]
            chosen = slot[graph] >= 0
            graph, node, pattern = graph[chosen], self.node[chosen], self.pattern[chosen]
            dense = torch.zeros(len(graphs), width, most, dtype=torch.float64, device=self.node.device)
            index = (slot[graph], number[pattern], node - first[graph])
            dense.index_put_(index, self.weight[chosen].double(), accumulate=True)
            norms[graphs] = _centred_spectral_norm(dense, self.counts[graphs])
        return norms

    def to(self, device: torch.device | str) -> Patterns:
        """Move the patterns to another device."""
        fields = (self.node, self.pattern, self.weight, self.batch, self.num_nodes)
        return Patterns(*(field.to(device) for field in fields))


def _centred_spectral_norm(dense: Tensor, counts: Tensor) -> Tensor:
    """Return `||P_m E^T||_2` `[B]` of zero-padded `E^T [B, m, n]`, with `counts [B]` rows that are patterns."""
    real = torch.arange(dense.shape[1], device=dense.device) < counts.unsqueeze(1)
    dense = (dense - dense.sum(1, keepdim=True) / counts.reshape(-1, 1, 1)) * real.unsqueeze(-1)
    # The Gram matrix of the shorter side has the same largest eigenvalue, and is faster than a singular value.
    side = dense if dense.shape[1] <= dense.shape[2] else dense.transpose(1, 2)
    return torch.linalg.eigvalsh(side @ side.transpose(1, 2))[:, -1].clamp(min=0).sqrt()
