"""Relative information of all pairs of tokens, computed for the sampled columns alone (SFT, section 4.2, appendix D.1).

Legend: B graphs, N padded tokens, K sampled tokens, H heads, r width of the relative features; a chunk has b graphs
and n of their rows. Nothing here is larger than `b n K max(r, 2 H)`, so n tokens cost O(n K).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from graphbench_sft.relative import AffineMap, Chunk, PlaceTerms, RelativeTerms, ScoreMap
from graphbench_sft.sampler import Sample


class PairRelation(ABC):
    """Relative information of all pairs of a block of graphs; rows attend to columns."""

    def bind(self, terms: RelativeTerms, sample: Sample, chunks: Sequence[Chunk]) -> list[ScoreMap]:
        """What a layer does to the scores of each chunk.

        The columns of a sampled token and of its partner are mapped apart and then mixed like the tokens.
        """

        def terms_of(columns: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor]:
            return terms(self.at(chunk, columns[chunk.graphs]), 1)

        def make(chunk: Chunk) -> ScoreMap:
            def apply(scores: Tensor) -> Tensor:
                mul, add = terms_of(sample.index, chunk)
                if sample.partner is not None and sample.weight is not None:
                    other_mul, other_add = terms_of(sample.partner, chunk)
                    weight = sample.weight[chunk.graphs, None, None].to(mul.dtype)
                    mul, add = torch.lerp(other_mul, mul, weight), torch.lerp(other_add, add, weight)
                return torch.addcmul(add.to(scores.dtype), scores, mul.to(scores.dtype))

            return apply

        return [make(chunk) for chunk in chunks]

    @abstractmethod
    def at(self, chunk: Chunk, columns: Tensor) -> AffineMap:
        """Relative features of the rows of a chunk and the tokens `columns [b, K]`, under a map that is yet to come.

        Returns:
            Gives `W x_R + b`, `[b, 2 H, n, K]`, of a weight `[2 H, r]` and a bias `[2 H]`.
        """


@dataclass(frozen=True)
class DenseRelation(PairRelation):
    """Given numbers: `values [B, r, N, N]`, `x_R[i, j] = values[:, :, i, j]`."""

    values: Tensor

    def at(self, chunk: Chunk, columns: Tensor) -> AffineMap:
        """See `PairRelation.at`; gathers columns."""
        values = self.values[chunk.graphs, :, chunk.rows]
        index = columns[:, None, None].expand(*values.shape[:3], columns.shape[-1])
        return partial(_by_channel, values.gather(-1, index))


@dataclass(frozen=True)
class DistanceRelation(PairRelation):
    """What no rotation changes: squared distances, and dot products of normals where there are any.

    `x_R[i, j] = (|p_i - p_j|^2, m_i . m_j)`; r = 2, or 1 without normals.

    Args:
        position: p, `[B, N, c]`.
        normal: m, `[B, N, 3]`, or None.
    """

    position: Tensor
    normal: Tensor | None = None

    def fits_kernels(self, dtype: torch.dtype) -> bool:
        """Whether a kernel makes the terms itself: in float32, of up to three coordinates, which have no gradients."""
        given = [self.position] if self.normal is None else [self.position, self.normal]
        known = all(x.dtype is dtype is torch.float32 and not x.requires_grad for x in given)
        return known and self.position.shape[-1] <= 3

    def terms_of_places(self, terms: RelativeTerms, sample: Sample) -> PlaceTerms:
        """What a kernel makes the terms of; a token without partner is its own."""
        place = F.pad(self.position, (0, 3 - self.position.shape[-1]))
        normal = torch.zeros_like(place) if self.normal is None else self.normal
        linear = terms.linear
        maps = torch.cat([F.pad(linear.weight, (0, 2 - linear.in_features)), linear.bias.unsqueeze(-1)], dim=1)
        by_head = maps.view(2, terms.num_heads, 3).transpose(0, 1).flatten(1)
        partner = sample.index if sample.partner is None else sample.partner
        weight = torch.ones_like(sample.index, dtype=place.dtype) if sample.weight is None else sample.weight
        return PlaceTerms(torch.cat([place, normal], dim=-1), sample.index, partner, weight, by_head)

    def at(self, chunk: Chunk, columns: Tensor) -> AffineMap:
        """See `PairRelation.at`."""
        points = self.position[chunk.graphs]
        # Differences first: |p|^2 + |q|^2 - 2 p.q would lose the small distances to rounding.
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

    All maps are linear, so that `w . x_R[i, j] = S_i^T diag(w U) S_j + w . u`: one matrix product a head, and no tensor
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
    """`W x + b`, `[b, 2 H, n, K]`, of features `[b, r, n, K]`."""
    return (weight @ features.to(weight.dtype).flatten(2) + bias[:, None]).unflatten(2, features.shape[2:])


def _at(rows: Tensor, columns: Tensor) -> Tensor:
    """Rows `[b, K, c]` at `columns [b, K]` of `rows [b, N, c]`."""
    return rows.gather(1, columns.unsqueeze(-1).expand(*columns.shape, rows.shape[-1]))
