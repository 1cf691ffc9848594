"""S4D: state space models with a diagonal state matrix, computed as long convolutions.

Gu, Gupta, Goel and Re, "On the Parameterization and Initialization of Diagonal State Space Models", NeurIPS 2022,
arXiv 2206.11893; after Gu, Goel and Re, "Efficiently Modeling Long Sequences with Structured State Spaces", ICLR 2022.

Legend: T tokens, B documents of a block, N padded tokens, C channels, S states of a channel, half of them stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import BenchmarkSpec
from graphbench.errors import BadInput, check_choice, check_range
from graphbench.nn import DenseLayout, NormName, make_norm
from graphbench_sequences.model import InteractionName, SequenceModel
from graphbench_sequences.tokens import TokenName, check_sequences

InitName = Literal["lin", "inv"]
NormPosition = Literal["pre", "post"]
#: Places m whose powers of a state are computed; those of later places are products.
_NEAR = 64


def diagonal(init: InitName, num_states: int) -> Tensor:
    """Return the initial states a_n, complex `[S / 2]`: one of each conjugate pair, n = 0, 1, ...

    lin: `-1/2 + i pi n`; inv: `-1/2 + i S / pi (S / (2 n + 1) - 1)` (S4D, equation 9).

    Examples:
        >>> diagonal("lin", 4)
        tensor([-0.5000+0.0000j, -0.5000+3.1416j], dtype=torch.complex128)
    """
    n = torch.arange(num_states // 2, dtype=torch.float64)
    imaginary = math.pi * n if init == "lin" else num_states / math.pi * (num_states / (2 * n + 1) - 1)
    return torch.complex(torch.full_like(n, -0.5), imaginary)


class DiagonalKernel(nn.Module):
    """Kernels of C linear systems `s' = a s + u`, `y_k = 2 Re sum_n c_kn s_n`, discretised with steps d.

    Zero-order hold: `s_l = exp(d a) s_(l-1) + (exp(d a) - 1) / a u_l`, so y_k is the convolution of u with
    `K_kl = 2 Re sum_n c_kn (exp(d a_n) - 1) / a_n exp(l d a_n)`. `a = -exp(log_decay) + i frequency`; steps are sampled
    log-uniformly, c from a complex normal distribution. Read-outs k share states and steps: `C (S + 1)` parameters, and
    `C S` per read-out.

    Args:
        dim: channels C.
        num_states: S, even.
        init: lin or inv, see `diagonal`.
        step_min, step_max: initial range of the steps.
        num_readouts: number of read-outs c of the same states.

    Examples:
        >>> DiagonalKernel(3, num_states=4, num_readouts=2)(7).shape
        torch.Size([2, 3, 7])
    """

    def __init__(
        self,
        dim: int,
        num_states: int = 64,
        init: InitName = "lin",
        step_min: float = 0.001,
        step_max: float = 0.1,
        num_readouts: int = 1,
    ) -> None:
        super().__init__()
        states = diagonal(init, num_states).expand(dim, -1)
        low, high = math.log(step_min), math.log(step_max)
        self.log_step = nn.Parameter(torch.rand(dim) * (high - low) + low)
        # The real part is minus an exponential, so states always decay.
        self.log_decay = nn.Parameter((-states.real).log().to(torch.get_default_dtype()))
        self.frequency = nn.Parameter(states.imag.to(torch.get_default_dtype()).clone())
        self.readout = nn.Parameter(torch.randn(num_readouts, dim, num_states // 2, 2) * 0.5**0.5)

    def forward(self, length: int) -> Tensor:
        """Return `K_0` to `K_(length - 1)` of read-outs and channels `[num_readouts, C, length]`, at least float32."""
        precision = torch.promote_types(self.readout.dtype, torch.float32)
        step, decay = self.log_step.to(precision).exp(), self.log_decay.to(precision).exp()
        states = torch.complex(-decay, self.frequency.to(precision))
        readout = torch.view_as_complex(self.readout.to(precision).contiguous())
        exponent = step.unsqueeze(-1) * states
        # Steps start at 0.001, for which exp(d a) - 1 would cancel.
        weight = readout * torch.expm1(exponent) / states

        def powers(*places: int) -> Tensor:
            place = torch.arange(*places, device=states.device, dtype=precision)
            return (exponent.unsqueeze(-1) * place).exp()  # [C, S / 2, places]

        if length <= _NEAR:
            kernels = torch.einsum("kcn,cnj->kcj", weight, powers(length))
        else:
            # exp((m i + j) d a) = exp(m i d a) exp(j d a): powers of all places would be S / 2 times the kernels.
            far = weight.unsqueeze(-1) * powers(0, length, _NEAR)
            kernels = torch.einsum("kcni,cnj->kcij", far, powers(_NEAR)).flatten(2)[..., :length]
        # One state of each conjugate pair is stored: the other adds the conjugate, so the sum is twice the real part.
        return 2 * kernels.real


class S4DLayer(nn.Module):
    """A layer: `x + Drop(GLU(W Drop(GELU(K * u + D u)) + b))`, u the normed tokens, or the norm after the sum.

    As in the released code, both directions share states and steps, and each has its own read-out: `C (S + 1)`
    parameters and `C S` per direction, C for D, `2 C^2 + 2 C` for W and b, and those of the norm.

    Args:
        dim: channels C.
        norm: batch, layer or none.
        norm_position: pre (u = Norm(x)) or post (Norm after the sum, u = x).
        dropout: probability of Drop.
        bidirectional: also mix later tokens, with a second read-out.
        kernel: options of `DiagonalKernel`.

    Examples:
        >>> layer = S4DLayer(8, num_states=4)
        >>> layer(torch.randn(4, 8), DenseLayout.from_batch(torch.tensor([0, 0, 0, 1]))).shape
        torch.Size([4, 8])
    """

    def __init__(
        self,
        dim: int,
        norm: NormName = "batch",
        norm_position: NormPosition = "pre",
        dropout: float = 0.0,
        bidirectional: bool = True,
        **kernel: Any,
    ) -> None:
        super().__init__()
        check_choice("norm_position", norm_position, get_args(NormPosition))
        self.norm, self.pre, self.dropout = make_norm(norm, dim), norm_position == "pre", nn.Dropout(dropout)
        self.kernel = DiagonalKernel(dim, **kernel, num_readouts=1 + bidirectional)
        self.skip = nn.Parameter(torch.randn(dim))
        self.out_map = nn.Linear(dim, 2 * dim)

    def forward(self, x: Tensor, layout: DenseLayout) -> Tensor:
        """Return tokens `[T, dim]` after the layer."""
        u = self.norm(x) if self.pre else x
        # FFTs do not support bfloat16, and kernels are computed from complex numbers.
        with torch.autocast(x.device.type, enabled=False):
            precision = torch.promote_types(u.dtype, torch.float32)
            kernels = self.kernel(layout.max_nodes).unbind()
            parts = []
            for dense in layout.to_blocks(u.to(precision)):
                near = [kernel[:, : dense.shape[1]] for kernel in kernels]
                parts.append(long_convolution(dense, *near))
            y = layout.from_blocks(parts).to(u.dtype)
        y = self.dropout(F.gelu(y + self.skip * u))
        y = self.dropout(F.glu(self.out_map(y)))
        return x + y if self.pre else self.norm(x + y)

    def state_parameters(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Return the parameters of the states, and those of the steps."""
        return [self.kernel.log_decay, self.kernel.frequency], [self.kernel.log_step]


