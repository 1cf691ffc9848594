"""The transformer of the Long Range Arena, and its variants with subquadratic attention.

Tay et al., "Long Range Arena: A Benchmark for Efficient Transformers", ICLR 2021, arXiv 2011.04006.
"""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import check_choice, check_range
from graphbench.nn import DenseLayout, FeedForward
from graphbench_sequences.attention import LinformerAttention, ProjectedAttention, SoftmaxAttention, draw_xavier
from graphbench_sequences.bigbird import BigBirdAttention
from graphbench_sequences.model import InteractionName, PoolingName, SequenceModel, longest_document
from graphbench_sequences.performer import KernelName, PerformerAttention, check_features
from graphbench_sequences.reformer import ReformerAttention
from graphbench_sequences.tokens import PositionName, TokenName, check_sequences

AttentionName = Literal["softmax", "linformer", "performer", "bigbird", "reformer"]
#: Added to variances, as in the arena's library.
_EPS = 1e-6


class TransformerLayer(nn.Module):
    """A pre-norm layer: `y = x + Drop(A(Norm(x)))`, `x' = y + FFN(Norm(y))`; FFN has GELU.

    Args:
        dim: width of the tokens.
        attention: A, called with tokens and their layout.
        ffn_dim: width of the feed-forward network.
        dropout: probability of Drop and of the dropouts of FFN.

    Examples:
        >>> import torch
        >>> layer = TransformerLayer(8, SoftmaxAttention(8, num_heads=2), ffn_dim=16)
        >>> layer(torch.randn(4, 8), DenseLayout.from_batch(torch.tensor([0, 0, 0, 1]))).shape
        torch.Size([4, 8])
    """

    def __init__(self, dim: int, attention: nn.Module, ffn_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.LayerNorm(dim, eps=_EPS), nn.LayerNorm(dim, eps=_EPS)
        self.attention = attention
        self.ffn = FeedForward(dim, ffn_dim, dropout, "gelu")
        self.dropout = nn.Dropout(dropout)
        for part in (self.ffn.expand, self.ffn.contract):
            draw_xavier(part.weight)
            nn.init.zeros_(part.bias)

    def forward(self, x: Tensor, layout: DenseLayout) -> Tensor:
        """Return tokens `[T, dim]` after the layer."""
        x = x + self.dropout(self.attention(self.attention_norm(x), layout))
        out: Tensor = x + self.ffn(self.ffn_norm(x))
        return out


class SequenceTransformer(SequenceModel):
    """The transformer of the Long Range Arena with a choice of attention; defaults are for ListOps.

    Layers are pre-norm. A learned token represents the document, and the head reads its state after the last norm.
    Results depend neither on other documents of the batch nor on padding.

    Time and memory: `B L (N d^2 + N^2 (d + H))`, `B L (N d + H N^2)`.

    Args:
        spec: the benchmark's description; nodes have one coordinate, their place.
        hidden_dim: width of the tokens.
        num_layers: layers.
        num_heads: heads; must divide `qkv_dim`.
        qkv_dim: width of queries, keys and values, over all heads; None for `hidden_dim`.
        ffn_dim: width of the feed-forward network.
        attention: softmax (over all tokens), linformer (`LinformerAttention`), performer (`PerformerAttention`),
            bigbird (`BigBirdAttention`) or reformer (`ReformerAttention`).
        dropout: probability of every dropout except that of attention weights.
        attention_dropout: probability of dropping an attention weight; performer has no weights to drop.
        tokens: categories, each with a learned vector, or values, see `TokenEncoder`.
        positions: sinusoidal, learned or none.
        pooling: cls (the learned token) or mean.
        interaction: how two documents are joined, concatenate or NLI, see `PairReadout`.
        max_length: tokens of the longest document, for learned positions and linformer; by default the benchmark's.
        rank: mixtures of keys and values of linformer.
        num_features: random features of performer; None for none, with relu only, as in the arena.
        kernel: kernel of performer, relu or softmax.
        block_size: tokens of a block of bigbird.
        num_random: random blocks that a block of bigbird attends to.
        num_buckets: buckets of reformer, 1 or an even number.
        num_hashes: rounds of hashing of reformer.
        chunk_length: tokens of a chunk of reformer.

    Raises:
        BadInput: the benchmark has no sequences, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> spec = tiny_spec("graph-classification", "sequence")
        >>> model = SequenceTransformer(spec, hidden_dim=16, num_layers=2, num_heads=4, ffn_dim=32)
        >>> model(tiny_batch(model)).graph.shape  # 4 sequences
        torch.Size([4, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 512,
        num_layers: int = 4,
        num_heads: int = 8,
        qkv_dim: int | None = None,
        ffn_dim: int = 1024,
        attention: AttentionName = "softmax",
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        tokens: TokenName = "categories",
        positions: PositionName = "sinusoidal",
        pooling: PoolingName = "cls",
        interaction: InteractionName = "concatenate",
        max_length: int | None = None,
        rank: int = 16,
        num_features: int | None = 256,
        kernel: KernelName = "relu",
        block_size: int = 64,
        num_random: int = 3,
        num_buckets: int = 10,
        num_hashes: int = 1,
        chunk_length: int = 64,
    ) -> None:
        check_sequences(spec)
        check_choice("attention", attention, get_args(AttentionName))
        check_features(num_features, kernel)
        counts = {"rank": rank, "block_size": block_size, "num_buckets": num_buckets}
        for option, count in (counts | {"num_hashes": num_hashes, "chunk_length": chunk_length}).items():
            check_range(option, count, at_least=1, whole=True)
        check_range("num_random", num_random, at_least=0, whole=True)
        if max_length is not None or attention == "linformer":
            max_length = longest_document(spec, max_length)
        room = (max_length or 0) + (pooling == "cls")  # the learned token also needs a row of linformer's mixture

        def make(number: int) -> ProjectedAttention:
            shared = (hidden_dim, num_heads, qkv_dim)
            if attention == "linformer":
                return LinformerAttention(*shared, attention_dropout, room, rank)
            if attention == "performer":
                return PerformerAttention(*shared, num_features, kernel)
            if attention == "bigbird":
                return BigBirdAttention(*shared, attention_dropout, block_size, num_random, seed=number)
            if attention == "reformer":
                return ReformerAttention(*shared, attention_dropout, num_buckets, num_hashes, chunk_length)
            return SoftmaxAttention(*shared, attention_dropout)

        super().__init__(
            spec,
            hidden_dim,
            [TransformerLayer(hidden_dim, make(number), ffn_dim, dropout) for number in range(num_layers)],
            nn.LayerNorm(hidden_dim, eps=_EPS),
            tokens=tokens,
            positions=positions,
            pooling=pooling,
            interaction=interaction,
            dropout=dropout,
            max_length=max_length,
        )
