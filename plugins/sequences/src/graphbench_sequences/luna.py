"""Luna: attention through a short sequence that packs the document.

Ma et al., "Luna: Linear Unified Nested Attention", NeurIPS 2021, arXiv 2106.01540, section 3.

Legend: T tokens, B documents of a block, N padded tokens, P packed tokens, H heads, d head width.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import check_choice, check_divides, check_range
from graphbench.nn import DenseLayout, FeedForward, attend
from graphbench_sequences.attention import draw_xavier
from graphbench_sequences.model import InteractionName, PoolingName, SequenceModel
from graphbench_sequences.tokens import PositionName, Positions, TokenName, check_sequences, halved_sinusoids

InitName = Literal["bert", "xavier"]

#: Initial factor of the weights of all maps except the last one.
_GAIN = 0.5**0.5
#: Initial standard deviation of weights, and of token vectors before their factor, as in BERT.
_BERT_STD = 0.02
#: Place of the first token: the released code counts from after its padding index, which is 1.
_FIRST_PLACE = 2


class LunaPositions(Positions):
    """Add `halved_sinusoids` to tokens; places count from 2 for categories and from 0 for values.

    Args:
        dim: width of the tokens.
        tokens: categories or values, see `TokenEncoder`.

    Examples:
        >>> LunaPositions(4, "values")(torch.zeros(1, 4), torch.tensor([0]))
        tensor([[0., 0., 1., 1.]])
    """

    def __init__(self, dim: int, tokens: TokenName) -> None:
        super().__init__("sinusoidal", dim, 0)
        self.first = _FIRST_PLACE if tokens == "categories" else 0

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        """Add places `[T]` to tokens `[T, dim]`."""
        return x + halved_sinusoids(place + self.first, x.shape[1]).to(x.dtype)


class LunaAttention(nn.Module):
    """Pack, then unpack: `Y_P = Attend(P, X, X)`, `Y_X = W_O Attend(X, Y_P, Y_P)`; O(N P).

    Each attention has its own maps of keys and values, all with biases: `7 dim^2 + 7 dim` parameters.

    Args:
        dim: width of the tokens.
        num_heads: heads H; must divide `dim`.
        dropout: probability of dropping an attention weight.

    Raises:
        BadInput: `num_heads` does not divide `dim`.

    Examples:
        >>> x, packed, hidden = torch.randn(2, 5, 8), torch.randn(2, 3, 8), torch.zeros(2, 1, 1, 1)
        >>> unpacked, packed = LunaAttention(8, num_heads=2)(x, packed, hidden, hidden)
        >>> unpacked.shape, packed.shape
        (torch.Size([2, 5, 8]), torch.Size([2, 3, 8]))
    """

    def __init__(self, dim: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_range("num_heads", num_heads, at_least=1, whole=True)
        check_divides("num_heads", num_heads, "hidden_dim", dim)
        self.num_heads, self.dropout = num_heads, dropout
        self.pack_query, self.pack_map = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
        self.query_map, self.unpack_map = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
        self.out_map = nn.Linear(dim, dim)
        maps = ((self.pack_query, 1), (self.pack_map, 2), (self.query_map, 1), (self.unpack_map, 2))
        # fairseq's rule for attention maps: Xavier's bound of each map, times 1/sqrt(2), and 1 for W_O.
        for part, count in maps:
            draw_xavier(part.weight, count)
            part.weight.data.mul_(_GAIN)
        draw_xavier(self.out_map.weight)
        nn.init.zeros_(self.out_map.bias)

    def forward(self, x: Tensor, packed: Tensor, key_bias: Tensor, packed_bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return unpacked `[B, N, dim]` and packed `[B, P, dim]`.

        Args:
            x: tokens `[B, N, dim]`.
            packed: packed tokens `[B, P, dim]`.
            key_bias: minus infinity at padded tokens, else 0, `[B, 1, 1, N]`.
            packed_bias: the same for packed tokens `[B, 1, 1, P]`.
        """
        # P has the same length for every document, so both attentions are linear in the tokens.
        packed = self._attend(self.pack_query(packed), self.pack_map(x), key_bias)
        unpacked = self._attend(self.query_map(x), self.unpack_map(packed), packed_bias)
        return self.out_map(unpacked), packed

    def _attend(self, query: Tensor, key_value: Tensor, bias: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in (query, *key_value.chunk(2, dim=-1))
        )
        return attend(q, k, v, bias, self.dropout if self.training else 0.0).transpose(1, 2).flatten(2)


