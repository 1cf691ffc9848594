"""BigBird: attention of blocks of tokens to a few other blocks.

Zaheer et al., "Big Bird: Transformers for Longer Sequences", NeurIPS 2020, arXiv 2007.14062, section 2.

Legend: B documents, N padded tokens, H heads, d head width, s tokens of a block, M blocks of the longest document, C
blocks that a block attends to, r of them random.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from graphbench.errors import check_range
from graphbench.nn import DenseLayout, attend
from graphbench_sequences.attention import ProjectedAttention

#: Distance of the seeds of two layers, more than the blocks of any document.
_SEEDS_APART = 1_000_003


class BigBirdAttention(ProjectedAttention):
    """Softmax attention in blocks of s tokens: linear in the tokens.

    The first and the last block of a document attend to all blocks, and all blocks to them. Every other block attends
    to itself, to its two neighbours and to r random blocks among the rest, see `block_table`.

    Args:
        dim, num_heads, qkv_dim, dropout: see `ProjectedAttention`.
        block_size: tokens of a block s.
        num_random: random blocks r.
        seed: seed of the random blocks; the number of the layer, so that layers differ.

    Raises:
        BadInput: an option is out of range.

    Examples:
        >>> layout = DenseLayout.from_batch(torch.tensor([0] * 9 + [1]))
        >>> BigBirdAttention(8, num_heads=2, block_size=2, num_random=1)(torch.randn(10, 8), layout).shape
        torch.Size([10, 8])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        qkv_dim: int | None = None,
        dropout: float = 0.0,
        block_size: int = 64,
        num_random: int = 3,
        seed: int = 0,
    ) -> None:
        super().__init__(dim, num_heads, qkv_dim, dropout)
        check_range("block_size", block_size, at_least=1, whole=True)
        check_range("num_random", num_random, at_least=0, whole=True)
        check_range("seed", seed, at_least=0, whole=True)
        self.block_size, self.num_random, self.seed = block_size, num_random, seed

    def mix(self, heads: tuple[Tensor, ...], layout: DenseLayout) -> Tensor:
        """Mix with softmax over the blocks that each block attends to."""
        q, k, v = heads
        size, count = self.block_size, -(-layout.max_nodes // self.block_size)
        lengths = layout.ptr.diff()
        blocks = (lengths + size - 1) // size
        short = (0, 0, 0, count * size - layout.max_nodes)
        q, k, v = (F.pad(part, short) for part in (q, k, v))
        table = self._tables(blocks, count)  # [B, H, M, C]
        slot = table.clamp(min=0).unsqueeze(-1) * size + torch.arange(size, device=q.device)
        exists = (table >= 0).unsqueeze(-1) & (slot < lengths[:, None, None, None, None])
        # A padded block attends to its document's first token: a row without keys has no softmax.
        exists[..., 0, 0] |= ~exists.flatten(-2).any(-1)
        mixed = self._attend(q.unflatten(2, (count, size)), _gather(k, slot), _gather(v, slot), exists.flatten(3))
        return self._with_ends(mixed.flatten(2, 3), q, k, v, lengths)[:, :, : layout.max_nodes]

    @torch.compiler.disable  # or a program would draw the random blocks row by row
    def _tables(self, blocks: Tensor, count: int) -> Tensor:
        """Stack the tables `[B, H, M, C]` of documents of `blocks [B]` blocks, see `block_table`."""
        # The numbers of blocks are read from the device: tables are drawn and cached on the host.
        kinds, kind = blocks.unique(return_inverse=True)  # documents with equally many blocks share a table
        options = (count, self.num_heads, self.num_random, self.seed)
        tables = [block_table(number, *options) for number in kinds.tolist()]
        return torch.stack(tables).to(blocks.device)[kind]

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, exists: Tensor) -> Tensor:
        """Mix values `[B, H, M, s, d]` for queries of this shape, of keys and values `[B, H, M, C s, d]`."""
        bias = torch.zeros(exists.shape, device=q.device).masked_fill_(~exists, -torch.inf).unsqueeze(3)
        # Blocks are merged into the head axis, so that one call handles all of them.
        flat = q.flatten(1, 2), k.flatten(1, 2), v.flatten(1, 2), bias.flatten(1, 2)
        return attend(*flat, self.active_dropout).view_as(q)

    def _with_ends(self, mixed: Tensor, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        """Replace the first and the last block of `mixed [B, H, M s, d]`: they attend to the whole document."""
        size, place = self.block_size, torch.arange(q.shape[2], device=q.device)
        last = ((lengths - 1).clamp(min=0) // size * size)[:, None]
        slots = torch.cat([place[:size].expand(len(q), -1), last + place[:size]], dim=1)  # [B, 2 s]
        rows = slots[:, None, :, None].expand(-1, q.shape[1], -1, q.shape[3])
        bias = torch.zeros(len(q), len(place), device=q.device)
        # An empty document sees one padded token: no softmax runs over minus infinity only.
        bias = bias.masked_fill_(place >= lengths[:, None].clamp(min=1), -torch.inf)[:, None, None]
        first, final = attend(q.gather(2, rows), k, v, bias, self.active_dropout).chunk(2, dim=2)
        number = torch.arange(q.shape[2] // size, device=q.device)[:, None, None]
        blocks = mixed.to(first.dtype).unflatten(2, (-1, size))
        blocks = torch.where(number == (last // size)[:, :, None, None, None], final.unsqueeze(2), blocks)
        return torch.where(number == 0, first.unsqueeze(2), blocks).flatten(2, 3)


@lru_cache(maxsize=1024)
def block_table(blocks: int, count: int, num_heads: int, num_random: int, seed: int = 0) -> Tensor:
    """Tabulate the blocks that each block of a document attends to, `[H, M, 5 + r]` on the CPU; -1 for none.

    The first, the last, the previous, the block itself and the next, each once, then r random ones of the others, or
    all if there are fewer. The random ones depend only on the number of blocks and the seed.

    Args:
        blocks: number of blocks of the document.
        count: M, at least `blocks`.
        num_heads: H; each has its own random blocks.
        num_random: r.
        seed: seed of the random blocks.

    Examples:
        >>> block_table(blocks=3, count=4, num_heads=1, num_random=1)[0]
        tensor([[ 0,  2, -1, -1,  1, -1],
                [ 0,  2, -1,  1, -1, -1],
                [ 0,  2,  1, -1, -1, -1],
                [-1, -1, -1, -1, -1, -1]])
    """
    table = torch.full((num_heads, count, 5 + num_random), -1)
    generator = torch.Generator().manual_seed(blocks + _SEEDS_APART * seed)
    for row in range(blocks):
        fixed = [0] if blocks == 1 else [0, blocks - 1]
        table[:, row, : len(fixed)] = torch.tensor(fixed)
        for column, near in enumerate((row - 1, row, row + 1), start=2):
            if 0 <= near < blocks and near not in fixed:
                table[:, row, column] = near
        excluded = {*fixed, row - 1, row, row + 1}
        others = torch.tensor([block for block in range(blocks) if block not in excluded], dtype=torch.long)
        for head in range(num_heads):
            drawn = others[torch.randperm(len(others), generator=generator)[:num_random]]
            table[head, row, 5 : 5 + len(drawn)] = drawn
    return table


def _gather(x: Tensor, slot: Tensor) -> Tensor:
    """Gather tokens `slot [B, H, M, C, s]` of `x [B, H, M s, d]`: `[B, H, M, C s, d]`."""
    rows = slot.flatten(2)[..., None].expand(-1, -1, -1, x.shape[-1])
    return x.gather(2, rows).unflatten(2, (slot.shape[2], -1))
