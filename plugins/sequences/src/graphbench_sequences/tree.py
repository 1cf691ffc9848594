"""Trees of a fixed shape over the tokens of documents, by level.

Legend: B documents of a block, N padded tokens, k children of a node. Level 0 contains the tokens. Level l has w_l
slots, k for each of its m_l groups of siblings; its n_l = m_(l - 1) nodes, the parents of the groups of level l - 1,
fill the first slots. W slots of all levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from graphbench.contracts.devices import widest_dtype
from graphbench_sequences.tokens import sinusoids


class Relatives(NamedTuple):
    """Masks of the keys that are visible to groups of queries of one level.

    Args:
        bias: minus infinity at keys without a node, else 0, `[B, 1, m, 1, c]`; 0 everywhere in groups without keys.
        has_some: 1 for groups with a key, else 0, `[B, 1, m, 1, 1]`.
    """

    bias: Tensor
    has_some: Tensor

    @classmethod
    def of(cls, exists: Tensor) -> Relatives:
        """Create them from a mask of keys `[B, m, c]`.

        Examples:
            >>> Relatives.of(torch.tensor([[[True, False], [False, False]]])).bias.flatten()
            tensor([0., -inf, 0., 0.])
        """
        some = exists.any(-1, keepdim=True)
        bias = torch.zeros(exists.shape, device=exists.device).masked_fill(some & ~exists, -torch.inf)
        return cls(bias[:, None, :, None], some.float()[:, None, :, None])


@dataclass(frozen=True)
class Tree:
    """The k-ary trees over the documents of a block: node j of a level has the children `k j ... k j + k - 1` below.

    A document of n tokens has `ceil(n / k^l)` nodes in level l, up to the first level with one node, its root: its tree
    depends on its own length, not on the padding of its block.

    Args:
        counts: nodes of each document `[B]`, one tensor per level; 0 above its root.
        exists: true at slots with a node `[B, m, k]`, one tensor per level.
        depth: levels of each document `[B]`.
        siblings: siblings of each level, including the node itself.
        ancestors: ancestors of each level except the highest: one node of every level above.
        places: places of the ancestors in their levels `[m]`, for each level a list by ascending level.

    Examples:
        >>> tree = Tree.over(torch.tensor([5, 1]), max_length=5, num_children=2)
        >>> [count.tolist() for count in tree.counts], tree.depth.tolist()
        ([[5, 1], [3, 0], [2, 0], [1, 0]], [4, 1])
    """

    counts: tuple[Tensor, ...]
    exists: tuple[Tensor, ...]
    depth: Tensor
    siblings: tuple[Relatives, ...]
    ancestors: tuple[Relatives, ...]
    places: tuple[tuple[Tensor, ...], ...]

    @classmethod
    def over(cls, lengths: Tensor, max_length: int, num_children: int) -> Tree:
        """Build trees of documents of `lengths [B]` tokens, the longest of `max_length`, with k = `num_children`."""
        sizes = [max_length]
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // num_children))
        groups = [-(-size // num_children) for size in sizes]
        counts = [lengths]
        for _ in sizes[1:]:
            # A level of one node is the root, with no level above it.
            above = (counts[-1] + num_children - 1).div(num_children, rounding_mode="floor")
            counts.append(torch.where(counts[-1] > 1, above, 0))
        slots = [torch.arange(size * num_children, device=lengths.device).view(size, num_children) for size in groups]
        exists = [slot < count[:, None, None] for slot, count in zip(slots, counts, strict=True)]
        places = []
        for level in range(len(sizes) - 1):
            group = torch.arange(groups[level], device=lengths.device)
            rates = (num_children**step for step in range(len(sizes) - 1 - level))
            places.append(tuple(group.div(rate, rounding_mode="floor") for rate in rates))
        ancestors = [
            torch.stack([place < counts[level + 1 + step][:, None] for step, place in enumerate(above)], dim=-1)
            for level, above in enumerate(places)
        ]
        return cls(
            tuple(counts),
            tuple(exists),
            torch.stack([count > 0 for count in counts]).sum(0),
            tuple(Relatives.of(part) for part in exists),
            tuple(Relatives.of(part) for part in ancestors),
            tuple(places),
        )

    @property
    def num_levels(self) -> int:
        """Number of levels of the longest document."""
        return len(self.counts)

    def split(self, x: Tensor, dim: int) -> list[Tensor]:
        """Split slots of all levels `[..., W, ...]` by level, in groups: `[..., m, k, ...]`."""
        shapes = [part.shape[1:] for part in self.exists]
        parts = x.split([groups * size for groups, size in shapes], dim)
        return [part.unflatten(dim, shape) for part, shape in zip(parts, shapes, strict=True)]

    def grow(self, x: Tensor) -> Tensor:
        """Compute the slots of all levels `[B, W, dim]` from padded tokens `[B, N, dim]`.

        Node j of level l is the mean of its children without their places, plus the `sinusoids` of its own place, in
        tokens `(j + 1/2) n / n_l`. Its l-th last entry is 0, as in the released code.
        """
        levels = [F.pad(x, (0, 0, 0, self.exists[0][0].numel() - x.shape[1]))]
        for below, exists in pairwise(self.exists):
            # Means over existing children; places are added afterwards, so means do not include those of children.
            weight = below.to(x.dtype) / below.sum(-1, keepdim=True).clamp(min=1)
            means = (levels[-1].unflatten(1, below.shape[1:]) * weight.unsqueeze(-1)).sum(2)
            levels.append(F.pad(means, (0, 0, 0, exists[0].numel() - means.shape[1])))
        for level in range(1, self.num_levels):
            wide = widest_dtype(x.device)
            spacing = self.counts[0].to(wide) / self.counts[level].clamp(min=1)
            slot = torch.arange(levels[level].shape[1], device=x.device, dtype=wide)
            placed = levels[level] + sinusoids((slot + 0.5) * spacing[:, None], x.shape[-1]).to(x.dtype)
            mark = torch.arange(x.shape[-1], device=x.device) == x.shape[-1] - level
            levels[level] = placed.masked_fill(mark, 0.0)
        return torch.cat(levels, dim=1)
