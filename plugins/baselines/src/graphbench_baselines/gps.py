"""GPS: any local layer in parallel with any global attention, including those of Performer and BigBird.

Rampasek et al., NeurIPS 2022, arXiv 2205.12454; Choromanski et al., "Rethinking Attention with Performers", ICLR 2021,
arXiv 2009.14794, section 2.2; Zaheer et al., "Big Bird: Transformers for Longer Sequences", NeurIPS 2020,
arXiv 2007.14062, section 2.

Legend of BigBird: B graphs, N padded nodes, H heads, d head width, s nodes in a block, M blocks of the largest graph,
C blocks that a block attends to, r of them random.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.attention import PerformerAttention
from torch_geometric.nn.attention.performer import generalized_kernel, linear_attention

from graphbench import BenchmarkSpec, GraphBatch, PositionalEncoder
from graphbench.contracts.kernels import in_program
from graphbench.errors import check_choice, check_divides
from graphbench.nn import (
    Activation,
    Categorical,
    DenseLayout,
    FeedForward,
    GPSBackbone,
    LocalName,
    NormName,
    TransformerAttention,
    attend,
)

AttentionName = Literal["Transformer", "packed", "Performer", "BigBird", "none"]
#: Rows of one stream of numbers.
_ROWS = 256


class GPS(GPSBackbone):
    """GPS (Rampasek et al., NeurIPS 2022, arXiv 2205.12454); defaults are the paper's ZINC model without encodings.

    The layer is `graphbench.nn.GPSLayer`. To use a different global attention, subclass `graphbench.nn.GPSBackbone`.

    Time and memory: `B L ((N + E) d^2 + N^2 (d + H))`, `B L ((N + E) d + H N^2)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and edges.
        num_layers: GPS layers.
        num_heads: heads of the global attention (and of the local layer GAT); must divide `hidden_dim`.
        local_layer: GatedGCN, GINE, GCN, GAT or none.
        attention: Transformer (softmax), packed (the same, but on a GPU by a kernel without padding, see
            `attend_within_graphs`; its speed has not been measured on a GPU yet), Performer (linear, see
            `PerformerBranch`), BigBird (a whole sparse layer, see `BigBirdBranch`) or none.
        dropout: probability of every dropout except that of attention weights.
        attention_dropout: probability of dropping an attention weight; for Performer an entry of its output. BigBird
            drops none, as in GraphGPS.
        norm: batch, layer or none.
        positional_encoders: outputs are concatenated to the node features, which get the remaining width.
        gate_encoder: positions whose distances gate the edges of GatedGCN (ES-LapPE); not added to node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.
        activation: relu or gelu, for the feed-forward networks, GatedGCN and GINE (the head has its own).

    Raises:
        BadInput: an option is out of range, or conflicts with another.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = GPS(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        num_layers: int = 10,
        num_heads: int = 4,
        local_layer: LocalName = "GINE",
        attention: AttentionName = "Transformer",
        dropout: float = 0.0,
        attention_dropout: float = 0.5,
        norm: NormName = "batch",
        positional_encoders: list[PositionalEncoder] | None = None,
        gate_encoder: PositionalEncoder | None = None,
        categorical: Categorical = "xavier_uniform",
        activation: Activation = "relu",
    ) -> None:
        check_choice("attention", attention, get_args(AttentionName))

        def make_attention() -> nn.Module | None:
            if attention == "none":
                return None
            if attention == "Performer":
                return PerformerBranch(hidden_dim, num_heads, attention_dropout)
            if attention == "BigBird":
                return BigBirdBranch(hidden_dim, num_heads, dropout)
            return TransformerAttention(hidden_dim, num_heads, attention_dropout, packed=attention == "packed")

        super().__init__(
            spec,
            hidden_dim,
            num_layers,
            make_attention,
            local_layer=local_layer,
            num_heads=num_heads,
            dropout=dropout,
            norm=norm,
            positional_encoders=positional_encoders or (),
            gate_encoder=gate_encoder,
            categorical=categorical,
            activation=activation,
        )


class PerformerBranch(nn.Module):
    """`x'_i = O sum_j (f(q_i) . f(k_j)) v_j / sum_j f(q_i) . f(k_j) + b`, `f(a) = ReLU(R a) + 0.001`; linear in n.

    Weights, random features R (orthogonal rows, `int(d log d)` of them) and f are those of PyG's
    `PerformerAttention`. PyG's forward pass includes padding in the denominator, so a graph's answer depends on its
    batch; here both sums are over the nodes of the graph. The features are drawn once and saved with the weights.
    `256 H dim + dim` parameters, for heads of width 64 as in PyG and in the library that GraphGPS uses.

    Args:
        dim: width of the nodes.
        num_heads: heads H; must divide `dim`.
        dropout: probability of dropping an entry of the result.

    Raises:
        BadInput: `num_heads` does not divide `dim`.

    Examples:
        >>> from torch_geometric.data import Data
        >>> x, batch = torch.randn(3, 8), torch.tensor([0, 0, 1])
        >>> PerformerBranch(8, num_heads=2)(x, Data(num_nodes=3), DenseLayout.from_batch(batch)).shape
        torch.Size([3, 8])
    """

    def __init__(self, dim: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_divides("num_heads", num_heads, "hidden_dim", dim)
        self.performer = PerformerAttention(dim, num_heads, dropout=dropout)

    def forward(self, x: Tensor, batch: GraphBatch, layout: DenseLayout) -> Tensor:
        """Return mixed nodes `[num_nodes, dim]`."""
        qkv = torch.cat([self.performer.q(x), self.performer.k(x), self.performer.v(x)], dim=-1)
        heads = layout.to_block_heads(qkv, 3, self.performer.heads)
        parts = [
            self._attend(q, k, v, block.layout.mask) for (q, k, v), block in zip(heads, layout.blocks, strict=True)
        ]
        out: Tensor = self.performer.dropout(self.performer.attn_out(layout.from_block_heads(parts)))
        return out

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Mix values `[B, H, N, d]`, given queries and keys `[B, H, N, d]`; `mask [B, N]` is true at nodes."""
        # f is also positive at padding: mask keys after f, which removes them from numerator and denominator. PyG's
        # forward pass masks only values.
        features = self.performer.fast_attn
        q, k = (generalized_kernel(part, features.projection_matrix, features.kernel) for part in (q, k))
        mixed: Tensor = linear_attention(q, k * mask[:, None, :, None].to(k.dtype), v)
        return mixed