class LunaLayer(nn.Module):
    """`x = Norm(x + Drop(Y_X))`, `x' = Norm(x + FFN(x))`, `p' = Norm(p + Drop(Y_P))`; FFN has GELU.

    Args:
        dim: width of the tokens.
        num_heads: heads.
        ffn_dim: width of the feed-forward network.
        dropout: probability of Drop and of the dropout after FFN.
        attention_dropout: probability of dropping an attention weight.
        is_last: return the packed tokens unchanged; nothing reads them.

    Examples:
        >>> layer, hidden = LunaLayer(8, num_heads=2, ffn_dim=16), torch.zeros(2, 1, 1, 1)
        >>> x, packed = layer(torch.randn(2, 5, 8), torch.randn(2, 3, 8), hidden, hidden)
        >>> x.shape, packed.shape
        (torch.Size([2, 5, 8]), torch.Size([2, 3, 8]))
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        ffn_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        is_last: bool = False,
    ) -> None:
        super().__init__()
        self.attention = LunaAttention(dim, num_heads, attention_dropout)
        self.attention_norm, self.ffn_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        # No norm whose output is unused: its parameters would get no gradient.
        self.packed_norm = None if is_last else nn.LayerNorm(dim)
        self.ffn = FeedForward(dim, ffn_dim, dropout, "gelu", 0.0)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, packed: Tensor, key_bias: Tensor, packed_bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens and packed tokens; arguments as for `LunaAttention.forward`."""
        unpacked, new = self.attention(x, packed, key_bias, packed_bias)
        x = self.attention_norm(x + self.dropout(unpacked))
        x = self.ffn_norm(x + self.ffn(x))
        # Packed tokens have no feed-forward network, as in the paper's layer.
        if self.packed_norm is not None:
            packed = self.packed_norm(packed + self.dropout(new))
        return x, packed


