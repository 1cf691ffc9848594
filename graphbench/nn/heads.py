"""Prediction heads, which map representations of graphs, nodes or edges to the outputs of a specification."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool

from graphbench.contracts import BenchmarkSpec, GraphBatch, Representation
from graphbench.contracts.table import GRAPH_DENSE
from graphbench.errors import BadInput, check_choice, check_range
from graphbench.nn.features import EdgeEncoder
from graphbench.nn.feed_forward import ACTIVATIONS, Activation

PoolingName = Literal["mean", "add", "max"]
HeadWidth = Literal["constant", "halving", "output"]
EdgeInput = Literal["all", "ends"]
_POOLS = {"mean": global_mean_pool, "add": global_add_pool, "max": global_max_pool}


@dataclass(frozen=True)
class HeadConfig:
    """Options of a prediction head.

    Args:
        num_layers: linear maps k.
        width: width of the hidden layers: "constant" (the representation's), "halving" (d, d/2, d/4, ...; GraphGPS on
            ZINC and PCQM4Mv2) or "output" (the number of outputs).
        pooling: how nodes are pooled to a graph: mean, add or max.
        l2_normalize: scale every hidden row to length 1, as GraphGym's heads do.
        dropout: probability on hidden layers.
        activation: of hidden layers, relu or gelu.
        edge_input: input of edge predictions: only the two "ends", or "all" that is known about an edge.
        symmetric: predict the same for both directions of an edge; None: if the benchmark's targets are the same.

    Examples:
        >>> [tuple(layer.weight.shape) for layer in HeadConfig(num_layers=3, width="halving").mlp(16, 1).layers]
        [(8, 16), (4, 8), (1, 4)]
    """

    num_layers: int = 2
    width: HeadWidth = "constant"
    pooling: PoolingName = "mean"
    l2_normalize: bool = False
    dropout: float = 0.0
    activation: Activation = "relu"
    edge_input: EdgeInput = "all"
    symmetric: bool | None = None

    def mlp(self, dim: int, output_dim: int, beside: int = 0) -> MLPHead:
        """Create a head with these options from width `dim`, and `beside` further inputs, to `output_dim` numbers."""
        options = (self.num_layers, self.width, self.l2_normalize, self.dropout, self.activation)
        return MLPHead(dim, output_dim, *options, beside=beside)


class MLPHead(nn.Module):
    """k linear maps with bias; hidden ones are followed by ReLU or GELU (then row-wise L2 normalisation) and dropout.

    Parameters at constant width: `(k - 1)(dim^2 + dim) + (dim + 1) output_dim`. Options are those of `HeadConfig`;
    `beside` is the number of inputs in addition to `dim`; the width of hidden layers does not depend on it.

    Raises:
        BadInput: there is no layer, halving leaves a width of 0, or `width` or `activation` is unknown.

    Examples:
        >>> import torch
        >>> MLPHead(8, 3)(torch.randn(5, 8)).shape
        torch.Size([5, 3])
    """

    def __init__(
        self,
        dim: int,
        output_dim: int,
        num_layers: int = 2,
        width: HeadWidth = "constant",
        l2_normalize: bool = False,
        dropout: float = 0.0,
        activation: Activation = "relu",
        beside: int = 0,
    ) -> None:
        super().__init__()
        check_choice("activation", activation, ACTIVATIONS)
        widths = [dim + beside, *_hidden_widths(dim, output_dim, num_layers, width), output_dim]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.l2_normalize = l2_normalize
        check_range("dropout of a head", dropout, at_least=0, below=1)
        self.dropout = nn.Dropout(dropout)
        self.activation: Activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Map rows `[num_rows, dim + beside]` to predictions `[num_rows, output_dim]`."""
        for layer in self.layers[:-1]:
            x = ACTIVATIONS[self.activation](layer(x))
            if self.l2_normalize:
                x = F.normalize(x, dim=-1)
            x = self.dropout(x)
        return self.layers[-1](x)


