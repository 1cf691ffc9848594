"""PNA: several aggregators of messages, scaled by the logarithm of the degree.

Corso, Cavalleri, Beaini, Lio & Velickovic, "Principal Neighbourhood Aggregation for Graph Nets", NeurIPS 2020, arXiv
2004.05718.

Legend: N nodes, E edges, T towers, d width of a tower; node i receives from node j along edge j -> i.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import scatter

from graphbench import Architecture, BenchmarkSpec, GraphBatch, PositionalEncoder, Representation
from graphbench.contracts import NodeState, NodeStep
from graphbench.errors import BadInput, check_divides, check_range
from graphbench.nn import Categorical, EdgeEncoder, NodeEncoder, NormName, count_nodes, make_norm

#: Added to variances before the root, as in the paper.
_EPSILON = 1e-5


def aggregate(messages: Tensor, target: Tensor, num_received: Tensor) -> Tensor:
    """Return `[mean, max, min, std]` of the messages to each node; zeros for nodes without messages.

    The deviation is `sqrt(ReLU(mean(m^2) - mean(m)^2) + 1e-5)`, so it is not 0 for equal messages.

    Args:
        messages: `[E, ..., d]`.
        target: target node of each message `[E]`.
        num_received: number of messages to each node `[N]`, int64.

    Returns:
        `[N, ..., 4 d]`.

    Examples:
        >>> aggregate(torch.tensor([[1.0], [3.0]]), torch.tensor([1, 1]), torch.tensor([0, 2])).round(decimals=3)
        tensor([[0., 0., 0., 0.],
                [2., 3., 1., 1.]])
    """
    size = num_received.shape[0]
    counts = num_received.view(-1, *[1] * (messages.dim() - 1))
    # mean(m^2) - mean(m)^2 cancels; in half precision little would be left of a small variance.
    precise = messages.to(torch.promote_types(messages.dtype, torch.float32))
    mean = scatter(precise, target, 0, size, reduce="sum") / counts.clamp(min=1)
    squares = scatter(precise.square(), target, 0, size, reduce="sum") / counts.clamp(min=1)
    # Rounding may make the variance negative, and its root NaN; at zero the gradient would be infinite.
    deviation = ((squares - mean.square()).relu() + _EPSILON).sqrt().where(counts > 0, 0.0)
    largest, smallest = (scatter(messages, target, 0, size, reduce=name) for name in ("max", "min"))
    return torch.cat([mean.to(messages.dtype), largest, smallest, deviation.to(messages.dtype)], dim=-1)


class TowerMap(nn.Module):
    """A linear map for each tower, `T (d_in d_out + d_out)` parameters; initially tiny, as in the authors' code.

    Args:
        num_towers: T.
        in_dim: d_in.
        out_dim: d_out.

    Examples:
        >>> TowerMap(2, 8, 3)(torch.randn(5, 2, 8)).shape
        torch.Size([5, 2, 3])
    """

    def __init__(self, num_towers: int, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_towers, out_dim, in_dim))
        self.bias = nn.Parameter(torch.zeros(num_towers, out_dim))
        for weight in self.weight.data:
            # Separately for each tower: Xavier's fans are those of one map.
            nn.init.xavier_uniform_(weight, gain=1 / in_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map rows `[rows, T, d_in]` to `[rows, T, d_out]`."""
        return torch.einsum("rti,toi->rto", x, self.weight) + self.bias


@dataclass(frozen=True)
class Neighbourhoods:
    """The parts of a batch that all layers read in addition to its vectors.

    Args:
        edge_index: sources and targets `[2, E]`.
        num_received: number of edges into each node `[N]`.
        scales: factors of each node `[N, S]`.
        per_size: 1 / sqrt(nodes of the graph) of each node `[N, 1]`.
    """

    edge_index: Tensor
    num_received: Tensor
    scales: Tensor
    per_size: Tensor


