"""Graph-Mamba: a Mamba block over the nodes sorted by degree, as the global branch of GPS.

Wang, Tsepa, Ma & Wang, "Graph-Mamba: Towards Long-Range Graph Sequence Modeling with Selective State Spaces", 2024,
arXiv 2402.00789. The block is that of Gu & Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces",
2023, arXiv 2312.00752, section 3, in plain PyTorch or with the kernels of `mamba_ssm`.

Legend: N nodes, a sequence is a graph or a bucket of a graph. In the block: B sequences, L positions, D inner width,
S state width, R rank of the step sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import BenchmarkSpec, GraphBatch, PositionalEncoder
from graphbench.contracts.kernels import in_program
from graphbench.errors import check_range
from graphbench.nn import Categorical, DenseLayout, GPSBackbone, LocalName, NormName, count_nodes
from graphbench_baselines.gps import fixed_uniforms

#: Initial range of step sizes, and the smallest one, as in the authors' code.
_FIRST_STEPS = (1e-3, 1e-1)
_SMALLEST_STEP = 1e-4


class MambaBranch(nn.Module):
    """A Mamba block that reads the nodes of each graph from the lowest degree to the highest.

    Later nodes see all earlier ones, so nodes with many edges come last. Among equal degrees the order is random: nodes
    are sorted by out-degree + noise, noise uniform in [0, 1). With several buckets each node is assigned to one of them
    at random, and each bucket of a graph is a separate sequence.

    Training samples a new order in every call. Evaluation averages over several orders, as in the authors' code, but
    uses the same ones every time: they depend on the node numbers within the graph, so a graph gets the same answer
    whatever else is in its batch.

    Args:
        dim: width of the nodes.
        num_orders: orders that evaluation averages over.
        num_buckets: buckets of each graph.
        seed: selects the orders of evaluation.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> batch = tiny_batch(GraphMamba(tiny_spec()))
        >>> MambaBranch(8)(torch.randn(23, 8), batch, DenseLayout.from_batch(batch)).shape
        torch.Size([23, 8])
    """

    def __init__(self, dim: int, num_orders: int = 5, num_buckets: int = 1, seed: int = 0) -> None:
        super().__init__()
        self.num_orders, self.num_buckets, self.seed = num_orders, num_buckets, seed
        self.mamba = MambaBlock(dim)

    def forward(self, x: Tensor, batch: GraphBatch, layout: DenseLayout) -> Tensor:
        """Return mixed nodes `[N, dim]`, without residual."""
        graph, num_nodes = layout.graph_of, x.shape[0]
        degree = count_nodes(batch.edge_index[0], num_nodes).float()
        if self.training:
            # float32 whatever the default dtype: in bfloat16 many nodes would draw the same number.
            drawn = torch.rand(num_nodes, 2, dtype=torch.float32, device=x.device)
            return self._read(x, graph, degree, drawn, layout)
        # Numbers depend on the place of a node in its graph, so that orders do not depend on the batch.
        rank = torch.arange(num_nodes, device=x.device) - layout.ptr[graph]
        numbers = fixed_uniforms(layout.max_nodes, 2 * self.num_orders, self.seed).to(x.device)[rank]
        orders = [self._read(x, graph, degree, part, layout) for part in numbers.split(2, dim=1)]
        return torch.stack(orders).mean(0)

    def _read(self, x: Tensor, graph: Tensor, degree: Tensor, numbers: Tensor, layout: DenseLayout) -> Tensor:
        """Run the block on one order of the nodes, given uniform numbers `[N, 2]` for noise and bucket."""
        sequence = graph
        if self.num_buckets > 1:
            sequence = graph * self.num_buckets + (numbers[:, 1] * self.num_buckets).long()
        # Two stable sorts: by sequence, and by noisy degree within each.
        order = (degree + numbers[:, 0]).argsort(stable=True)
        order = order[sequence[order].argsort(stable=True)]
        if self.num_buckets > 1:
            sizes = count_nodes(sequence, layout.num_graphs * self.num_buckets)
            ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
            at_hand = sizes.device.type == "cpu" and not torch.compiler.is_compiling()  # else a sync, or a graph break
            longest = int(sizes.max()) if at_hand else layout.max_nodes
            layout = DenseLayout.from_rows(sequence[order], ptr, longest, limit=0)
        # Padding comes after the nodes of a sequence, so a causal block does not see it.
        parts = layout.to_blocks(x[order])
        # All buckets of a block may be empty.
        mixed = layout.from_blocks([self.mamba(part) if part.shape[1] else part for part in parts])
        # Rows are in the order of the scan; `order` is a permutation, so all are set.
        return torch.empty_like(mixed).index_copy(0, order, mixed)


class GraphMamba(GPSBackbone):
    """Graph-Mamba (Wang et al. 2024); defaults are its Peptides-struct model without encodings.

    The layers are those of GPS around `MambaBranch`.

    Time and memory: `B L ((N + E) d^2 + N log N)`, `B L (N + E) d`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and edges.
        num_layers: layers.
        num_heads: heads of the local layer GAT.
        local_layer: GatedGCN, GINE, GCN, GAT or none.
        num_orders: orders of the nodes that evaluation averages over.
        num_buckets: random parts into which the nodes of a graph are split before sorting; the authors use three on
            graphs of several hundred nodes.
        dropout: probability of every dropout.
        norm: batch, layer or none.
        positional_encoders: outputs are concatenated to the node features, which get the remaining width.
        gate_encoder: positions whose distances gate the edges of GatedGCN (ES-LapPE); not added to node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is out of range, or options conflict with each other.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = GraphMamba(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 96,
        num_layers: int = 4,
        num_heads: int = 4,
        local_layer: LocalName = "GatedGCN",
        num_orders: int = 5,
        num_buckets: int = 1,
        dropout: float = 0.0,
        norm: NormName = "batch",
        positional_encoders: list[PositionalEncoder] | None = None,
        gate_encoder: PositionalEncoder | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        check_range("num_orders", num_orders, at_least=1, whole=True)
        check_range("num_buckets", num_buckets, at_least=1, whole=True)
        # With one seed, all layers would average over the same few orders in evaluation.
        seeds = count()
        super().__init__(
            spec,
            hidden_dim,
            num_layers,
            lambda: MambaBranch(hidden_dim, num_orders, num_buckets, next(seeds)),
            local_layer=local_layer,
            num_heads=num_heads,
            dropout=dropout,
            norm=norm,
            positional_encoders=positional_encoders or (),
            gate_encoder=gate_encoder,
            categorical=categorical,
        )

    def lay_out(self, batch: GraphBatch) -> DenseLayout:
        """Do not round padded sizes up: the recurrence takes a step for every padded node."""
        return DenseLayout.from_batch(batch, limit=0)


class MambaBlock(nn.Module):
    """A Mamba block on sequences `[B, L, dim]`; an output depends on its own and earlier positions.

        [u, z] = W_in x;   u' = SiLU(conv(u));   [t, B_l, C_l] = W_x u';   delta = softplus(W_t t + b_t)
        h_l = exp(delta_l A) * h_(l-1) + delta_l u'_l B_l,   y_l = C_l . h_l + D * u'_l,   A = -exp(A_log)
        out = W_out (y * SiLU(z))

    conv is causal, with one filter for each of the `expand dim` channels. Names and initial values are those of
    `mamba_ssm`, whose weights can be loaded. With inner width e = expand dim and R = ceil(dim / 16) there are
    `3 e dim + e (width + 1) + e (R + 2 S) + (R + 1) e + e S + e` parameters.

    Args:
        dim: width of the positions.
        state_dim: S.
        conv_width: filter length of conv.
        expand: ratio of inner width to dim.

    Examples:
        >>> MambaBlock(8)(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, dim: int, state_dim: int = 16, conv_width: int = 4, expand: int = 1) -> None:
        super().__init__()
        inner, self.rank, self.state_dim = expand * dim, math.ceil(dim / 16), state_dim
        self.in_proj = nn.Linear(dim, 2 * inner, bias=False)
        # Padded at both ends; `forward` drops the last outputs, and the rest is causal.
        self.conv1d = nn.Conv1d(inner, inner, conv_width, padding=conv_width - 1, groups=inner)
        self.x_proj = nn.Linear(inner, self.rank + 2 * state_dim, bias=False)
        self.dt_proj = nn.Linear(self.rank, inner)
        # A = -1, ..., -S in every channel (S4D-Real); the logarithm keeps it negative, so states decay.
        self.A_log = nn.Parameter(torch.arange(1.0, state_dim + 1).log().repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, dim, bias=False)
        nn.init.uniform_(self.dt_proj.weight, -(self.rank**-0.5), self.rank**-0.5)
        low, high = (math.log(step) for step in _FIRST_STEPS)
        steps = (torch.rand(inner) * (high - low) + low).exp().clamp(min=_SMALLEST_STEP)
        with torch.no_grad():
            # softplus(b_t) is the sampled step: log(e^s - 1), in a form that does not cancel at s = 0.001.
            self.dt_proj.bias.copy_(steps + (-torch.expm1(-steps)).log())

    def forward(self, x: Tensor) -> Tensor:
        """Return new positions `[B, L, dim]`, without residual or norm."""
        u, z = self.in_proj(x).chunk(2, dim=-1)
        if in_program():  # where the gradient of `F.conv1d` is for one length only
            weight, bias = self.conv1d.weight.squeeze(1), cast(Tensor, self.conv1d.bias)
            u = causal_convolution(u, weight.to(u.dtype), bias.to(u.dtype))
        else:  # in fewer operations
            u = self.conv1d(u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        u = F.silu(u)
        step, b, c = self.x_proj(u).split([self.rank, self.state_dim, self.state_dim], dim=-1)
        delta = F.softplus(self.dt_proj(step))
        y = selective_scan(u, delta, -self.A_log.exp(), b, c, self.D)
        out: Tensor = self.out_proj(y.to(x.dtype) * F.silu(z).to(x.dtype))
        return out


def causal_convolution(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolve each channel with its filter: `y_l = bias + sum_k weight_k x_(l - K + 1 + k)`, zero before the start.

    Args:
        x: `[B, L, D]`.
        weight: filters `[D, K]`.
        bias: `[D]`.

    Examples:
        >>> causal_convolution(torch.ones(1, 4, 1), torch.ones(1, 3), torch.zeros(1)).flatten()
        tensor([1., 2., 3., 3.])
    """
    length, width = x.shape[1], weight.shape[1]
    y = bias + weight[:, -1] * x
    for lag in range(1, width):
        shift = min(lag, length)
        y = y + F.pad(weight[:, width - 1 - lag] * x[:, : length - shift], (0, 0, shift, 0))
    return y


def selective_scan(u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """Compute `h_l = exp(delta_l a) h_(l-1) + delta_l u_l b_l`, `y_l = c_l . h_l + d u_l`, from `h_0 = 0`.

    On a CUDA device with the package `mamba_ssm` this uses its fused kernel, otherwise `linear_recurrence`, in at least
    float32 and with memory for `B L D S` numbers.

    Args:
        u: inputs `[B, L, D]`.
        delta: step sizes `[B, L, D]`, positive.
        a: `[D, S]`, negative.
        b: `[B, L, S]`.
        c: `[B, L, S]`.
        d: `[D]`.

    Returns:
        y `[B, L, D]`.

    Examples:
        >>> ones = torch.ones(1, 3, 1)
        >>> a, d = torch.tensor([[0.5]]).log(), torch.zeros(1)
        >>> selective_scan(ones, ones, a, ones, ones, d).flatten()  # 1, 1 + 1/2, 1 + 1/2 + 1/4
        tensor([1.0000, 1.5000, 1.7500])
    """
    # As in `mamba_ssm`: a state contains products of as many decays as the sequence is long.
    dtype = torch.promote_types(u.dtype, torch.float32)
    u, delta, a, b, c, d = (part.to(dtype) for part in (u, delta, a, b, c, d))
    kernel = _kernel_for(u)
    if kernel is not None:
        u, delta, b, c = (part.transpose(1, 2).contiguous() for part in (u, delta, b, c))
        return kernel(u, delta, a, b, c, d).transpose(1, 2)
    # Only A is discretised by the zero-order hold of Mamba's equation 4; B becomes delta B, as in the authors' code.
    decay, inputs = (delta.unsqueeze(-1) * a).exp(), (delta * u).unsqueeze(-1) * b.unsqueeze(2)  # [B, L, D, S]
    with torch.autocast(u.device.type, enabled=False):  # which would read the states in half precision
        return (linear_recurrence(decay, inputs) @ c.unsqueeze(-1)).squeeze(-1) + d * u


def linear_recurrence(decay: Tensor, inputs: Tensor) -> Tensor:
    """Solve `h_l = decay_l h_(l-1) + inputs_l` along dimension 1, from `h_0 = 0`; all of shape `[B, L, ...]`.

    Neighbours are merged into a sequence of half the length until one is left, and then positions in between are filled
    in: `log2 L` vectorised steps, about `3 L` products in total, without growth or division, so any decay is safe.
    Gradients are the same recurrence backwards; only `decay` and h are kept from the forward pass.

    Examples:
        >>> linear_recurrence(torch.full((1, 4), 2.0), torch.ones(1, 4))
        tensor([[ 1.,  3.,  7., 15.]])
    """
    result: Tensor = _Recurrence.apply(decay, inputs)
    return result


class _Recurrence(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(decay: Tensor, inputs: Tensor) -> Tensor:
        state: Tensor = _scan_as_one(decay, inputs) if in_program() else _scan(decay, inputs)
        return state

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Run it backwards: h_l has the gradient `g_l = grad_l + decay_(l+1) g_(l+1)`, decay_l has `g_l h_(l-1)`."""
        decay, state = ctx.saved_tensors
        later = torch.cat([decay[:, 1:], torch.zeros_like(decay[:, :1])], dim=1)
        grad_inputs = linear_recurrence(later.flip(1), grad.flip(1)).flip(1)
        before = torch.cat([torch.zeros_like(state[:, :1]), state[:, :-1]], dim=1)
        return grad_inputs * before, grad_inputs


def _scan(decay: Tensor, inputs: Tensor) -> Tensor:
    """Solve the recurrence of `linear_recurrence` outside of autograd."""
    length = inputs.shape[1]
    if length <= 1:
        return inputs.clone()
    # Two steps at once, from h_(2k-1) to h_(2k+1), are again a recurrence, of half the length.
    even, odd = slice(0, length - 1, 2), slice(1, None, 2)
    state = torch.empty_like(inputs)
    state[:, 0] = inputs[:, 0]
    state[:, 1::2] = _scan(decay[:, odd] * decay[:, even], inputs[:, odd] + decay[:, odd] * inputs[:, even])
    if length > 2:
        # h_2k is one step from h_(2k-1), which is known now.
        between = slice(2, None, 2)
        state[:, between] = inputs[:, between] + decay[:, between] * state[:, 1 : length - 1 : 2]
    return state


# The depth of `_scan` depends on L, and each L would need a recompilation: a program calls it as one operation.
_scan_as_one = torch.library.custom_op("graphbench_baselines::linear_recurrence", _scan, mutates_args=())
_scan_as_one.register_fake(lambda decay, inputs: torch.empty_like(inputs))


def _kernel_for(u: Tensor) -> Callable[..., Tensor] | None:
    """Return the kernel of `mamba_ssm` for a tensor, or None."""
    return _fused() if u.is_cuda and u.dtype == torch.float32 else None


@cache
def _fused() -> Callable[..., Tensor] | None:
    """Load the kernel of `mamba_ssm`, for `[B, D, L]` and `[B, S, L]`; None if the package is not installed."""
    if find_spec("mamba_ssm") is None:
        return None
    kernel: Callable[..., Tensor] = import_module("mamba_ssm.ops.selective_scan_interface").selective_scan_fn
    return kernel
