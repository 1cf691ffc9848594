"""Polynormer: local attention, then linear attention over all nodes; both multiply features with each other.

Deng et al., "Polynormer: Polynomial-Expressive Graph Transformer in Linear Time", ICLR 2024, arXiv 2403.01232.

Legend: T nodes of all graphs, H heads, d head width, dim = H d.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv
from torch_geometric.utils import add_remaining_self_loops, scatter

from graphbench import Architecture, BenchmarkSpec, GraphBatch, LayerTrace, PositionalEncoder, Representation, Traced
from graphbench.errors import check_divides, check_range
from graphbench.nn import DenseLayout
from graphbench_large_graphs.inputs import InputFeatures
from graphbench_large_graphs.linear import attention_matrices, linear_attention


class LearnedShare(nn.Module):
    """One learned number per channel, `dim` parameters: initialised with a value, or xavier-normal with a sigmoid.

    Args:
        dim: channels.
        start: initial value; None: logistic function of a number near zero.

    Examples:
        >>> LearnedShare(3, start=0.5)().detach()
        tensor([0.5000, 0.5000, 0.5000])
    """

    def __init__(self, dim: int, start: float | None = None) -> None:
        super().__init__()
        self.start = start
        self.weight = nn.Parameter(torch.empty(1, dim))
        if start is None:
            nn.init.xavier_normal_(self.weight)
        else:
            nn.init.constant_(self.weight, start)

    def forward(self) -> Tensor:
        """Return the numbers `[dim]`."""
        return (self.weight.sigmoid() if self.start is None else self.weight).flatten()


class LocalLayer(nn.Module):
    """`y = Drop(act(GAT(x) + W x))`, then `(1 - b) LN(act(W' x) * y) + b y`, b learned; optionally on LN(x).

    Args:
        dim: width of the nodes, over all heads.
        num_heads: heads H.
        dropout: probability of dropout.
        beta: initial b, see `LearnedShare`.
        relu: act is ReLU; False: the identity.
        pre_norm: layer norm of the input.
    """

    def __init__(
        self, dim: int, num_heads: int, dropout: float, beta: float | None, relu: bool, pre_norm: bool
    ) -> None:
        super().__init__()
        self.pre_norm = nn.LayerNorm(dim) if pre_norm else nn.Identity()
        self.gate = nn.Linear(dim, dim)
        # Without bias: that of `linear` is added to the same sum.
        self.conv = GATConv(dim, dim // num_heads, num_heads, add_self_loops=False, bias=False)
        self.linear = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.beta = LearnedShare(dim, beta)
        self.dropout, self.relu = nn.Dropout(dropout), relu

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return nodes `[T, dim]`; the edges must contain every self-loop."""
        x = self.pre_norm(x)
        # gate * y doubles the degree in x, with attention weights as constants: L layers have degree 2^L.
        gate, y = self.gate(x), self.conv(x, edge_index) + self.linear(x)
        if self.relu:
            gate, y = gate.relu(), y.relu()
        y = self.dropout(y)
        beta = self.beta()
        return (1 - beta) * self.norm(gate * y) + beta * y


def logistic_features(q: Tensor, k: Tensor, layout: DenseLayout) -> tuple[Tensor, Tensor]:
    """Compute features s(q) and s(k), s logistic, up to factors that cancel in `linear_attention`.

    In float32 s(q) . s(k) is 0 for all keys if logits are below -52, and the mean over them is 0 / 0. With c_m the
    largest `log s(k_jm)` of a graph and `a_i = max_m (log s(q_im) + c_m)` the features are

        f(q)_im = exp(log s(q_im) + c_m - a_i),      f(k)_jm = exp(log s(k_jm) - c_m),

    so `f(q_i) . f(k_j) = exp(-a_i) s(q_i) . s(k_j)`, and each query has a feature that is 1 for itself and for some
    key. The factors cancel, so they get no gradient.

    Args:
        q: logits of queries `[T, H, m]`; may be `k` itself.
        k: logits of keys `[T, H, m]`.
        layout: layout of the nodes in padded graphs.

    Returns:
        Both features `[T, H, m]`, in float32 at least.

    Examples:
        >>> layout = DenseLayout.from_batch(torch.tensor([0, 0, 1]))
        >>> logits = torch.tensor([-500.0, -501.0, 0.0]).view(3, 1, 1)
        >>> [features.flatten() for features in logistic_features(logits, logits, layout)]
        [tensor([1., 1., 1.]), tensor([1.0000, 0.3679, 1.0000])]
    """
    with torch.autocast(k.device.type, enabled=False):
        precision = torch.promote_types(k.dtype, torch.float32)
        keys = F.logsigmoid(k.to(precision))
        queries = keys if q is k else F.logsigmoid(q.to(precision))
        graph_of = layout.graph_of
        largest = scatter(keys.detach(), graph_of, 0, layout.num_graphs, reduce="max")[graph_of]
        queries = queries + largest
        return (queries - queries.detach().amax(-1, keepdim=True)).exp(), (keys - largest).exp()