class PNALayer(nn.Module):
    """A PNA layer; every tower has its own maps M and U.

        m_ij = M [x_j, x_i, e_ij]
        a_i  = [mean, max, min, std]_j m_ij
        y_i  = U [x_i, a_i, a_i log(d_i + 1) / delta, a_i delta / log(d_i + 1)]
        x'_i = x_i + LeakyReLU(W Drop(Norm(y_i / sqrt(n))) + b)

    d_i is the in-degree of node i, delta the mean of log(d + 1) over the nodes of the training graphs, n the number of
    nodes of the graph. If the width changes there is no residual.

    Args:
        in_dim: input width of the nodes.
        out_dim: output width.
        edge_dim: width of the edges; 0 if messages read none.
        num_towers: T.
        divide_input: each tower reads its own part of x, of width in_dim / T; False: all of it.
        num_scales: 3, or 1 for a_i only.
        dropout: probability.
        norm: batch, layer or none.
        residual: add x if the width does not change.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        edge_dim: int,
        num_towers: int,
        divide_input: bool,
        num_scales: int,
        dropout: float,
        norm: NormName,
        residual: bool,
    ) -> None:
        super().__init__()
        self.num_towers, self.divide_input, self.residual = num_towers, divide_input, residual and in_dim == out_dim
        width = in_dim // num_towers if divide_input else in_dim
        self.message = TowerMap(num_towers, 2 * width + edge_dim, width)
        self.update = TowerMap(num_towers, (4 * num_scales + 1) * width, out_dim // num_towers)
        self.norm = make_norm(norm, out_dim)
        self.dropout = nn.Dropout(dropout)
        self.mix = nn.Linear(out_dim, out_dim)
        nn.init.xavier_uniform_(self.mix.weight, gain=1 / out_dim)
        nn.init.zeros_(self.mix.bias)

    def forward(self, x: Tensor, edge: Tensor | None, around: Neighbourhoods) -> Tensor:
        """Return nodes `[N, out_dim]` of nodes `[N, in_dim]` and edges `[E, edge_dim]`."""
        source, target = around.edge_index
        part = x.unflatten(1, (self.num_towers, -1)) if self.divide_input else _to_all(x, self.num_towers)
        ends = [part.index_select(0, source), part.index_select(0, target)]
        message = self.message(torch.cat(ends if edge is None else [*ends, _to_all(edge, self.num_towers)], dim=-1))
        received = aggregate(message, target, around.num_received)
        scaled = [received * scale[:, None, None] for scale in around.scales.unbind(1)]
        y = self.update(torch.cat([part, *scaled], dim=-1)).flatten(1) * around.per_size
        new = F.leaky_relu(self.mix(self.dropout(self.norm(y))))
        return x + new if self.residual else new


def _to_all(rows: Tensor, num_towers: int) -> Tensor:
    """Give rows `[rows, d]` to every tower: `[rows, T, d]`."""
    return rows.unsqueeze(1).expand(-1, num_towers, -1)


class PNA(Architecture):
    """Principal Neighbourhood Aggregation (Corso et al., NeurIPS 2020); defaults are its ZINC model that reads bonds.

    Time and memory: `B L (N + E) d^2`, `B L (N + E) d`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the nodes.
        num_layers: layers.
        out_dim: width after the last layer; None: `hidden_dim`.
        num_towers: towers of each layer; must divide `hidden_dim` and `out_dim`.
        edge_features: messages read the features of edges.
        edge_features_dim: width of the encoded edge features.
        divide_input: each tower of the first layers reads its own part of a node; False: all of it.
        divide_last_input: the same for the last layer.
        scalers: scale aggregates by the logarithm of the degree; False is the paper's ablation.
        mean_log_degree: delta, the mean of log(d + 1) over the training nodes; None: that of the mean degree of the
            benchmark's description.
        dropout: probability after the norm.
        norm: batch, layer or none.
        residual: add the input of each layer to its output.
        positional_encoders: outputs are concatenated to the node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: towers do not divide a width, or `mean_log_degree` is missing and the description does not give it.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = PNA(tiny_spec(), hidden_dim=20, num_layers=2, out_dim=10)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 10])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 70,
        num_layers: int = 4,
        out_dim: int | None = 60,
        num_towers: int = 5,
        edge_features: bool = True,
        edge_features_dim: int = 50,
        divide_input: bool = True,
        divide_last_input: bool = True,
        scalers: bool = True,
        mean_log_degree: float | None = None,
        dropout: float = 0.0,
        norm: NormName = "batch",
        residual: bool = True,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "normal",
    ) -> None:
        out_dim = hidden_dim if out_dim is None else out_dim
        check_range("num_towers", num_towers, at_least=1, whole=True)
        check_range("edge_features_dim", edge_features_dim, at_least=1, whole=True)
        for name, width in (("hidden_dim", hidden_dim), ("out_dim", out_dim)):
            check_range(name, width, at_least=1, whole=True)
            check_divides("num_towers", num_towers, name, width)
        super().__init__(spec, out_dim)
        self.mean_log_degree = _mean_log_degree(spec) if mean_log_degree is None else mean_log_degree
        check_range("mean_log_degree", self.mean_log_degree, above=0)
        self.node_encoder = NodeEncoder(spec, hidden_dim, positional_encoders or (), categorical)
        reads_edges = edge_features and bool(spec.edge.vocabularies or spec.edge.dense)
        self.edge_encoder = EdgeEncoder(spec, edge_features_dim, categorical) if reads_edges else None
        self.num_scales = 3 if scalers else 1
        self.layers = nn.ModuleList()
        for number in range(num_layers):
            width, divided = (hidden_dim, divide_input) if number < num_layers - 1 else (out_dim, divide_last_input)
            options = num_towers, divided, self.num_scales, dropout, norm, residual
            self.layers.append(PNALayer(hidden_dim, width, edge_features_dim if reads_edges else 0, *options))

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[N, out_dim]`."""
        x = self.node_encoder(batch)
        edge = None if self.edge_encoder is None else self.edge_encoder(batch)
        around = self._neighbourhoods(batch, x)
        for layer in self.layers:
            x = layer(x, edge, around)
        return Representation(node=x)

    def node_steps(self) -> Sequence[NodeStep]:
        """Return steps: encode nodes, then one step for each layer."""
        return [
            lambda batch, _: {"x": self.node_encoder(batch)},
            *(partial(self._step, layer) for layer in self.layers),
        ]

    def _step(self, layer: nn.Module, batch: GraphBatch, state: NodeState) -> NodeState:
        edge = None if self.edge_encoder is None else self.edge_encoder(batch)
        return {"x": layer(state["x"], edge, self._neighbourhoods(batch, state["x"]))}

    def _neighbourhoods(self, batch: GraphBatch, x: Tensor) -> Neighbourhoods:
        received = count_nodes(batch.edge_index[1], x.shape[0])
        # A node without messages has aggregates of 0, whatever the scale.
        ratio = (received.clamp(min=1).to(torch.promote_types(x.dtype, torch.float32)) + 1).log() / self.mean_log_degree
        scales = torch.stack([torch.ones_like(ratio), ratio, 1 / ratio][: self.num_scales], dim=1)
        # The graph size norm of "Benchmarking Graph Neural Networks", on whose code the authors built.
        per_size = batch.ptr.diff().to(ratio.dtype).rsqrt()[batch.batch, None]
        return Neighbourhoods(batch.edge_index, received, scales.to(x.dtype), per_size.to(x.dtype))


def _mean_log_degree(spec: BenchmarkSpec) -> float:
    if not spec.mean_nodes or not spec.mean_edges:
        raise BadInput(
            f"{spec.name} does not give the mean numbers of nodes and edges: set mean_log_degree, the mean of "
            "log(degree + 1) over the nodes of the training graphs."
        )
    # log is concave, so this is at least the mean of log(d + 1), which the description does not contain.
    return math.log(spec.mean_edges / spec.mean_nodes + 1)
