"""Set Transformer: attention of all points via a few inducing points, pooled by attention of a learned seed.

Lee, Lee, Kim, Kosiorek, Choi and Teh, "Set Transformer: A Framework for Attention-based Permutation-Invariant Neural
Networks", ICML 2019, arXiv 1810.00825.

Legend: T points of all clouds, B clouds, N points of the largest cloud, M queries.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import check_divides, check_range
from graphbench.nn import attend
from graphbench_point_clouds.clouds import Clouds
from graphbench_point_clouds.model import PointCloudModel, PointMap, Points


class AttentionBlock(nn.Module):
    """`MAB(X, Y) = H + ReLU(W_O H)`, `H = W_Q X + attention(W_Q X, W_K Y, W_V Y)` (equations 6 and 7).

    As in the released code, there are no layer norms, the residual is the mapped query, and scores are divided by the
    square root of the total width.

    Args:
        query_dim: width of X.
        dim: width of Y, which may differ for the first block, and of the output.
        num_heads: heads; must divide `dim`.
        key_dim: width of Y; None for `dim`.
    """

    def __init__(self, query_dim: int, dim: int, num_heads: int, key_dim: int | None = None) -> None:
        super().__init__()
        self.query = nn.Linear(query_dim, dim)
        self.key, self.value = nn.Linear(key_dim or dim, dim), nn.Linear(key_dim or dim, dim)
        self.out = nn.Linear(dim, dim)
        self.num_heads = num_heads

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return `[b, m, dim]` for queries `[b, m, query_dim]` and keys `[b, n, key_dim]`."""
        query = self.query(x)
        q, k, v = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in (query, self.key(y), self.value(y))
        )
        mixed = attend(q / self.num_heads**0.5, k, v)  # attend divides by the root of the head width
        x = query + mixed.transpose(1, 2).flatten(2)
        return x + self.out(x).relu()


def learned_set(count: int, dim: int) -> Tensor:
    """Draw learnable points `[count, dim]`, uniform within `sqrt(6 / (count dim + dim))`.

    This is Xavier's rule for a tensor `[1, count, dim]`, which treats the last axis as a kernel, as in the released
    code; for `[count, dim]` values would be larger.
    """
    return nn.init.xavier_uniform_(torch.empty(1, count, dim))[0]


class InducedBlock(nn.Module):
    """`ISAB(X) = MAB(X, MAB(I, X))` with learned inducing points I (equations 9 and 10): linear in the points.

    Args:
        in_dim: width of X.
        dim: width of the output and of the inducing points.
        num_heads: heads.
        num_inducing: inducing points.
    """

    def __init__(self, in_dim: int, dim: int, num_heads: int, num_inducing: int) -> None:
        super().__init__()
        self.inducing = nn.Parameter(learned_set(num_inducing, dim))
        self.gather = AttentionBlock(dim, dim, num_heads, in_dim)
        self.spread = AttentionBlock(in_dim, dim, num_heads)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[b, n, in_dim]` to `[b, n, dim]`."""
        return self.spread(x, self.gather(self.inducing.expand(len(x), -1, -1), x))


class SetTransformer(PointCloudModel):
    """Set Transformer (Lee et al., ICML 2019) for classifying point clouds: induced blocks, pooled by a seed.

    Clouds: blocks, dropout, attention of one seed to all points (PMA), dropout. Points (not in the paper): their
    representation after the blocks, concatenated with that of the cloud and the category, mapped once. The head is one
    linear map.

    Time and memory: `B L ((N + m) d^2 + N m (d + H))`, `B L ((N + m) d + H N m)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width.
        num_layers: induced blocks.
        num_heads: heads; must divide `hidden_dim`.
        num_inducing: inducing points of each block.
        dropout: probability before and after pooling.
        use_features: read normals and other features in addition to positions.

    Raises:
        BadInput: nodes have no position, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = SetTransformer(tiny_spec(kind="coordinates"), hidden_dim=8)
        >>> model(tiny_batch(model)).graph.shape  # 4 clouds of a few points
        torch.Size([4, 8])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 256,
        num_layers: int = 2,
        num_heads: int = 4,
        num_inducing: int = 16,
        dropout: float = 0.5,
        use_features: bool = False,
    ) -> None:
        super().__init__(spec, hidden_dim, hidden_dim, use_features)
        check_range("num_inducing", num_inducing, at_least=1, whole=True)
        check_divides("num_heads", num_heads, "hidden_dim", hidden_dim)
        start = self.coordinates + self.feature_dim
        self.layers = nn.ModuleList(
            InducedBlock(hidden_dim if number else start, hidden_dim, num_heads, num_inducing)
            for number in range(num_layers)
        )
        self.seed = nn.Parameter(learned_set(1, hidden_dim))
        self.pool = AttentionBlock(hidden_dim, hidden_dim, num_heads)
        self.last = None if self.of_clouds else PointMap(2 * hidden_dim + self.category_dim, hidden_dim)
        self.dropout = nn.Dropout(dropout)

    def represent_clouds(self, points: Points) -> Tensor:
        """Represent clouds `[B, hidden_dim]`."""
        return self._pool_clouds(self._states(points), points.clouds)

    def represent_points(self, points: Points, categories: Tensor) -> Tensor:
        """Represent points `[T, hidden_dim]`."""
        states = self._states(points)
        shared = self._pool_clouds(states, points.clouds)[points.clouds.cloud_of]
        assert self.last is not None
        return self.last(torch.cat([points.clouds.to_rows(states), shared, categories], dim=1))

    def _states(self, points: Points) -> list[Tensor]:
        """Run the layers: `[b, n, hidden_dim]` for each block of clouds of one size."""
        # Clouds of a block have equal sizes, so attention needs no mask.
        states = points.clouds.to_blocks(points.features)
        for layer in self.layers:
            states = [layer(x) for x in states]
        return states

    def _pool_clouds(self, states: list[Tensor], clouds: Clouds) -> Tensor:
        """Pool each cloud by attention of the seed `[B, hidden_dim]`."""
        parts = []
        for x in states:
            # The paper's PMA first applies a feed-forward network to x; the released code does not.
            pooled = self.pool(self.seed.expand(len(x), -1, -1), self.dropout(x))
            parts.append(pooled.squeeze(1))
        order = torch.cat([block.clouds for block in clouds.blocks]).argsort()
        return self.dropout(torch.cat(parts)[order])
