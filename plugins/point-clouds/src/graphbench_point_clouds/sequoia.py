"""Sequoia on point clouds: attention of points and of the cells around them to parents, children and siblings.

Trang, Ngo, Sonnery, Vo, Ravanbakhsh and Hy, "Scalable Hierarchical Self-Attention with Learnable Hierarchy for
Long-Range Interactions", TMLR 2024, https://openreview.net/forum?id=qH4YFMyhce. For point clouds the hierarchy is not
learned.

Legend: T points of all clouds, B clouds, n nodes of a level of all clouds, m of the level below, k siblings, H heads, D
the width of a head, c coordinates. Level 0 contains the points, the last one the roots.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import BadInput, check_divides, check_range
from graphbench.nn import BatchNorm, Pooling
from graphbench_point_clouds.clouds import nearest
from graphbench_point_clouds.hierarchy import Level, build_levels, replace_repeats
from graphbench_point_clouds.model import LastMaps, PointCloudModel, PointMap, Points

#: Ratio of the width of each level to that of the level below.
EXPANSION = 2
#: Maximum bits of the number of a cell in its cloud.
CELL_BITS = 40


class Place(nn.Module):
    """Offset-dependent summand of keys and values of every head: `W' ReLU(BatchNorm(W (p_i - p_j) + b)) + b'`.

    Args:
        coordinates: c.
        dim: width of a head D.
    """

    def __init__(self, coordinates: int, dim: int) -> None:
        super().__init__()
        self.first, self.second = PointMap(coordinates, coordinates), nn.Linear(coordinates, dim)

    def forward(self, offsets: Tensor, dtype: torch.dtype) -> Tensor:
        """Map `[..., c]` to `[..., D]`, in the precision of the weights."""
        return self.second(self.first(offsets.to(dtype)))


def to_siblings(q: Tensor, k: Tensor, v: Tensor, place: Tensor, siblings: Tensor, scale: float) -> Tensor:
    """Attend from each node i to its siblings j on the same level.

        y_i = sum_j softmax_j((sum_d (q_i k_j + place_ij)_d) / scale) * (v_j + place_ij)

    Args:
        q: queries `[n, H, D]`.
        k: keys `[n, H, D]`.
        v: values `[n, H, D]`.
        place: summands of the offsets, the same for all heads `[n, k, D]`.
        siblings: `[n, k]`.
        scale: divisor of scores.

    Returns:
        `[n, H, D]`.
    """
    scores = (q[:, None] * k[siblings]).sum(-1) + place.sum(-1, keepdim=True)
    weights = (scores / scale).softmax(1).to(v.dtype)
    return (weights[..., None] * (v[siblings] + place[:, :, None])).sum(1)


def to_children(q: Tensor, k: Tensor, v: Tensor, place: Tensor, parent: Tensor, scale: float) -> Tensor:
    """Attend from each node to its children, as in `to_siblings`, with scores also divided by their number.

    Args:
        q: queries `[n, H, D]`.
        k: keys of the level below `[m, H, D]`.
        v: values of the level below `[m, H, D]`.
        place: summands of the offsets of the level below `[m, D]`.
        parent: parent of each node of the level below `[m]`.
        scale: divisor of scores.

    Returns:
        `[n, H, D]`.
    """
    count = q.new_zeros(len(q), dtype=torch.int64).index_add_(0, parent, torch.ones_like(parent))
    scores = (q[parent] * k).sum(-1) + place.sum(-1, keepdim=True)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32)) / (scale * count[parent][:, None])
    above = parent[:, None].expand_as(scores)
    # A softmax over the children of each node. Only cells with points are nodes, so every node has a child.
    top = scores.new_full((len(q), scores.shape[1]), -torch.inf).scatter_reduce(0, above, scores.detach(), "amax")
    weights = (scores - top[parent]).exp()
    total = torch.zeros_like(top).index_add(0, parent, weights)
    mixed = (weights / total[parent]).to(v.dtype)[..., None] * (v + place[:, None])
    return mixed.new_zeros(q.shape).index_add(0, parent, mixed)


class FamilyAttention(nn.Module):
    """Attention of nodes of some levels to their parent, their children and their siblings.

        y = w_1 parent + w_2 children + w_3 siblings,  w = softmax(mix)

    Queries, keys and values are linear maps on each level, without bias; those of children and of the parent are mapped
    again, to the width of the query. A node has only one parent, so the parent contributes its value and place without
    attention. Points have no children; roots have neither a parent nor siblings.

    Args:
        coordinates: c.
        dims: width of each level.
        num_heads: heads H.
        num_siblings: siblings k, including the node itself.
        outputs: levels with queries.
    """

    def __init__(
        self, coordinates: int, dims: Sequence[int], num_heads: int, num_siblings: int, outputs: range
    ) -> None:
        super().__init__()
        inner, outer = [i for i in outputs if i < len(dims) - 1], [i for i in outputs if i]
        below, above = [i - 1 for i in outer], [i + 1 for i in inner]

        def linear(levels: Iterable[int], step: int = 0) -> nn.ModuleDict:
            maps = {str(i): nn.Linear(dims[i + step], dims[i], bias=False) for i in sorted(set(levels))}
            return nn.ModuleDict(maps)

        def places(levels: Iterable[int]) -> nn.ModuleDict:
            return nn.ModuleDict({str(i): Place(coordinates, dims[i] // num_heads) for i in levels})

        self.query, self.key = linear(outputs), linear([*inner, *below])
        self.value = linear([*inner, *below, *above])
        self.key_up, self.value_up, self.value_down = linear(outer, -1), linear(outer, -1), linear(inner, 1)
        self.parent_place, self.child_place, self.sibling_place = places(inner), places(outer), places(inner)
        self.mix = nn.Parameter(torch.randn(3))
        self.outputs, self.num_heads = outputs, num_heads
        self.scale, self.num_siblings = dims[0] ** 0.5, num_siblings

    def forward(self, x: dict[int, Tensor], levels: Sequence[Level]) -> dict[int, Tensor]:
        """Attend from each level of `outputs`: `[n, dims[level]]`.

        Args:
            x: features of these levels and of adjacent ones.
            levels: the trees.
        """
        key = {int(i): linear(x[int(i)]) for i, linear in self.key.items()}
        value = {int(i): linear(x[int(i)]) for i, linear in self.value.items()}
        weights = self.mix.softmax(0)
        attended = {}
        for i in self.outputs:
            name, level, dtype, parts = str(i), levels[i], x[i].dtype, []
            query = self._heads(self.query[name](x[i]))
            if name in self.value_down:
                place = self.parent_place[name](level.pos - levels[i + 1].pos[level.parent], dtype)
                values = self._heads(self.value_down[name](value[i + 1]))
                parts.append(weights[0] * (values[level.parent] + place[:, None]))
                place = self.sibling_place[name](level.pos[:, None] - level.pos[level.siblings], dtype)
                # Scores are also divided by the number of siblings, as those of children by theirs.
                same, scale = (self._heads(key[i]), self._heads(value[i])), self.scale * self.num_siblings
                parts.append(weights[2] * to_siblings(query, *same, place, level.siblings, scale))
            if name in self.value_up:
                parent = levels[i - 1].parent
                place = self.child_place[name](level.pos[parent] - levels[i - 1].pos, dtype)
                below = self._heads(self.key_up[name](key[i - 1])), self._heads(self.value_up[name](value[i - 1]))
                parts.append(weights[1] * to_children(query, *below, place, parent, self.scale))
            attended[i] = torch.stack(parts).sum(0).flatten(1)
        return attended

    def _heads(self, x: Tensor) -> Tensor:
        """Split `[n, H D]` into `[n, H, D]`."""
        return x.unflatten(1, (self.num_heads, -1))


class TreeBlock(nn.Module):
    """A map and attention to the family, with batch norms; with a residual also a second map.

        y = ReLU(BatchNorm(family(ReLU(BatchNorm(W x)))))
        x' = ReLU(x + BatchNorm(W' y))  with a residual, else y

    Args:
        coordinates: c.
        dims: width of each level.
        num_heads: heads.
        num_siblings: siblings.
        outputs: levels that get new features; adjacent levels are read.
        residual: use the second line.
    """

    def __init__(
        self,
        coordinates: int,
        dims: Sequence[int],
        num_heads: int,
        num_siblings: int,
        outputs: range,
        residual: bool,
    ) -> None:
        super().__init__()
        read = range(max(outputs.start - 1, 0), min(outputs.stop + 1, len(dims)))
        self.before = nn.ModuleDict({str(i): PointMap(dims[i], dims[i], bias=False) for i in read})
        self.attention = FamilyAttention(coordinates, dims, num_heads, num_siblings, outputs)
        self.norms = nn.ModuleDict({str(i): BatchNorm(dims[i]) for i in outputs})
        changed = outputs if residual else range(0)
        self.after = nn.ModuleDict({str(i): nn.Linear(dims[i], dims[i], bias=False) for i in changed})
        self.after_norms = nn.ModuleDict({str(i): BatchNorm(dims[i]) for i in changed})

    def forward(self, x: dict[int, Tensor], levels: Sequence[Level]) -> dict[int, Tensor]:
        """Return new features of the levels `outputs`."""
        attended = self.attention({int(i): before(x[int(i)]) for i, before in self.before.items()}, levels)
        normed = {i: self.norms[str(i)](rows).relu() for i, rows in attended.items()}
        if not self.after:
            return normed
        return {i: (x[i] + self.after_norms[str(i)](self.after[str(i)](y))).relu() for i, y in normed.items()}


class PointSequoia(PointCloudModel):
    """Sequoia (Trang et al., TMLR 2024) for cloud classification, and its part-segmentation network for point tasks.

    The box of each cloud is the root of a tree: it is divided into cells, these into smaller ones, and the smallest
    contain the points; each level is twice as wide as the one below. The initial features of a point are, for classes,
    the maximum of a linear map of its neighbours' offsets, for parts a map of its features and position; those of a
    cell are a map of the maximum of its children. In every layer a node attends to its parent, its children and its
    siblings, the nearest nodes of its level. Clouds: a map of the root. Points: a map of the point and its category,
    with layer norm. The head is one linear map.

    Parts without influence are omitted: levels in the last layers that do not reach the root (or the points), and
    attention to the single parent. The released code measures cell centres from the origin, and pools cells in the
    order of a hash, mostly into cells that do not contain them; here centres are in their cells, and cells are pooled
    into their parents. Its layers compute the second map and the residual but return their input, as here without
    `residual`.

    Time and memory: `B (N^2 + k N d^2 + L N d (d + k))`, `B (N^2 + L k N d)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of points; all others are multiples of it, as published for 128.
        num_layers: layers.
        num_heads: heads; must divide `hidden_dim`.
        depth: levels of cells, including the box of the cloud.
        divide: cells along each axis that a cell is divided into.
        num_neighbors: neighbours for the initial features of a point in cloud tasks, including the point itself.
        num_siblings: siblings k, including the node itself.
        residual: a second map in each layer, and a residual around the layer.
        dropout: probability after the last map.
        use_features: read normals and other features in addition to positions.

    Raises:
        BadInput: nodes have no position, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = PointSequoia(tiny_spec(kind="coordinates"), hidden_dim=8, num_layers=2)
        >>> model(tiny_batch(model)).graph.shape  # 4 clouds of a few points
        torch.Size([4, 32])
    """

    # If cells were padded to their largest possible number, padding would enter the batch norms.
    waits_for_device = "how many cells hold points is read, once for all levels and layers"

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 128,
        num_layers: int = 4,
        num_heads: int = 4,
        depth: int = 3,
        divide: int = 3,
        num_neighbors: int = 16,
        num_siblings: int = 8,
        residual: bool = True,
        dropout: float = 0.0,
        use_features: bool = True,
    ) -> None:
        for name, value in (("depth", depth), ("num_neighbors", num_neighbors), ("num_siblings", num_siblings)):
            check_range(name, value, at_least=1, whole=True)
        check_range("divide", divide, at_least=2, whole=True)
        check_divides("num_heads", num_heads, "hidden_dim", hidden_dim)
        super().__init__(spec, 4 * hidden_dim, 4 * hidden_dim, use_features)
        _check_cells(depth, divide, self.coordinates)
        c, h = self.coordinates, hidden_dim
        self.depth, self.divide, self.dropout = depth, divide, nn.Dropout(dropout)
        self.num_neighbors, self.num_siblings = num_neighbors, num_siblings
        dims = [h * EXPANSION**level for level in range(depth + 1)]
        start = c + self.feature_dim
        self.first = nn.Linear(start, h) if self.of_clouds else PointMap(start, h)
        outputs = _outputs(depth, num_layers, self.of_clouds)
        highest = min(outputs[0].stop, depth)
        self.rise = nn.ModuleList(PointMap(dims[level - 1], dims[level]) for level in range(1, highest + 1))
        self.layers = nn.ModuleList(TreeBlock(c, dims, num_heads, num_siblings, levels, residual) for levels in outputs)
        if self.of_clouds:
            self.last: nn.Module = LastMaps((dims[-1], 4 * h), (dropout,))
            self.apply(_start_released)
        else:
            self.last = nn.Sequential(nn.Linear(h + self.category_dim, 4 * h), nn.LayerNorm(4 * h), nn.ReLU())

    def represent_clouds(self, points: Points) -> Tensor:
        """Represent clouds `[B, 4 hidden_dim]`."""
        near = self._nearest(points, max(self.num_neighbors, self.num_siblings))
        first = near[:, : self.num_neighbors]
        offsets = (points.pos[:, None] - points.pos[first]).neg().to(points.x.dtype)
        x = self.first(torch.cat([points.x[first], offsets], dim=2)).amax(1)
        return self.last(self._grow(points, x, near)[self.depth])

    def represent_points(self, points: Points, categories: Tensor) -> Tensor:
        """Represent points `[T, 4 hidden_dim]`."""
        x = self._grow(points, self.first(points.features), self._nearest(points, self.num_siblings))[0]
        return self.dropout(self.last(torch.cat([x, categories], dim=1)))

    def _nearest(self, points: Points, k: int) -> Tensor:
        """Return the nearest k points of each point `[T, k]`."""
        return nearest(points.pos, points.clouds, points.pos, points.clouds, k)

    def _grow(self, points: Points, x: Tensor, near: Tensor) -> dict[int, Tensor]:
        """Run the layers on the points, whose features are x, and on the cells around them."""
        cloud_of, clouds = points.clouds.cloud_of, points.clouds.num_clouds
        sizes = torch.zeros(clouds, dtype=torch.int64, device=x.device).index_add_(
            0, cloud_of, torch.ones_like(cloud_of)
        )
        siblings = replace_repeats(near[:, : self.num_siblings], sizes[cloud_of])
        levels = build_levels(points.pos, points.clouds, siblings, self.depth, self.divide)
        grown = {0: x}
        for level, rise in enumerate(self.rise, start=1):
            pooled = Pooling("max")(grown[level - 1], levels[level - 1].parent, len(levels[level].pos))
            grown[level] = rise(pooled)
        for layer in self.layers:
            grown = layer(grown, levels)
        return grown


def _outputs(top: int, num_layers: int, of_clouds: bool) -> list[range]:
    """Return the output levels of each layer: the root (or points) for the last, one more for each earlier layer."""
    reach = range(num_layers)[::-1]
    return [range(max(top - i, 0), top + 1) if of_clouds else range(min(i, top) + 1) for i in reach]


def _check_cells(depth: int, divide: int, coordinates: int) -> None:
    """Check that the smallest cells can be numbered."""
    if (depth - 1) * coordinates * math.log2(divide) > CELL_BITS:
        raise BadInput(
            f"depth={depth} and divide={divide} make {divide}^{depth - 1} cells along each of {coordinates} axes, more "
            f"than 2^{CELL_BITS} in total. Use a smaller depth or divide: far fewer cells separate the points."
        )


def _start_released(module: nn.Module) -> None:
    """Initialise as in the released classification network: normal as in He et al. (2015), biases zero."""
    if isinstance(module, nn.Linear):
        nn.init.kaiming_normal_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