def _hidden_widths(dim: int, output_dim: int, num_layers: int, width: HeadWidth) -> list[int]:
    check_range("num_layers of a head", num_layers, at_least=1, whole=True)
    check_choice("width of a head", width, get_args(HeadWidth))
    if width != "halving":
        return [dim if width == "constant" else output_dim] * (num_layers - 1)
    widths = [dim // 2**i for i in range(1, num_layers)]
    if 0 in widths:
        raise BadInput(f"A head of {num_layers} layers halves a width of {dim} to 0; use fewer layers.")
    return widths


class DotProductHead(nn.Module):
    """Score node pairs by the dot product of the two ends after k linear maps of constant width.

    Parameters: `k (dim^2 + dim)`.

    Examples:
        >>> import torch
        >>> DotProductHead(8)(torch.randn(5, 8), torch.tensor([[0, 1], [2, 3]])).shape
        torch.Size([2])
    """

    def __init__(self, dim: int, num_layers: int = 1, l2_normalize: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.mlp = MLPHead(dim, dim, num_layers, l2_normalize=l2_normalize, dropout=dropout)

    def forward(self, node: Tensor, pairs: Tensor) -> Tensor:
        """Return scores `[num_pairs]` of `pairs [2, num_pairs]` of nodes `[num_nodes, dim]`."""
        # One network for both ends, so that (i, j) and (j, i) have equal scores.
        end = self.mlp(node)
        return (end.index_select(0, pairs[0]) * end.index_select(0, pairs[1])).sum(-1)


class Pooling(nn.Module):
    """Pool nodes to graphs by mean, sum ("add") or maximum ("max").

    Raises:
        BadInput: the name is unknown.

    Examples:
        >>> import torch
        >>> Pooling("add")(torch.ones(3, 2), torch.tensor([0, 0, 1]), num_graphs=2)
        tensor([[2., 2.],
                [1., 1.]])
    """

    def __init__(self, name: PoolingName = "mean") -> None:
        super().__init__()
        check_choice("pooling", name, _POOLS)
        self.name = name

    def forward(self, node: Tensor, graph_of: Tensor, num_graphs: int) -> Tensor:
        """Pool nodes `[num_nodes, dim]`, which belong to graphs `graph_of [num_nodes]`, to `[num_graphs, dim]`."""
        # In float32: on GPUs and in compiled programs bfloat16 counts only to 256.
        precise = node if self.name == "max" else node.to(torch.promote_types(node.dtype, torch.float32))
        # Without `size` PyG would read the last graph's number from the device, and miss empty graphs at the end.
        return _POOLS[self.name](precise, graph_of, size=num_graphs).to(node.dtype)

    def extra_repr(self) -> str:
        """Return the name, for `print(module)`."""
        return self.name


class ScaledNumbers(nn.Module):
    """Scale numbers of each graph: `(x - mean) / deviation` of the training rows, 0 where unknown or constant.

    Both are buffers, so checkpoints contain them. Values beyond 10 deviations are clamped to 10: a descriptor far from
    all training values would otherwise dominate the prediction.

    Examples:
        >>> import torch
        >>> numbers = ScaledNumbers(2)
        >>> numbers.measure(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        >>> numbers(torch.tensor([[4.0, 9.0], [float("nan"), 5.0]]))
        tensor([[2., 0.],
                [0., 0.]])
    """

    mean: Tensor
    rate: Tensor
    _FARTHEST = 10.0
    _MOST_AT_ONCE = 1 << 24  # values measured at once, which float64 makes several copies of

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("rate", torch.ones(width))

    def measure(self, values: Tensor) -> None:
        """Compute mean and standard deviation of the known values in each training column `[rows, width]`."""
        size = max(1, self._MOST_AT_ONCE // max(1, values.shape[1]))

        def total(of: Callable[[Tensor], Tensor]) -> Tensor:
            # float32 loses a deviation that is small relative to the mean
            return torch.stack([of(part.double()).sum(0) for part in values.split(size)]).sum(0)

        count = total(lambda part: ~part.isnan()).clamp(min=1)
        mean = total(lambda part: part.nan_to_num(0.0)) / count
        deviation = (total(lambda part: (part - mean).nan_to_num(0.0).square()) / count).sqrt()
        varies = deviation > 1e-6 * mean.abs()  # less is rounding error of a constant in float32
        self.mean.copy_(mean)
        self.rate.copy_(torch.where(varies, 1 / deviation, 0.0))

    def forward(self, values: Tensor) -> Tensor:
        """Return scaled values `[num_graphs, width]`."""
        scaled = (values - self.mean) * self.rate
        return torch.nan_to_num(scaled, nan=0.0).clamp(-self._FARTHEST, self._FARTHEST)


class GraphHead(nn.Module):
    """Predict for graphs: from their representation if the architecture has one, else from pooled nodes.

    Numbers of the graph (`BenchmarkSpec.graph`), `beside` of them, are scaled and concatenated to the representation.

    Examples:
        >>> import torch
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> batch = tiny_table(tiny_spec(), sizes=[3, 4]).batch([0, 1])
        >>> GraphHead(8, 2, HeadConfig())(Representation(node=torch.randn(7, 8)), batch).shape
        torch.Size([2, 2])
    """

    def __init__(self, dim: int, output_dim: int, config: HeadConfig, beside: int = 0) -> None:
        super().__init__()
        self.pooling = Pooling(config.pooling)
        self.numbers = ScaledNumbers(beside) if beside else None
        self.mlp = config.mlp(dim, output_dim, beside)

    def forward(self, representation: Representation, batch: GraphBatch) -> Tensor:
        """Return predictions `[num_graphs, output_dim]`."""
        # An architecture with a graph token has already pooled the graph.
        graph = representation.graph
        if graph is None:
            graph = self.pooling(representation.node, batch.batch, batch.num_graphs)
        if self.numbers is not None:
            # Buffers stay in float32 even if autocast computes the representation in half precision.
            graph = torch.cat([graph, self.numbers(batch[GRAPH_DENSE]).to(graph.dtype)], 1)
        return self.mlp(graph)


class NodeHead(nn.Module):
    """Predict for nodes.

    Examples:
        >>> import torch
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> batch = tiny_table(tiny_spec(), sizes=[3, 4]).batch([0, 1])
        >>> NodeHead(8, 2, HeadConfig())(Representation(node=torch.randn(7, 8)), batch).shape
        torch.Size([7, 2])
    """

    def __init__(self, dim: int, output_dim: int, config: HeadConfig) -> None:
        super().__init__()
        self.mlp = config.mlp(dim, output_dim)

    def forward(self, representation: Representation, batch: GraphBatch) -> Tensor:
        """Return predictions `[num_nodes, output_dim]`."""
        return self.mlp(representation.node)


class EdgeHead(nn.Module):
    """Predict for directed edges i -> j with an MLP f of `[x_i, x_j, e_ij]`.

    e_ij is the architecture's representation of the edge if it has one, else its encoded features, else nothing;
    with `edge_input="ends"` it is omitted, as in the edge predictions of "Benchmarking Graph Neural Networks".

    Symmetric predictions are `(f(x_i, x_j, m) + f(x_j, x_i, m)) / 2`, with m the mean of e_ij and the edge j -> i (the
    mean of such edges if there are several; m = e_ij if there is none). They are equal for i -> j and j -> i in a
    graph without parallel edges.

    Args:
        dim: width of nodes.
        output_dim: numbers per edge.
        config: options of the head.
        spec: features of edges, and whether both directions of an edge share one target (`extra["edges"]`).
        edge_dim: width of the architecture's edge representation; 0 if it has none.

    Raises:
        BadInput: `edge_input` is unknown.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> spec = tiny_spec("edge-regression")
        >>> batch = tiny_table(spec, sizes=[3, 4]).batch([0, 1])
        >>> head = EdgeHead(8, 2, HeadConfig(symmetric=True), spec)
        >>> out = head(Representation(node=torch.randn(7, 8)), batch)
        >>> out.shape == (batch.edge_index.shape[1], 2)
        True
        >>> there, back = (batch.edge_index.T == torch.tensor([[0, 1]])), (batch.edge_index.T == torch.tensor([[1, 0]]))
        >>> torch.allclose(out[there.all(1)], out[back.all(1)])
        True
    """

    def __init__(self, dim: int, output_dim: int, config: HeadConfig, spec: BenchmarkSpec, edge_dim: int = 0) -> None:
        super().__init__()
        check_choice("edge_input of a head", config.edge_input, get_args(EdgeInput))
        reads, self.encoder = config.edge_input == "all", None
        self.reads_representation = reads and edge_dim > 0
        if reads and not edge_dim and (spec.edge.vocabularies or spec.edge.dense):
            self.encoder, edge_dim = EdgeEncoder(spec, dim), dim
        undirected = spec.extra.get("edges") == "undirected"
        self.symmetric = undirected if config.symmetric is None else config.symmetric
        self.mlp = config.mlp(2 * dim + (edge_dim if reads else 0), output_dim)

    def forward(self, representation: Representation, batch: GraphBatch) -> Tensor:
        """Return predictions `[num_edges, output_dim]`, in the order of `edge_index`."""
        node, (source, target) = representation.node, batch.edge_index
        first, second = node.index_select(0, source), node.index_select(0, target)
        edge = representation.edge if self.reads_representation else None
        if self.encoder is not None:
            edge = self.encoder(batch)
        if not self.symmetric:
            return self._mlp(first, second, edge)
        if edge is not None:
            edge = with_reverse(edge, batch.edge_index, node.shape[0])
        # A mean over both orders is symmetric for any MLP, while each term can still distinguish the two ends.
        return (self._mlp(first, second, edge) + self._mlp(second, first, edge)) / 2

    def _mlp(self, first: Tensor, second: Tensor, edge: Tensor | None) -> Tensor:
        parts = (first, second) if edge is None else (first, second, edge.to(first.dtype))
        return self.mlp(torch.cat(parts, dim=-1))


def with_reverse(edge: Tensor, edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return the mean of every edge `[num_edges, dim]` and its reverse; edges without a reverse are unchanged.

    Several reverse edges count as their mean. Nothing is read from the device.

    Examples:
        >>> with_reverse(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([[0, 1, 1], [1, 0, 2]]), num_nodes=3)
        tensor([[2.],
                [2.],
                [5.]])
    """
    if not len(edge):
        return edge
    source, target = edge_index
    # The first place of a key among the sorted ones identifies its pair of nodes; parallel edges share it.
    key, wanted = source * num_nodes + target, target * num_nodes + source
    order = key.sort().values
    # A key beyond the last one is looked up at the last place, where it does not match.
    position, other = torch.searchsorted(order, key), torch.searchsorted(order, wanted).clamp(max=len(edge) - 1)
    sums = torch.zeros_like(edge).index_add(0, position, edge)
    counts = torch.zeros_like(key).index_add(0, position, torch.ones_like(key))
    mean = sums.index_select(0, other) / counts.index_select(0, other).clamp(min=1)[:, None].to(edge.dtype)
    has_reverse = order.index_select(0, other) == wanted
    return torch.where(has_reverse[:, None], (edge + mean) / 2, edge)