class GlobalLayer(Traced):
    """`LN(sum_j w_ij V x_j / sum_j w_ij) * (W x_i + b)` with `w_ij = s(Q x_i) . s(K x_j)`, s the logistic function.

    Args:
        dim: width of the nodes, over all heads.
        num_heads: heads H.
        beta: initial b, see `LearnedShare`.
        qk_shared: Q is K.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> batch = tiny_table(tiny_spec(), sizes=[3, 4]).batch([0, 1])
        >>> GlobalLayer(8, num_heads=2)(torch.randn(7, 8), batch, DenseLayout.from_batch(batch)).shape
        torch.Size([7, 8])
    """

    def __init__(self, dim: int, num_heads: int, beta: float | None = None, qk_shared: bool = True) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.gate = nn.Linear(dim, dim)
        self.query_map = None if qk_shared else nn.Linear(dim, dim)
        self.key_map = nn.Linear(dim, dim)
        self.value_map = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.beta = LearnedShare(dim, beta)

    def forward(self, x: Tensor, batch: GraphBatch, layout: DenseLayout) -> Tensor:
        """Return nodes `[T, dim]`."""
        k = self.key_map(x).unflatten(-1, (self.num_heads, -1))
        q = k if self.query_map is None else self.query_map(x).unflatten(-1, (self.num_heads, -1))
        q, k = logistic_features(q, k, layout)
        v = self.value_map(x).unflatten(-1, (self.num_heads, -1))
        # The gate's bias and beta add up to one learned number per channel; the released code has both.
        out: Tensor = self.norm(linear_attention(q, k, v, layout).flatten(1)) * (self.gate(x) + self.beta())
        self.trace(lambda: self._record(x, q, k, batch, layout, out))
        return out

    @torch.no_grad()
    def _record(
        self, x: Tensor, q: Tensor, k: Tensor, batch: GraphBatch, layout: DenseLayout, out: Tensor
    ) -> LayerTrace:
        return LayerTrace(
            tokens=out.detach(),
            batch=batch.batch,
            attention=attention_matrices(q, k, layout),
            num_nodes=batch.ptr.diff(),
            input=x,
        )


class Polynormer(Architecture):
    """Polynormer (Deng et al., ICLR 2024), local layers and then global ones; defaults are for roman-empire.

    `x = Drop(W Drop_in(features))`; the outputs of all local layers are summed; `x = LN(sum)` goes through the global
    layers, each `Drop(act(O layer(x)))` with a shared O. With `global_layers=0` the sum itself is the representation:
    the first stage of the published training. The second starts from such a run, given by `--model.init_from`.

    Time and memory: `B L (N d^2 + (N + E) (d + H))`, `B L ((N + E) (d + H) + d^2)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the nodes, over all heads.
        num_layers: local layers, see `LocalLayer`.
        global_layers: global layers, see `GlobalLayer`; 0 for the first stage.
        num_heads: heads of both; must divide `hidden_dim`.
        input_dropout: probability of dropping an input feature.
        dropout: probability of dropout before and in the local layers.
        global_dropout: probability of dropout after the global layers.
        beta: initial learned shares of both kinds of layers; None: near one half, as a sigmoid.
        relu: act is ReLU (Polynormer-r); False: no activation, so the network is a polynomial except for its norms.
        pre_norm: layer norm of the input of every local layer.
        qk_shared: queries are the keys in the global layers.
        positional_encoders: their outputs are concatenated to the node features.

    Raises:
        BadInput: an option is out of range, or `num_heads` does not divide `hidden_dim`.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = Polynormer(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 512,
        num_layers: int = 10,
        global_layers: int = 2,
        num_heads: int = 8,
        input_dropout: float = 0.15,
        dropout: float = 0.3,
        global_dropout: float = 0.5,
        beta: float | None = 0.5,
        relu: bool = True,
        pre_norm: bool = False,
        qk_shared: bool = True,
        positional_encoders: list[PositionalEncoder] | None = None,
    ) -> None:
        super().__init__(spec, hidden_dim)
        check_range("global_layers", global_layers, at_least=0, whole=True)
        check_divides("num_heads", num_heads, "hidden_dim", hidden_dim)
        if beta is not None:
            check_range("beta", beta, at_least=0, at_most=1)
        self.inputs = InputFeatures(spec, positional_encoders or ())
        self.input_map = nn.Linear(self.inputs.dim, hidden_dim)
        self.local_layers = nn.ModuleList(
            LocalLayer(hidden_dim, num_heads, dropout, beta, relu, pre_norm) for _ in range(num_layers)
        )
        self.global_layers = nn.ModuleList(
            GlobalLayer(hidden_dim, num_heads, beta, qk_shared) for _ in range(global_layers)
        )
        self.norm = nn.LayerNorm(hidden_dim) if global_layers else None
        self.global_out = nn.Linear(hidden_dim, hidden_dim) if global_layers else None
        self.input_dropout, self.dropout = nn.Dropout(input_dropout), nn.Dropout(dropout)
        self.global_dropout, self.relu = nn.Dropout(global_dropout), relu

    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """Give every node one self-loop."""
        return {"looped_edges": add_remaining_self_loops(batch.edge_index, num_nodes=batch.num_nodes)[0]}

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]`."""
        x = self.input_dropout(self.inputs(batch, self.input_map.weight.dtype))
        x = self.dropout(self.input_map(x))
        # Not x itself: the encoded features reach the sum only through the first layer.
        total = torch.zeros_like(x)
        for layer in self.local_layers:
            x = layer(x, batch.looped_edges)
            total = total + x
        if self.norm is None or self.global_out is None:
            return Representation(node=total)
        layout, x = DenseLayout.from_batch(batch), self.norm(total)
        for layer in self.global_layers:
            x = self.global_out(layer(x, batch, layout))
            x = self.global_dropout(x.relu() if self.relu else x)
        return Representation(node=x)
