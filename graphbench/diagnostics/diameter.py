"""The largest distance between two points of a set, for many sets at once and exactly.

Legend: S points of all sets, dim their width, G sets, B sets of one block, m points of the largest of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphbench.diagnostics.ragged import Ragged

#: Numbers in the largest block of distances. On a CPU a block should stay in the cache: at 2 MB the search is about
#: twice as quick as at 32 MB; a GPU wants few large blocks.
_CELLS = {"cpu": 1 << 18}
_CELLS_ELSEWHERE = 1 << 23


def diameters(points: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """`max_{i,j} ||p_i - p_j||` of each set `[G]`; 0 for fewer than two points, NaN where a point is not finite.

    All pairs are compared, a block of rows at a time, so the m x m distances never exist at once.

    Args:
        points: float64 `[S, dim]`.
        group: set of each point `[S]`.
        num_groups: G.
    """
    cells = _CELLS.get(points.device.type, _CELLS_ELSEWHERE)
    ragged = Ragged(group, num_groups)
    out = points.new_zeros(num_groups)
    for sets, width in ragged.buckets(lambda m: m * (m + points.shape[1]), cells):
        index, _ = ragged.padded(sets, width)  # padding repeats a point, which adds no new distance
        out[sets] = _diameters_of(points[index], cells)
    return out


def _diameters_of(points: Tensor, cells: int) -> Tensor:
    """Diameters `[B]` of sets of equally many points `[B, m, dim]`."""
    # Squared distances come from dot products: around the centre they lose no more digits than the points have.
    points = points - points.mean(1, keepdim=True)
    squares = points.square().sum(-1)
    each = torch.arange(len(points), device=points.device)
    best = points.new_zeros(len(points))
    for part in torch.arange(points.shape[1], device=points.device).split(max(1, cells // squares.numel())):
        rows = points[:, part]
        farthest = torch.baddbmm(squares.unsqueeze(1), rows, points.transpose(1, 2), alpha=-2).amax(-1)
        left = points[each, part[(farthest + squares[:, part]).argmax(1)]]
        # The winner's distances are measured again by differences, which have full precision.
        best = torch.maximum(best, (points - left.unsqueeze(1)).norm(dim=-1).amax(1))
    return best