class BigBirdBranch(nn.Module):
    """A BigBird layer without positions: sparse attention, then a feed-forward network of width dim.

        y = LayerNorm(x + Drop(O attention(x) + b))      z = LayerNorm(y + Drop(W2 ReLU(W1 y + b1) + b2))

    The nodes of a graph are split, in the order of their numbers, into blocks of s = 3. A block attends to the first
    and the last block, to itself and its two neighbours, and to r = 3 random blocks; the first and the last block
    attend to all. A random block that is also one of the others counts twice, as in the code that GraphGPS uses from
    the transformers library. Random blocks depend only on the number of blocks, and all layers share them. (In that
    code they also depend on the largest graph of the batch, whose last block is the last block of all graphs.) Neither
    Q, K, V nor the weights have bias or dropout. `6 dim^2 + 7 dim` parameters.

    Args:
        dim: width of the nodes.
        num_heads: heads; must divide `dim`.
        dropout: probability of Drop.
        block_size: s.
        num_random: r.

    Raises:
        BadInput: `num_heads` does not divide `dim`.

    Examples:
        >>> from torch_geometric.data import Data
        >>> x, batch = torch.randn(9, 8), torch.tensor([0] * 8 + [1])
        >>> BigBirdBranch(8, num_heads=2)(x, Data(num_nodes=9), DenseLayout.from_batch(batch)).shape
        torch.Size([9, 8])
    """

    def __init__(
        self, dim: int, num_heads: int, dropout: float = 0.0, block_size: int = 3, num_random: int = 3
    ) -> None:
        super().__init__()
        check_divides("num_heads", num_heads, "hidden_dim", dim)
        self.num_heads, self.block_size, self.num_random = num_heads, block_size, num_random
        self.dropout = nn.Dropout(dropout)
        self.qkv_map = nn.Linear(dim, 3 * dim, bias=False)
        self.out_map = nn.Linear(dim, dim)  # O
        # GraphGPS's epsilon, a tenth of PyTorch's.
        self.attention_norm, self.norm = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.feed_forward = FeedForward(dim, dim, dropout, activation_dropout=0.0)

    def forward(self, x: Tensor, batch: GraphBatch, layout: DenseLayout) -> Tensor:
        """Return new nodes `[num_nodes, dim]`, with the layer's residuals and norms."""
        qkv = self.qkv_map(x)
        heads = layout.to_block_heads(qkv, 3, self.num_heads)
        parts = [self._attend(q, k, v, block.layout) for (q, k, v), block in zip(heads, layout.blocks, strict=True)]
        mixed = self.dropout(self.out_map(layout.from_block_heads(parts)))
        y = self.attention_norm(x + mixed)
        out: Tensor = self.norm(y + self.feed_forward(y))
        return out

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, layout: DenseLayout) -> Tensor:
        """Return mixed values `[B, H, N, d]` of queries, keys and values `[B, H, N, d]`."""
        # M is that of the largest graph; `seen` excludes the blocks that smaller graphs do not have.
        size, count = self.block_size, -(-layout.max_nodes // self.block_size)
        if not count:
            return v  # these graphs have no nodes
        short = count * size - layout.max_nodes
        # In one tensor: padding by nothing would keep strides of q, k and v that padding by something does not, and a
        # compiled program does both.
        packed = F.pad(torch.stack((q, k, v)), (0, 0, 0, short))
        q, k, v = packed.unflatten(3, (count, size))  # [B, H, M, s, d]
        lengths = layout.ptr.diff()
        blocks = (lengths + size - 1) // size
        index, seen = self._columns(blocks, count)
        slot = index[..., None] * size + torch.arange(size, device=index.device)
        hidden = ~(seen[..., None] & (slot < lengths[:, None, None, None, None])).flatten(3)  # [B, H, M, C s]
        bias = torch.zeros(hidden.shape, device=q.device).masked_fill_(hidden, -torch.inf)
        # Blocks are merged into the head axis, so one call handles all blocks. Every row sees block 0, so no softmax
        # runs over minus infinity only.
        keys, values = (_gather(part, index).flatten(1, 2) for part in (k, v))  # [B, H M, C s, d]
        mixed = attend(q.flatten(1, 2), keys, values, bias.view(len(q), -1, 1, hidden.shape[-1])).view_as(q)
        # First and last blocks were computed with the columns of the others only to keep shapes equal.
        mixed = self._with_ends(mixed, q, k, v, blocks, lengths).flatten(2, 3)
        return mixed[:, :, : layout.max_nodes]

    def _with_ends(self, mixed: Tensor, q: Tensor, k: Tensor, v: Tensor, blocks: Tensor, lengths: Tensor) -> Tensor:
        """Replace the first and the last block of every graph in `mixed`: they attend to all its nodes."""
        graph, last = torch.arange(len(q), device=q.device), (blocks - 1).clamp(min=0)
        ends = torch.cat([q[:, :, 0], q[graph, :, last]], dim=2)  # [B, H, 2 s, d]
        slots = torch.arange(k.shape[2] * k.shape[3], device=q.device)
        bias = torch.zeros(len(q), len(slots), device=q.device).masked_fill_(slots >= lengths[:, None], -torch.inf)
        # 2 s queries per graph with all its keys: the only dense product, linear in N.
        first, final = attend(ends, k.flatten(2, 3), v.flatten(2, 3), bias[:, None, None]).chunk(2, dim=2)
        number = torch.arange(mixed.shape[2], device=q.device)[:, None, None]
        mixed = torch.where(number == last[:, None, None, None, None], final.unsqueeze(2).to(mixed.dtype), mixed)
        return torch.where(number == 0, first.unsqueeze(2).to(mixed.dtype), mixed)

    def _columns(self, blocks: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the blocks that each block attends to `[B, H, M, C]`, and a mask of those that exist, bool."""
        row, last = torch.arange(count, device=blocks.device), (blocks - 1)[:, None]
        columns = [torch.zeros_like(row), last, row - 1, row, row + 1]
        fixed = torch.stack([column.expand(len(blocks), count) for column in columns], dim=-1)  # [B, M, 5]
        seen = (fixed > 0) & (fixed < last[..., None])  # a neighbour that is the first or the last counts once
        seen[..., 0] = True
        seen[..., 1] = last > 0
        # These may repeat a fixed column, which the softmax then counts twice.
        drawn = random_blocks(blocks, count, self.num_heads, self.num_random)
        shape = (len(blocks), self.num_heads, count, len(columns))
        index = torch.cat([fixed[:, None].expand(shape), drawn], dim=-1)
        return index.clamp(0, count - 1), torch.cat([seen[:, None].expand(shape), drawn >= 0], dim=-1)


def random_blocks(blocks: Tensor, count: int, num_heads: int, num_random: int) -> Tensor:
    """Return the random blocks that each block attends to, `[B, H, M, r]`; -1 where a graph has too few.

    As in the code that GraphGPS uses: r distinct ones of the first 2 r + 5 if a graph has more; of all if it has up to
    r + 5; and in between r // 2 of the first r + 5 and the others of the rest.

    Args:
        blocks: blocks of every graph `[B]`.
        count: M, at least the largest of them.
        num_heads: H; each has its own.
        num_random: r.

    Examples:
        >>> drawn = random_blocks(torch.tensor([2, 40]), count=40, num_heads=1, num_random=3)
        >>> drawn.shape, int((drawn[0] >= 0).sum(-1).max()), int(drawn[1].max()) < 11
        (torch.Size([2, 1, 40, 3]), 2, True)
    """
    # A row for each number of blocks: indexed by a tensor, without reading the sizes of graphs from the device.
    table = _table(count, num_heads, num_random, blocks.device)
    return table[blocks.clamp(max=len(table) - 1)]


@lru_cache(maxsize=64)
def _table(count: int, num_heads: int, num_random: int, device: torch.device) -> Tensor:
    """Tabulate random blocks of graphs of 0, 1, ... blocks `[totals, H, M, r]`; the last row is for all larger ones."""
    # The same number of rows for batches of few blocks, so that the compiled program is the same for all.
    totals = range(1, 2 * num_random + 7)
    none = torch.full((num_heads, count, num_random), -1)
    return torch.stack([none, *(_draw_blocks(total, count, num_heads, num_random) for total in totals)]).to(device)


def _draw_blocks(total: int, count: int, num_heads: int, num_random: int) -> Tensor:
    """Draw random blocks `[H, M, r]` of a graph of `total` blocks; all totals above 2 r + 5 draw the same ones."""
    limit = 2 * num_random + 5
    spans = [(0, total, num_random)]
    if total > limit:
        spans = [(0, limit, num_random)]
    elif total > num_random + 5:
        few = num_random // 2
        spans = [(0, num_random + 5, few), (num_random + 5, total, num_random - few)]
    # Row i of the numbers does not depend on `count`, so blocks of a graph do not depend on the batch's largest.
    numbers = fixed_uniforms(count, num_heads * limit, seed=total).view(count, num_heads, limit).transpose(0, 1)
    drawn = torch.full((num_heads, count, num_random), -1)
    column = 0
    for start, stop, wanted in spans:
        # The order of uniform numbers is a random permutation, whose first entries are distinct.
        taken = numbers[..., start:stop].argsort(-1)[..., :wanted] + start
        drawn[..., column : column + taken.shape[-1]] = taken
        column += taken.shape[-1]
    return drawn


def _gather(x: Tensor, index: Tensor) -> Tensor:
    """Gather the nodes of blocks `index [B, H, M, C]` from `x [B, H, M, s, d]`: `[B, H, M, C s, d]`."""
    rows = torch.arange(x.shape[0] * x.shape[1], device=x.device).view(x.shape[0], x.shape[1], 1, 1) * x.shape[2]
    return x.flatten(0, 2).index_select(0, (rows + index).flatten()).view(*index.shape, *x.shape[3:]).flatten(3, 4)


def fixed_uniforms(rows: int, width: int, seed: int = 0) -> Tensor:
    """Draw uniform numbers `[rows, width]`, float32, on the CPU; row i depends only on `seed`, `width` and i.

    Longer tables start with the rows of shorter ones, so the numbers of a graph do not depend on its batch. PyTorch's
    generators are not used. The table is cached and must not be changed in place.

    Examples:
        >>> torch.equal(fixed_uniforms(300, 2)[:5], fixed_uniforms(5, 2))
        True
    """
    numbers: Tensor = _uniforms_as_one(rows, width, seed) if in_program() else _uniforms(rows, width, seed)
    return numbers


def _uniforms(rows: int, width: int, seed: int) -> Tensor:
    chunks = [_chunk(number, width, seed) for number in range(-(-rows // _ROWS))]
    return torch.cat(chunks)[:rows] if chunks else torch.empty(0, width, dtype=torch.float32)


# A compiled program can neither seed a generator nor read a cache: it calls this as one operation.
_uniforms_as_one = torch.library.custom_op("graphbench_baselines::fixed_uniforms", _uniforms, mutates_args=())
_uniforms_as_one.register_fake(lambda rows, width, seed: torch.empty(rows, width, dtype=torch.float32))


@lru_cache(maxsize=256)
def _chunk(number: int, width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(1_000_003 * seed + number)
    return torch.rand(_ROWS, width, generator=generator, dtype=torch.float32)  # whatever the default dtype
