"""MEGA: attention with a moving average and gates.

Ma et al., "Mega: Moving Average Equipped Gated Attention", ICLR 2023, arXiv 2209.10655, section 3.

Legend: T tokens, B documents of a block, N padded tokens; d, z and v are the widths of tokens, of queries and keys, and
of values; m moving averages of a channel.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import check_choice, check_range
from graphbench.nn import BatchNorm, DenseLayout, attend
from graphbench_sequences.model import InteractionName, SequenceModel, longest_document
from graphbench_sequences.s4d import long_convolution
from graphbench_sequences.tokens import TokenName, check_sequences

AttentionFunction = Literal["softmax", "laplace"]
NormName = Literal["batch", "layer", "scale"]
NormPosition = Literal["pre", "post"]
#: Initial standard deviations of weights, and of the logits of decay and damping.
_STD, _DECAY_STD = 0.02, 0.2
#: Added to mean squares; the authors' code passes it to every norm.
_EPS = 1e-5
#: Mean and deviation for which the Laplace function is close to the squared ReLU (equation 19).
_LAPLACE_MEAN, _LAPLACE_STD = 0.5**0.5, (4 * torch.pi) ** -0.5


def laplace(x: Tensor) -> Tensor:
    """Compute `(1 + erf((x - mu) / (sigma sqrt(2)))) / 2` with `mu = sqrt(1 / 2)` and `sigma = sqrt(1 / (4 pi))`.

    Examples:
        >>> laplace(torch.tensor([0.5**0.5, 3.0]))
        tensor([0.5000, 1.0000])
    """
    return (1 + torch.erf((x - _LAPLACE_MEAN) / (_LAPLACE_STD * 2**0.5))) / 2


class ScaleNorm(nn.Module):
    """`g x / sqrt(mean(x^2) + 1e-5)`, g one learned number, initially 1.

    Examples:
        >>> ScaleNorm()(torch.tensor([[3.0, 4.0]]))
        tensor([[0.8485, 1.1314]], grad_fn=<MulBackward0>)
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise rows `[T, d]`."""
        normed: Tensor = self.scale * x * (x.square().mean(-1, keepdim=True) + _EPS).rsqrt()
        return normed


def _make_norm(name: NormName, dim: int) -> nn.Module:
    check_choice("norm", name, get_args(NormName))
    if name == "scale":
        return ScaleNorm()
    return BatchNorm(dim) if name == "batch" else nn.LayerNorm(dim)


class MovingAverage(nn.Module):
    """`SiLU(y + w x)`, y the multi-dimensional damped moving averages of each channel, in both directions.

        h_l = p b x_l + (1 - p a) h_(l - 1),      y_l = sum_m c_m h_(l, m) / sqrt(m)

    and the same from the end of the document with separate averages; both include the token itself. p and a are
    logistic functions of learned numbers. `(8 m + 1) d` parameters.

    Args:
        dim: channels d.
        num_averages: m.
        truncation: tokens, including the current one, after which an average forgets; None for never.

    Examples:
        >>> MovingAverage(8, 4)(torch.randn(4, 8), DenseLayout.from_batch(torch.tensor([0, 0, 0, 1]))).shape
        torch.Size([4, 8])
    """

    def __init__(self, dim: int, num_averages: int = 16, truncation: int | None = None) -> None:
        super().__init__()
        self.truncation = truncation
        shape = (2, dim, num_averages)  # forward from the first token, and backward from the last one
        self.decay, self.damping = nn.Parameter(torch.empty(shape)), nn.Parameter(torch.empty(shape))
        self.expansion, self.projection = nn.Parameter(torch.empty(shape)), nn.Parameter(torch.randn(shape))
        self.skip = nn.Parameter(torch.randn(dim))
        nn.init.normal_(self.decay, std=_DECAY_STD)
        nn.init.normal_(self.damping, std=_DECAY_STD)
        signs = torch.ones(num_averages)
        signs[1::2] = -1  # alternating signs are more stable, according to the authors' code
        self.expansion.data.copy_(signs + _STD * torch.randn(shape))

    def kernels(self, length: int) -> tuple[Tensor, Tensor]:
        """Return weights of the token itself and earlier ones, and of later ones, `[d, length]` each."""
        precision = torch.promote_types(self.decay.dtype, torch.float32)
        decay, damping = self.decay.to(precision).sigmoid(), self.damping.to(precision).sigmoid()
        place = torch.arange(length, device=decay.device, dtype=precision)
        if self.truncation is not None:
            place = place[: self.truncation]
        # (1 - p a)^l from logarithms: for slow averages p a is tiny, and 1 - p a would round it.
        powers = (torch.log1p(-decay * damping).unsqueeze(-1) * place).exp()  # [2, d, m, length]
        weight = decay * self.expansion.to(precision) * self.projection.to(precision) * decay.shape[-1] ** -0.5
        past, future = F.pad(torch.einsum("sdm,sdml->sdl", weight, powers), (0, length - len(place))).unbind()
        # Both directions include the token itself, whose two weights are one entry of the convolution.
        centre = F.pad(future[:, :1], (0, length - 1))
        return past + centre, F.pad(future[:, 1:], (0, 1))

    def forward(self, x: Tensor, layout: DenseLayout) -> Tensor:
        """Average tokens `[T, d]` within each document."""
        # FFTs do not support bfloat16.
        with torch.autocast(x.device.type, enabled=False):
            precision = torch.promote_types(x.dtype, torch.float32)
            past, future = self.kernels(layout.max_nodes)
            parts = []
            for dense in layout.to_blocks(x.to(precision)):
                near = slice(0, dense.shape[1])
                parts.append(long_convolution(dense, past[:, near], future[:, near]))
            averaged = layout.from_blocks(parts).to(x.dtype)
        return F.silu(averaged + self.skip * x)


class GatedAttention(nn.Module):
    """Single-head attention whose queries, keys and gates are maps of moving averages (section 3.3).

        x' = average(x)      z = SiLU(W_z x' + b)      q, k = g_q z + b_q, g_k z + b_k      v = SiLU(W_v x + b)
        o = f(q k^T s + r) v      r' = SiLU(W_r x' + b)      u = sigmoid(W_u x' + b)
        h = SiLU(W_h x' + U (r' o) + b)      out = u h + (1 - u) x

    f is softmax with `s = z^(-1/2)`, or `laplace` with `s = 1 / n` for a document of n tokens. The bias of a pair is a
    learned number of the distance `j - i`.

    Args:
        dim, key_dim, value_dim: d, z, v.
        num_averages, truncation: see `MovingAverage`.
        attention: softmax or laplace.
        max_length: tokens of the longest document.
        dropout: probability of dropping an entry of x' and of h.
        attention_dropout: probability of dropping an attention weight.

    Examples:
        >>> attention = GatedAttention(8, key_dim=4, value_dim=16, num_averages=2, max_length=9)
        >>> x = torch.randn(4, 8)
        >>> attention(x, x, DenseLayout.from_batch(torch.tensor([0, 0, 0, 1]))).shape
        torch.Size([4, 8])
    """

    def __init__(
        self,
        dim: int,
        key_dim: int,
        value_dim: int,
        num_averages: int = 16,
        truncation: int | None = None,
        attention: AttentionFunction = "softmax",
        max_length: int = 1024,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.widths, self.attention = (dim, key_dim, value_dim, dim), attention
        self.dropout, self.attention_dropout = nn.Dropout(dropout), attention_dropout
        self.average = MovingAverage(dim, num_averages, truncation)
        self.value_map = nn.Linear(dim, value_dim)  # W_v
        self.average_map = nn.Linear(dim, sum(self.widths))  # W_u, W_z, W_r, W_h
        self.out_map = nn.Linear(value_dim, dim, bias=False)  # U; its bias is that of W_h
        self.key_scale = nn.Parameter(_STD * torch.randn(2, key_dim))
        self.key_shift = nn.Parameter(torch.zeros(2, key_dim))
        self.distance_bias = nn.Parameter(_STD * torch.randn(2 * max_length - 1))
        for part in (self.value_map, self.average_map, self.out_map):
            nn.init.normal_(part.weight, std=_STD)
            if part.bias is not None:
                nn.init.zeros_(part.bias)

    def forward(self, x: Tensor, residual: Tensor, layout: DenseLayout) -> Tensor:
        """Attend among tokens `[T, dim]`, normed or not; return `residual` where the gate is closed."""
        averaged = self.dropout(self.average(x, layout))
        gate, z, r, h = self.average_map(averaged).split(self.widths, dim=-1)
        z, r = F.silu(z), F.silu(r)
        q, k = (z * scale + shift for scale, shift in zip(self.key_scale, self.key_shift, strict=True))
        v, parts = F.silu(self.value_map(x)), []
        widths = [part.shape[-1] for part in (q, k, v)]
        for block, dense in zip(layout.blocks, layout.to_blocks(torch.cat([q, k, v.to(q.dtype)], dim=-1)), strict=True):
            q_, k_, v_ = dense.unsqueeze(1).split(widths, dim=-1)
            parts.append(self._attend(q_, k_, v_, block.layout).squeeze(1))
        mixed = layout.from_blocks(parts).to(r.dtype)
        h = self.dropout(F.silu(h + self.out_map(mixed * r)))
        # u h + (1 - u) x; with pre-norm x is the token before its norm.
        return residual + gate.sigmoid() * (h - residual)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, layout: DenseLayout) -> Tensor:
        """Mix values `[B, 1, N, v]`."""
        dropout = self.attention_dropout if self.training else 0.0
        bias = self._bias(q.shape[2]).to(q.dtype)
        if self.attention == "softmax":
            return attend(q, k, v, bias if layout.is_full else bias + layout.key_bias.to(q.dtype), dropout)
        lengths = layout.ptr.diff()[:, None, None, None].clamp(min=1)
        # Weights do not sum to one, so padding must be zeroed: no normalisation removes it.
        weights = laplace(q @ k.transpose(-1, -2) / lengths + bias) * layout.mask[:, None, None, :]
        return F.dropout(weights.to(v.dtype), dropout, self.training) @ v

    def _bias(self, length: int) -> Tensor:
        """Return the bias of all distances `[1, 1, length, length]`."""
        place = torch.arange(length, device=self.distance_bias.device)
        # Distances start at 1 - max_length, so 0 is in the middle.
        middle = len(self.distance_bias) // 2
        return self.distance_bias[middle + place - place[:, None]][None, None]


class MegaLayer(nn.Module):
    """Gated attention and a feed-forward network with SiLU, with norms before or after each of them.

    Args:
        dim: width of the tokens.
        ffn_dim: width of the feed-forward network.
        norm: batch, layer or scale.
        norm_position: pre or post.
        attention: a `GatedAttention`.
        dropout: probability of dropping an entry after the feed-forward network.

    Examples:
        >>> layer = MegaLayer(8, 16, "layer", "post", GatedAttention(8, key_dim=4, value_dim=16, max_length=9))
        >>> layer(torch.randn(4, 8), DenseLayout.from_batch(torch.tensor([0, 0, 0, 1]))).shape
        torch.Size([4, 8])
    """

    def __init__(
        self,
        dim: int,
        ffn_dim: int,
        norm: NormName,
        norm_position: NormPosition,
        attention: GatedAttention,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_choice("norm_position", norm_position, get_args(NormPosition))
        self.pre, self.dropout, self.attention = norm_position == "pre", nn.Dropout(dropout), attention
        self.attention_norm, self.ffn_norm = _make_norm(norm, dim), _make_norm(norm, dim)
        self.expand, self.contract = nn.Linear(dim, ffn_dim), nn.Linear(ffn_dim, dim)
        for part in (self.expand, self.contract):
            nn.init.normal_(part.weight, std=_STD)
            nn.init.zeros_(part.bias)

    def forward(self, x: Tensor, layout: DenseLayout) -> Tensor:
        """Return tokens `[T, dim]` after the layer."""
        x = self.attention(self.attention_norm(x) if self.pre else x, x, layout)
        x = x if self.pre else self.attention_norm(x)
        hidden = F.silu(self.expand(self.ffn_norm(x) if self.pre else x))
        x = x + self.dropout(self.contract(hidden))
        return x if self.pre else self.ffn_norm(x)


class MEGA(SequenceModel):
    """MEGA with attention over whole documents (Ma et al. 2023, arXiv 2209.10655); defaults are for Text.

    Time and memory: `B L (N d^2 + N^2 d)`, `B L (N d + N^2)`.

    Args:
        spec: the benchmark's description; nodes have one coordinate, their place.
        hidden_dim: width of the tokens.
        num_layers: layers.
        key_dim: width of queries and keys.
        value_dim: width of values.
        ffn_dim: width of the feed-forward network.
        num_averages: moving averages per channel and direction.
        truncation: tokens after which a moving average forgets; None for never.
        attention: softmax or laplace, see `GatedAttention`.
        norm: batch, layer or scale.
        norm_position: pre or post.
        dropout: probability of every dropout except that of attention weights.
        attention_dropout: probability of dropping an attention weight.
        tokens: categories, each with a learned vector, or values, see `TokenEncoder`.
        interaction: how two documents are joined, concatenate or NLI, see `PairReadout`.
        max_length: tokens of the longest document; by default the benchmark's.

    Raises:
        BadInput: the benchmark has no sequences, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = MEGA(tiny_spec("graph-classification", "sequence"), hidden_dim=16, num_layers=2, ffn_dim=32)
        >>> model(tiny_batch(model)).graph.shape  # 4 sequences
        torch.Size([4, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 128,
        num_layers: int = 4,
        key_dim: int = 64,
        value_dim: int = 256,
        ffn_dim: int = 256,
        num_averages: int = 16,
        truncation: int | None = 1024,
        attention: AttentionFunction = "softmax",
        norm: NormName = "scale",
        norm_position: NormPosition = "post",
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        tokens: TokenName = "categories",
        interaction: InteractionName = "concatenate",
        max_length: int | None = None,
    ) -> None:
        check_sequences(spec)
        check_choice("attention", attention, get_args(AttentionFunction))
        counts = {"key_dim": key_dim, "value_dim": value_dim, "num_averages": num_averages, "truncation": truncation}
        for option, count in counts.items():
            if count is not None:
                check_range(option, count, at_least=1, whole=True)
        room = longest_document(spec, max_length)
        shared = (hidden_dim, key_dim, value_dim, num_averages, truncation, attention, room, dropout, attention_dropout)
        layers: list[nn.Module] = [
            MegaLayer(hidden_dim, ffn_dim, norm, norm_position, GatedAttention(*shared), dropout)
            for _ in range(num_layers)
        ]
        super().__init__(
            spec,
            hidden_dim,
            layers,
            _make_norm(norm, hidden_dim) if norm_position == "pre" else None,
            tokens=tokens,
            positions="none",
            pooling="mean",
            interaction=interaction,
            pair_activation="gelu",
            dropout=dropout,
            max_length=room,
        )