class S4D(SequenceModel):
    """S4 with diagonal states (Gu et al. 2022, arXiv 2206.11893); defaults are the authors' for Pathfinder.

    Each document is convolved separately, in both directions; places enter only through the order.

    Time and memory: `L (B N d^2 + B d N log N + m N d)`, `L (B N d + m N d)`.

    Args:
        spec: the benchmark's description; nodes have one coordinate, their place.
        hidden_dim: channels.
        num_layers: layers.
        num_states: states of a channel S, even.
        init: initial states, lin (S4D-Lin) or inv (S4D-Inv).
        bidirectional: also mix later tokens.
        norm: batch, layer or none.
        norm_position: pre or post.
        dropout: probability of dropping an entry, after the activation and after each layer.
        step_min, step_max: initial range of the discretisation's steps.
        state_lr_scale: learning rate of the states relative to the optimizer's; states and steps have no weight decay.
        step_lr_scale: learning rate of the steps relative to the optimizer's.
        tokens: categories, each with a learned vector, or values, see `TokenEncoder`.
        interaction: how two documents are joined, concatenate or NLI, see `PairReadout`.

    Raises:
        BadInput: the benchmark has no sequences, or an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = S4D(tiny_spec("graph-classification", "sequence"), hidden_dim=16, num_layers=2, num_states=4)
        >>> model(tiny_batch(model)).graph.shape  # 4 sequences
        torch.Size([4, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 256,
        num_layers: int = 6,
        num_states: int = 64,
        init: InitName = "lin",
        bidirectional: bool = True,
        norm: NormName = "batch",
        norm_position: NormPosition = "pre",
        dropout: float = 0.0,
        step_min: float = 0.001,
        step_max: float = 0.1,
        state_lr_scale: float = 0.25,
        step_lr_scale: float = 0.25,
        tokens: TokenName = "categories",
        interaction: InteractionName = "NLI",
    ) -> None:
        check_sequences(spec)
        check_choice("init", init, get_args(InitName))
        check_range("num_states", num_states, at_least=2, whole=True)
        if num_states % 2:
            raise BadInput(f"num_states must be even, for conjugate pairs, but got {num_states}.")
        scales = {"step_min": step_min, "state_lr_scale": state_lr_scale, "step_lr_scale": step_lr_scale}
        for option, value in scales.items():
            check_range(option, value, above=0, below=math.inf)
        check_range("step_max", step_max, at_least=step_min, below=math.inf)
        self.scales = (state_lr_scale, step_lr_scale)
        kernel = {"num_states": num_states, "init": init, "step_min": step_min, "step_max": step_max}
        layers: list[nn.Module] = [
            S4DLayer(hidden_dim, norm, norm_position, dropout, bidirectional, **kernel) for _ in range(num_layers)
        ]
        super().__init__(
            spec,
            hidden_dim,
            layers,
            make_norm(norm, hidden_dim) if norm_position == "pre" else None,
            tokens=tokens,
            positions="none",
            pooling="mean",
            interaction=interaction,
            pair_activation="gelu",
        )

    def parameter_groups(self) -> Sequence[dict[str, Any]]:
        """Group states and steps, each with its own learning rate and no weight decay."""
        pairs = [layer.state_parameters() for layer in self.layers if isinstance(layer, S4DLayer)]
        groups = [[parameter for pair in pairs for parameter in pair[kind]] for kind in (0, 1)]
        return [
            {"params": params, "lr_scale": scale, "weight_decay": 0.0}
            for params, scale in zip(groups, self.scales, strict=True)
        ]


def long_convolution(x: Tensor, past: Tensor, future: Tensor | None = None) -> Tensor:
    """Compute `y_i = sum_(j <= i) past_(i - j) x_j + sum_(j > i) future_(j - i - 1) x_j`, `[B, N, C]`.

    Both sums are one circular convolution over 2 N places, in O(N log N); zero padding of `x` has no effect.

    Args:
        x: sequences `[B, N, C]`, float32 or float64.
        past: weights of the token itself and of those before it `[C, N]`.
        future: weights of those after it, the nearest first `[C, N]`; None to omit them.

    Examples:
        >>> x = torch.tensor([1.0, 0.0, 2.0]).view(1, 3, 1)
        >>> long_convolution(x, torch.tensor([[1.0, 0.5, 0.25]])).flatten()
        tensor([1.0000, 0.5000, 2.2500])
    """
    length = x.shape[1]
    if not length:
        return x
    # Offset -m of a circular convolution is entry 2 N - m: weights of later tokens come last, the nearest at the end.
    kernel = torch.cat([past, torch.zeros_like(past) if future is None else future.flip(-1)], dim=-1)
    mixed = torch.fft.rfft(x, n=2 * length, dim=1) * torch.fft.rfft(kernel, n=2 * length).t()
    return torch.fft.irfft(mixed, n=2 * length, dim=1)[:, :length]