class LunaStack(nn.Module):
    """The norm of tokens and packed tokens, and the layers over both.

    Packed tokens are learned, initially standard normal, and get the `halved_sinusoids` of their places; a document of
    n tokens uses the first `min(P, n)`.

    Args:
        dim: width of the tokens.
        num_layers: layers.
        num_packed: packed tokens P.
        num_heads, ffn_dim, dropout, attention_dropout: see `LunaLayer`.

    Examples:
        >>> stack = LunaStack(8, num_layers=2, num_packed=3, num_heads=2, ffn_dim=16)
        >>> stack(torch.randn(4, 8), DenseLayout.from_batch(torch.tensor([0, 0, 0, 1]))).shape
        torch.Size([4, 8])
    """

    def __init__(
        self,
        dim: int,
        num_layers: int,
        num_packed: int,
        num_heads: int,
        ffn_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.packed = nn.Parameter(torch.randn(num_packed, dim))
        self.norm, self.packed_norm, self.dropout = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.Dropout(dropout)
        shared = (dim, num_heads, ffn_dim, dropout, attention_dropout)
        self.layers = nn.ModuleList(LunaLayer(*shared, number == num_layers - 1) for number in range(num_layers))

    def forward(self, x: Tensor, layout: DenseLayout) -> Tensor:
        """Return tokens `[T, dim]` after the last layer."""
        x = self.dropout(self.norm(x))
        place = torch.arange(self.packed.shape[0], device=x.device)
        packed = self.packed_norm(self.packed + halved_sinusoids(place, x.shape[1]).to(self.packed.dtype)).to(x.dtype)
        blocks = zip(layout.to_blocks(x), layout.blocks, strict=True)
        return layout.from_blocks([self._run(dense, packed, place, block.layout) for dense, block in blocks])

    def _run(self, dense: Tensor, packed: Tensor, place: Tensor, layout: DenseLayout) -> Tensor:
        exists = place < layout.ptr.diff()[:, None]
        packed_bias = torch.zeros_like(exists, dtype=torch.float32).masked_fill(~exists, -torch.inf)[:, None, None, :]
        state = self.dropout(packed.expand(dense.shape[0], -1, -1))
        for layer in self.layers:
            dense, state = layer(dense, state, layout.key_bias, packed_bias)
        return dense


class Luna(SequenceModel):
    """Luna (Ma et al. 2021, arXiv 2106.01540); defaults are for Luna-256 on Text.

    Time and memory: `B L ((N + m) d^2 + N m (d + H))`, `B L ((N + m) d + H N m)`.

    Args:
        spec: the benchmark's description; nodes have one coordinate, their place.
        hidden_dim: width of the tokens.
        num_layers: layers.
        num_heads: heads; must divide `hidden_dim`.
        ffn_dim: width of the feed-forward network.
        num_packed: packed tokens of a document.
        dropout: probability of every dropout except that of attention weights.
        attention_dropout: probability of dropping an attention weight.
        tokens: categories, each with a learned vector, or values, see `TokenEncoder`.
        positions: sinusoidal (`LunaPositions`), learned or none.
        pooling: cls (a learned token before the first one) or mean.
        interaction: how two documents are joined, concatenate or NLI, see `PairReadout`.
        max_length: tokens of the longest document, for learned positions; by default the benchmark's.
        init: initial weights: bert, as on Text and ListOps (all maps normal with deviation 0.02, biases zero, and token
            vectors with deviation 0.02 sqrt(d)), or xavier, as on the other tasks (see `LunaAttention`).

    Raises:
        BadInput: the benchmark has no sequences, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = Luna(tiny_spec("graph-classification", "sequence"), hidden_dim=16, num_layers=2, ffn_dim=32)
        >>> model(tiny_batch(model)).graph.shape  # 4 sequences
        torch.Size([4, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 256,
        num_layers: int = 4,
        num_heads: int = 4,
        ffn_dim: int = 1024,
        num_packed: int = 256,
        dropout: float = 0.3,
        attention_dropout: float = 0.3,
        tokens: TokenName = "categories",
        positions: PositionName = "sinusoidal",
        pooling: PoolingName = "cls",
        interaction: InteractionName = "concatenate",
        max_length: int | None = None,
        init: InitName = "bert",
    ) -> None:
        check_sequences(spec)
        check_choice("init", init, get_args(InitName))
        check_range("num_packed", num_packed, at_least=1, whole=True)
        if max_length is not None:
            check_range("max_length", max_length, at_least=1, whole=True)
        stack = LunaStack(hidden_dim, num_layers, num_packed, num_heads, ffn_dim, dropout, attention_dropout)
        super().__init__(
            spec,
            hidden_dim,
            [stack],
            None,
            tokens=tokens,
            positions=positions,
            pooling=pooling,
            interaction=interaction,
            pair_activation="gelu",
            max_length=max_length,
        )
        if positions == "sinusoidal":
            self.positions = LunaPositions(hidden_dim, tokens)
        if init == "bert":
            self._draw_as_bert()

    def _draw_as_bert(self) -> None:
        """Initialise as in the released code with `apply_bert_init`, which leaves packed tokens unchanged."""
        parts = [self.layers] if self.pair is None else [self.layers, self.pair]
        for module in (module for part in parts for module in part.modules()):
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=_BERT_STD)
                nn.init.zeros_(module.bias)
        for name, parameter in self.token_encoder.named_parameters():
            if name.endswith("table"):  # vectors of categories; the deviation includes their factor sqrt(d)
                nn.init.normal_(parameter, std=_BERT_STD * self.dim**0.5)
