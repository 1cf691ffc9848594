"""Reformer: attention among tokens in one bucket of a random hash.

Kitaev, Kaiser and Levskaya, "Reformer: The Efficient Transformer", ICLR 2020, arXiv 2001.04451, section 2.

Legend: B documents, N padded tokens, H heads, d head width, R rounds of hashing, m tokens of a chunk, S chunks.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from graphbench.errors import BadInput, check_range
from graphbench.nn import DenseLayout
from graphbench_sequences.attention import ProjectedAttention

#: Logits of a token with itself, which matters only if it has no other key, and of masked pairs.
_ITSELF, _HIDDEN = -1e5, -1e9


class ReformerAttention(ProjectedAttention):
    """Softmax attention within buckets of locality-sensitive hashing.

    Queries and keys differ only in length: `k = q / |q|`. A hashing round puts a token into the bucket
    `argmax [q A, -q A]` of a random matrix A. Tokens are sorted by bucket and place and split into chunks of m. A token
    attends to its bucket in its chunk and the previous one, and to itself if there are no others. Rounds are joined
    into one softmax over all pairs that meet in any, each counted once (section 2, "Multi-round LSH attention").

    The matrices are sampled once and saved with the weights, and each document is sorted separately, so results do not
    depend on other documents. `3 dim qkv_dim` parameters.

    Args:
        dim, num_heads, qkv_dim, dropout: see `ProjectedAttention`.
        num_buckets: 1, or an even number.
        num_hashes: rounds R.
        chunk_length: m.

    Raises:
        BadInput: an option is out of range.

    Examples:
        >>> layout = DenseLayout.from_batch(torch.tensor([0] * 9 + [1]))
        >>> ReformerAttention(8, num_heads=2, num_buckets=4, chunk_length=3)(torch.randn(10, 8), layout).shape
        torch.Size([10, 8])
    """

    num_maps: ClassVar[int] = 2
    rotations: Tensor

    def __init__(
        self,
        dim: int,
        num_heads: int,
        qkv_dim: int | None = None,
        dropout: float = 0.0,
        num_buckets: int = 10,
        num_hashes: int = 1,
        chunk_length: int = 64,
    ) -> None:
        super().__init__(dim, num_heads, qkv_dim, dropout)
        for option, value in (("num_buckets", num_buckets), ("num_hashes", num_hashes), ("chunk_length", chunk_length)):
            check_range(option, value, at_least=1, whole=True)
        if num_buckets > 1 and num_buckets % 2:
            raise BadInput(f"num_buckets must be 1 or even, for a direction and its opposite, but got {num_buckets}.")
        self.num_buckets, self.num_hashes, self.chunk_length = num_buckets, num_hashes, chunk_length
        head_dim = self.out_map.in_features // num_heads
        self.register_buffer("rotations", torch.randn(num_hashes, head_dim, max(num_buckets // 2, 1)))

    def mix(self, heads: tuple[Tensor, ...], layout: DenseLayout) -> Tensor:
        """Mix values by queries within buckets, in at least float32."""
        q, v = heads
        precision = torch.promote_types(v.dtype, torch.float32)
        with torch.autocast(v.device.type, enabled=False):
            query, value = (part.to(precision).unsqueeze(2) for part in (q, v))  # [B, H, 1, N, d]
            bucket = self._buckets(query, layout.mask)  # [B, H, R, N]
            place = torch.arange(bucket.shape[-1], device=q.device)
            # Sort keys are distinct, so tokens of a bucket stay in reading order on every device.
            order = (bucket * len(place) + place).argsort(-1)
            mixed, total = self._attend(query, value, bucket, order)
            # A permutation's argsort is its inverse: restore the reading order, so that rounds can be joined.
            back = order.argsort(-1)
            total = total.gather(-1, back)
            mixed = mixed.gather(3, back.unsqueeze(-1).expand_as(mixed))
            weights = (total - total.logsumexp(2, keepdim=True)).exp()
            return (mixed * weights.unsqueeze(-1)).sum(2).to(v.dtype)

    def _buckets(self, query: Tensor, mask: Tensor) -> Tensor:
        """Hash each token in each round to a bucket `[B, H, R, N]`; padding gets the last one."""
        if self.num_buckets == 1:
            shape = (*query.shape[:2], self.num_hashes, query.shape[3])
            bucket = torch.zeros(shape, dtype=torch.long, device=query.device)
        else:
            # The hash ignores lengths, so q and k = q / |q| share a bucket.
            rotated = query.detach() @ self.rotations.to(query.dtype)
            bucket = torch.cat([rotated, -rotated], dim=-1).argmax(-1)
        return bucket.masked_fill(~mask[:, None, None, :], self.num_buckets)

    def _attend(self, query: Tensor, value: Tensor, bucket: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """Mix values `[B, H, R, N, d]` in the order of buckets; also return log sums of weights `[B, H, R, N]`."""
        length = order.shape[-1]
        q, v = (self._chunk(part.expand(-1, -1, self.num_hashes, -1, -1), order) for part in (query, value))
        # `roll` puts the last chunk before the first one, but with buckets of -2, so `meet` hides it.
        keys, values = (torch.cat([part.roll(1, 3), part], dim=4) for part in (F.normalize(q, dim=-1), v))
        buckets = self._chunk(bucket.unsqueeze(-1), order, fill=-1)
        meet = buckets == _with_previous(buckets, fill=-2).transpose(-1, -2)
        place = torch.arange(length, device=order.device).expand_as(order).unsqueeze(-1)
        place = self._chunk(place, order, fill=-1)
        # Large numbers, not minus infinity: a token without other keys gets a softmax weight of 1 on itself.
        alone = place == _with_previous(place, fill=-2).transpose(-1, -2)
        logits = q @ keys.transpose(-1, -2) * q.shape[-1] ** -0.5  # [B, H, R, S, m, 2 m]
        logits = logits.masked_fill(alone, _ITSELF).masked_fill(~meet, _HIDDEN)
        if self.num_hashes > 1:
            # log N_ij of the paper: a pair that meets in several rounds counts once in the joint softmax.
            logits = logits - self._count_rounds(bucket, order).clamp(min=1).to(logits.dtype).log()
        total = logits.logsumexp(-1, keepdim=True)
        mixed = F.dropout((logits - total).exp(), self.dropout, self.training) @ values
        return mixed.flatten(3, 4)[:, :, :, :length], total.flatten(3)[..., :length]

    def _chunk(self, x: Tensor, order: Tensor, fill: int = 0) -> Tensor:
        """Sort rows `[B, H, R, N, c]` by bucket and split them into chunks `[B, H, R, S, m, c]`."""
        rows = x.gather(3, order.unsqueeze(-1).expand(-1, -1, -1, -1, x.shape[-1]))
        return F.pad(rows, (0, 0, 0, -rows.shape[3] % self.chunk_length), value=fill).unflatten(
            3, (-1, self.chunk_length)
        )

    def _count_rounds(self, bucket: Tensor, order: Tensor) -> Tensor:
        """Count the rounds in which the pairs of each chunk meet `[B, H, R, S, m, 2 m]`."""
        chunk = order.argsort(-1) // self.chunk_length  # of each token
        count = torch.zeros(1, device=order.device)
        for number in range(self.num_hashes):
            columns = (part[:, :, number : number + 1].unsqueeze(-1) for part in (bucket, chunk))
            buckets, chunks = (self._chunk(part.expand(-1, -1, self.num_hashes, -1, -1), order, -1) for part in columns)
            same = buckets == _with_previous(buckets, fill=-2).transpose(-1, -2)
            distance = chunks - _with_previous(chunks, fill=-2).transpose(-1, -2)
            count = count + (same & (distance >= 0) & (distance <= 1))
        return count


def _with_previous(x: Tensor, fill: int) -> Tensor:
    """Prepend the previous chunk to each of `[B, H, R, S, m, c]`: `[B, H, R, S, 2 m, c]`; the first gets `fill`."""
    before = torch.cat([torch.full_like(x[:, :, :, :1], fill), x[:, :, :, :-1]], dim=3)
    return torch.cat([before, x], dim=4)
