"""Relative information of token pairs in the attention scores (SFT, sections 4.2 and 4.3, appendix D.1).

Per head, `R_mul = softplus(W_mul x_R + b_mul)` and `R_add = W_add x_R + b_add`; a score A becomes
`A * R_mul + R_add`. The columns of x_R at the sampled token and at its partner are mapped separately and then combined
with the weights of the pair. Relations of all pairs are computed for the sampled columns only, in O(n K).

Legend: B graphs, N padded tokens, K sampled tokens, H heads, r width of the relative features, E edges;
a chunk has b graphs and n of their rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from graphbench.nn import DenseLayout, count_nodes
from graphbench_sft.sampler import Sample

#: Maps the scores `[b, H, n, K]` of a chunk into those with relative terms.
ScoreMap = Callable[[Tensor], Tensor]
#: Returns `W x_R + b` of a weight `[2 H, r]` and a bias `[2 H]`.
AffineMap = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Chunk:
    """A part of the score tensor `[B, H, N, K]`: whole graphs, or some rows of one graph.

    Args:
        graphs: which graphs.
        rows: which of their rows.
    """

    graphs: slice
    rows: slice


class RelativeTerms(nn.Module):
    """The two linear maps of one layer; `2 H (r + 1)` parameters.

    Args:
        dim: width r of the relative features.
        num_heads: heads H.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.linear = nn.Linear(dim, 2 * num_heads)

    def forward(self, mapped: AffineMap, dim: int) -> tuple[Tensor, Tensor]:
        """Compute `R_mul` and `R_add` of relative features, given as their affine map.

        Args:
            mapped: returns `W x_R + b` of a weight `[2 H, r]` and a bias `[2 H]`.
            dim: axis of the result that contains the `2 H` numbers of a pair.
        """
        mul, add = mapped(self.linear.weight, self.linear.bias).chunk(2, dim)
        return F.softplus(mul), add

    def at_zero(self) -> tuple[Tensor, Tensor]:
        """Compute `R_mul` and `R_add` of a pair without relative features, each `[H]`."""
        mul, add = self.linear.bias.chunk(2)
        return F.softplus(mul), add

    def map_rows(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Compute `R_mul` and `R_add`, each `[rows, H]`, of relative features `[rows, r]`."""
        return self(partial(F.linear, features.to(self.linear.weight.dtype)), -1)


class PairTerms(NamedTuple):
    """Relative terms of some pairs of a token and a slot, in addition to those of all pairs.

    Args:
        row: padded number (`graph * N + node`) of the attending token `[P]`, ascending.
        slot: slot of the sample `[P]`.
        mul: added to the factor `[P, H]`.
        add: added to the summand `[P, H]`.
    """

    row: Tensor
    slot: Tensor
    mul: Tensor
    add: Tensor


class PlaceTerms(NamedTuple):
    """Operands of relative terms of places: squared distances and dot products of normals, mapped and mixed.

    Args:
        places: three coordinates and the normal of each padded token `[B, N, 6]`, 0 where there are fewer.
        chosen: sampled tokens `[B, K]`.
        partner: tokens mixed into them `[B, K]`.
        weight: share of the sampled tokens `[B, K]`.
        maps: linear maps of distance, product and 1 to a factor, before the softplus, and to a summand `[H, 6]`.
    """

    places: Tensor
    chosen: Tensor
    partner: Tensor
    weight: Tensor
    maps: Tensor


@dataclass(frozen=True)
class EdgeRelation:
    """Relative information that is zero except on edges: `x_R[i, j]` are the features of edge j -> i.

    Terms of parallel edges add up: each edge adds its difference from a pair without an edge.

    Args:
        row: padded number (`graph * N + node`) of the attending node of each edge `[E]`, ascending.
        column: padded number of the node attended to `[E]`.
        features: `[E, r]`.
        num_slots: padded nodes `B * N`.
    """

    row: Tensor
    column: Tensor
    features: Tensor
    num_slots: int

    def bind(self, terms: RelativeTerms, sample: Sample, chunks: Sequence[Chunk]) -> list[ScoreMap]:
        """Return the map of the scores of each chunk (in the order of rows), in O(edges + scores)."""
        mul_zero, add_zero = terms.at_zero()
        holder = None
        if sample.repeats and not _is_counted(sample.index):
            # At most one term per edge, at the first slot of its source; the other slots read it there.
            holder = (sample.index[:, :, None] ^ sample.index[:, None, :]).argmin(-1)  # 0 for equal tokens
            slots = torch.arange(holder.shape[1], device=holder.device)
            sample = replace(sample, mask=holder == slots, repeats=False)
        row, slot, mul, add = self.pairs(terms, sample)
        num_graphs, num_samples = sample.index.shape
        num_nodes = self.num_slots // max(num_graphs, 1)
        graph, place = row // num_nodes, row % num_nodes * num_samples + slot
        # `split` for the views: its gradient is assembled once, whereas each slice would cost a full-size tensor.
        sizes = _pairs_by_chunk(row, chunks, num_nodes)
        parts = zip(chunks, *(tensor.split(sizes) for tensor in (graph, place, mul, add)), strict=True)

        def make(chunk: Chunk, graph: Tensor, place: Tensor, mul: Tensor, add: Tensor) -> ScoreMap:
            def apply(scores: Tensor) -> Tensor:
                _, heads, rows, _ = scores.shape
                # Flat index of (graph, head, row, slot) in the chunk [b, H, n, K]; `place` is row * K + slot.
                first = (graph - chunk.graphs.start) * heads * rows - chunk.rows.start
                index = (first * num_samples + place).unsqueeze(-1)
                index = index + torch.arange(heads, device=index.device) * (rows * num_samples)
                moved = torch.addcmul(_per_head(add_zero, scores), scores, _per_head(mul_zero, scores))
                if holder is None:
                    change = scores.reshape(-1)[index] * mul.to(scores.dtype) + add.to(scores.dtype)
                    # Add instead of assigning: parallel edges, and edges to both tokens of a slot, share an entry.
                    moved.view(-1).index_add_(0, index.flatten(), change.flatten())
                    return moved
                both = torch.stack([mul, add]).to(scores.dtype).flatten(1)
                both = scores.new_zeros(2, scores.numel()).index_add_(1, index.flatten(), both).view(2, *scores.shape)
                factor, summand = both.gather(-1, holder[chunk.graphs, None, None].expand_as(both))
                return moved + torch.addcmul(summand, scores, factor)

            return apply

        return [make(*part) for part in parts]

    def pairs(self, terms: RelativeTerms, sample: Sample) -> PairTerms:
        """Compute the terms of pairs of an edge and a slot, in addition to `terms.at_zero`."""
        edge, slot, share = self._at_samples(sample)
        mul_zero, add_zero = terms.at_zero()
        # Biases also act without an edge: R = R(0) + p (R(x_top) - R(0)) + (1 - p) (R(x_rand) - R(0)), p the share.
        mul, add = terms.map_rows(self.features[edge])
        mul, add = (mul - mul_zero) * share.unsqueeze(-1), (add - add_zero) * share.unsqueeze(-1)
        return PairTerms(self.row[edge], slot, mul, add)

    def _at_samples(self, sample: Sample) -> tuple[Tensor, Tensor, Tensor]:
        """List pairs of an edge and a slot that contains its source: edge, slot and share, each `[pairs]`.

        If no two slots contain the same node, each edge has at most one. On a GPU an edge without one is kept with a
        share of 0: dropping it would force a host-device sync.
        """
        node, slot, share = _entries(sample, self.num_slots)
        if not sample.repeats:
            # The last place takes the entries without a node; no edge reads it.
            entry = torch.full((self.num_slots + 1,), -1, device=node.device)
            entry = entry.scatter_(0, node, torch.arange(len(node), device=node.device))[self.column]
            edge = torch.arange(len(entry), device=node.device)
            if _is_counted(node):
                edge = (entry >= 0).nonzero().squeeze(1)
            entry = entry[edge]
            return edge, slot[entry], share[entry] * (entry >= 0)
        # Every edge, once for each slot that contains its source: the slots of a node are a range of `order`.
        node, order = node.sort(stable=True)
        count = count_nodes(node, self.num_slots + 1)
        first = count.cumsum(0) - count
        repeats = count[self.column]
        edge = torch.repeat_interleave(repeats)
        before = (repeats.cumsum(0) - repeats)[edge]
        holder = order[first[self.column[edge]] + torch.arange(len(edge), device=edge.device) - before]
        return edge, slot[holder], share[holder]


def edge_relations(
    edge_index: Tensor, features: Tensor, layout: DenseLayout | Data | Tensor
) -> tuple[EdgeRelation, ...]:
    """Split the edges of a batch as `layout.blocks` splits the graphs, once for all layers.

    Args:
        edge_index: sources and targets `[2, E]`; a target attends to its sources.
        features: `[E, r]`.
        layout: layout of the nodes, or the graphs, as for `SampledAttention.forward`.

    Examples:
        >>> from torch_geometric.data import Data
        >>> from graphbench_sft import SampledAttention
        >>> graph = Data(x=torch.randn(3, 8), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
        >>> relations = edge_relations(graph.edge_index, torch.ones(3, 1), graph)
        >>> SampledAttention(8, num_heads=2, num_samples=2, relation_dim=1)(graph.x, graph, relations).shape
        torch.Size([3, 8])
    """
    layout = layout if isinstance(layout, DenseLayout) else DenseLayout.from_batch(layout)
    place, owner = torch.empty_like(layout.index), torch.zeros_like(layout.index)
    for number, block in enumerate(layout.blocks):
        rows = slice(None) if block.rows is None else block.rows
        place[rows], owner[rows] = block.layout.index, number
    (source, target), size = edge_index, layout.mask.numel()
    # Sort by block, then by row: the edges of a block, and of each of its chunks, are then a range.
    order = (owner[target] * size + place[target]).argsort(stable=True)
    # Only layouts on a CPU are split, so `tolist` does not cause a host-device sync.
    sizes = [len(order)] if layout.cut is None else torch.bincount(owner[target], minlength=layout.num_blocks).tolist()
    row, column, features = place[target[order]], place[source[order]], features[order]
    parts = zip(row.split(sizes), column.split(sizes), features.split(sizes), layout.blocks, strict=True)
    return tuple(EdgeRelation(r, c, f, block.layout.mask.numel()) for r, c, f, block in parts)


def _is_counted(x: Tensor) -> bool:
    """Return whether sizes may depend on values; a GPU would need a sync, and torch.compile another program."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def _entries(sample: Sample, num_slots: int) -> tuple[Tensor, Tensor, Tensor]:
    """List the entries of a sample: padded node (`num_slots` for none), slot and share, each `[entries]`."""
    shape = sample.index.shape
    graph = torch.arange(shape[0], device=sample.index.device).unsqueeze(-1)
    first = graph * (num_slots // max(shape[0], 1))
    node = sample.index + first
    node = node if sample.mask is None else node.masked_fill(~sample.mask, num_slots)
    slot = torch.arange(shape[1], device=node.device).expand(shape).flatten()
    if sample.partner is None or sample.weight is None:
        return node.flatten(), slot, sample.tokens.new_ones(slot.shape)
    # A token that is its own partner is not mixed and counts once.
    other = (sample.partner + first).masked_fill(sample.partner == sample.index, num_slots)
    shares = torch.cat([sample.weight.flatten(), 1.0 - sample.weight.flatten()])
    return torch.cat([node.flatten(), other.flatten()]), slot.repeat(2), shares


def _pairs_by_chunk(row: Tensor, chunks: Sequence[Chunk], num_nodes: int) -> list[int]:
    """Count the ascending padded `row` numbers in each chunk."""
    if len(chunks) == 1:
        return [len(row)]
    first = [chunk.graphs.start * num_nodes + chunk.rows.start for chunk in chunks]
    start = torch.searchsorted(row, torch.tensor(first, device=row.device))
    return torch.cat([start, start.new_tensor([len(row)])]).diff().tolist()


def _per_head(value: Tensor, scores: Tensor) -> Tensor:
    return value.to(scores.dtype).view(-1, 1, 1)


class PairRelation(ABC):
    """Relative information of all pairs of a block of graphs; rows attend to columns."""

    def bind(self, terms: RelativeTerms, sample: Sample, chunks: Sequence[Chunk]) -> list[ScoreMap]:
        """Return the map of the scores of each chunk.

        The columns of a sampled token and of its partner are mapped separately and then mixed like the tokens.
        """

        def map_columns(columns: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor]:
            return terms(self.at(chunk, columns[chunk.graphs]), 1)

        def make(chunk: Chunk) -> ScoreMap:
            def apply(scores: Tensor) -> Tensor:
                # Mapped, then mixed (section 4.2, step 5): the maps see features of real pairs, not of mixtures.
                mul, add = map_columns(sample.index, chunk)
                if sample.partner is not None and sample.weight is not None:
                    other_mul, other_add = map_columns(sample.partner, chunk)
                    weight = sample.weight[chunk.graphs, None, None].to(mul.dtype)
                    mul, add = torch.lerp(other_mul, mul, weight), torch.lerp(other_add, add, weight)
                return torch.addcmul(add.to(scores.dtype), scores, mul.to(scores.dtype))

            return apply

        return [make(chunk) for chunk in chunks]

    @abstractmethod
    def at(self, chunk: Chunk, columns: Tensor) -> AffineMap:
        """Return the affine map of the relative features of the rows of a chunk and tokens `columns [b, K]`.

        Returns:
            Function for `W x_R + b`, `[b, 2 H, n, K]`, of a weight `[2 H, r]` and a bias `[2 H]`.
        """


@dataclass(frozen=True)
class DenseRelation(PairRelation):
    """Explicit numbers: `values [B, r, N, N]`, `x_R[i, j] = values[:, :, i, j]`."""

    values: Tensor

    def at(self, chunk: Chunk, columns: Tensor) -> AffineMap:
        """See `PairRelation.at`; gathers columns."""
        values = self.values[chunk.graphs, :, chunk.rows]
        index = columns[:, None, None].expand(*values.shape[:3], columns.shape[-1])
        return partial(_by_channel, values.gather(-1, index))


@dataclass(frozen=True)
class DistanceRelation(PairRelation):
    """Squared distances, and dot products of normals if given; both are invariant to rotations.

    `x_R[i, j] = (|p_i - p_j|^2, m_i . m_j)`; r = 2, or 1 without normals.

    Args:
        position: p, `[B, N, c]`.
        normal: m, `[B, N, 3]`, or None.
    """

    position: Tensor
    normal: Tensor | None = None

    def fits_kernels(self, dtype: torch.dtype) -> bool:
        """Return whether kernels support this relation: float32 without gradients, up to three coordinates."""
        tensors = [self.position] if self.normal is None else [self.position, self.normal]
        plain = all(x.dtype is dtype is torch.float32 and not x.requires_grad for x in tensors)
        return plain and self.position.shape[-1] <= 3

    def place_terms(self, terms: RelativeTerms, sample: Sample) -> PlaceTerms:
        """Collect the operands of a kernel; a token without a partner is its own partner."""
        place = F.pad(self.position, (0, 3 - self.position.shape[-1]))
        normal = torch.zeros_like(place) if self.normal is None else self.normal
        linear = terms.linear
        # Without normals the product of normals has weight 0.
        maps = torch.cat([F.pad(linear.weight, (0, 2 - linear.in_features)), linear.bias.unsqueeze(-1)], dim=1)
        by_head = maps.view(2, terms.num_heads, 3).transpose(0, 1).flatten(1)
        partner = sample.index if sample.partner is None else sample.partner
        weight = torch.ones_like(sample.index, dtype=place.dtype) if sample.weight is None else sample.weight
        return PlaceTerms(torch.cat([place, normal], dim=-1), sample.index, partner, weight, by_head)

    def at(self, chunk: Chunk, columns: Tensor) -> AffineMap:
        """See `PairRelation.at`."""
        points = self.position[chunk.graphs]
        # Subtract first: |p|^2 + |q|^2 - 2 p.q would lose small distances to rounding.
        axes = zip(points[:, chunk.rows].unbind(-1), _at(points, columns).unbind(-1), strict=True)
        squares = [(row.unsqueeze(-1) - column.unsqueeze(-2)).square() for row, column in axes]
        features = [torch.stack(squares).sum(0)]
        if self.normal is not None:
            normals = self.normal[chunk.graphs]
            features.append(normals[:, chunk.rows] @ _at(normals, columns).transpose(1, 2))
        return partial(_by_channel, torch.stack(features, dim=1))


@dataclass(frozen=True)
class PositionRelation(PairRelation):
    """Products of sinusoids of positions through a linear map: `x_R[i, j] = U (S_i * S_j) + u` (SFT, equation 25).

    All maps are linear, so `w . x_R[i, j] = S_i^T diag(w U) S_j + w . u`: one matrix product per head, and no tensor
    over rows, columns and channels.

    Args:
        sinusoids: S, `[B, N, c]`.
        weight: U, `[r, c]`.
        bias: u, `[r]`.
    """

    sinusoids: Tensor
    weight: Tensor
    bias: Tensor

    def at(self, chunk: Chunk, columns: Tensor) -> AffineMap:
        """See `PairRelation.at`."""
        waves = self.sinusoids[chunk.graphs]
        return partial(self._mapped, waves[:, None, chunk.rows], _at(waves, columns).unsqueeze(1))

    def _mapped(self, rows: Tensor, columns: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        scaled = columns * (weight @ self.weight).unsqueeze(1)
        return rows.to(scaled.dtype) @ scaled.transpose(-1, -2) + (weight @ self.bias + bias).view(-1, 1, 1)


def _by_channel(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute `W x + b`, `[b, 2 H, n, K]`, of features `[b, r, n, K]`."""
    return (weight @ features.to(weight.dtype).flatten(2) + bias[:, None]).unflatten(2, features.shape[2:])


def _at(rows: Tensor, columns: Tensor) -> Tensor:
    """Gather rows `[b, K, c]` at `columns [b, K]` of `rows [b, N, c]`."""
    return rows.gather(1, columns.unsqueeze(-1).expand(*columns.shape, rows.shape[-1]))
