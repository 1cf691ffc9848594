"""Compute the largest distance between two points of a set, exactly and for many sets at once.

Legend: S points of all sets, dim their width, G sets, B sets of one bucket, m points of the largest of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphbench.diagnostics.ragged import Ragged

#: Points to compare with all others at a time: few on a CPU, where one block is mostly enough for a set of
#: substructures, more on a GPU, where every block waits for the host.
_BLOCK = {"cpu": 32}
_BLOCK_ELSEWHERE = 256
#: Numbers in the largest block of points or distances; 8 MB in double precision, which mostly fits into a CPU's cache.
_CELLS = 1 << 20


def diameters(points: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """Return `max_{i,j} ||p_i - p_j||` of each set `[G]`; 0 for fewer than two points, NaN if a point is not finite.

    A branch-and-bound search: with radii r around the centre, `||p_i - p_j|| <= r_i + r_j`, so a pair whose radii sum
    to less than a known distance is excluded. Points are processed from the outside in, a block at a time, with the
    remaining candidates; the m x m distances never exist at once. Points are float64 `[S, dim]`, and `group [S]` is the
    set of each.

    Examples:
        >>> points = torch.tensor([[0.0], [3.0], [1.0], [7.0]]).double()
        >>> diameters(points, torch.tensor([0, 0, 0, 1]), 2)
        tensor([3., 0.], dtype=torch.float64)
    """
    block = _BLOCK.get(points.device.type, _BLOCK_ELSEWHERE)
    ragged = Ragged(group, num_groups)
    out = points.new_zeros(num_groups)
    for sets, width in ragged.buckets(lambda m: m * (block + points.shape[1]), _CELLS):
        index, _ = ragged.padded(sets, width)  # padding repeats a point, which adds no distance
        out[sets] = _diameters_of(points[index], block)
    return out


def _diameters_of(points: Tensor, block: int) -> Tensor:
    """Return diameters `[B]` of sets with equally many points `[B, m, dim]`."""
    # Squared distances come from dot products: around the centre, they lose no more digits than the points have.
    points = points - points.mean(1, keepdim=True)
    squares = points.square().sum(-1)
    radius, each = squares.sqrt(), torch.arange(len(points), device=points.device)
    outermost = points[each, radius.argmax(1)].unsqueeze(2)
    from_outermost = squares - 2 * (points @ outermost).squeeze(2) + outermost.square().sum(1)
    best = from_outermost.amax(1).clamp(min=0).sqrt() * (1 - 1e-9)  # below what dot products may round up
    count = int((radius + radius.amax(1, keepdim=True) >= best.unsqueeze(1)).sum(1).max())
    radius, order = radius.topk(count, dim=1)
    points, squares = points.gather(1, order.unsqueeze(2).expand(-1, -1, points.shape[2])), radius.square()
    for start in range(0, count, block):
        reach = int((radius + radius[:, start : start + 1] >= best.unsqueeze(1)).sum(1).max())
        if reach <= start:
            break
        rows, others = points[:, start : start + block], points[:, :reach]
        farthest = torch.baddbmm(squares[:, None, :reach], rows, others.transpose(1, 2), alpha=-2).amax(-1)
        left = points[each, start + (farthest + squares[:, start : start + block]).argmax(1)]
        # Compute the winner's distances again from differences, which have full precision.
        best = torch.maximum(best, (others - left.unsqueeze(1)).norm(dim=-1).amax(1))
    return best
