"""Shortest path networks: messages from all nodes within k steps, each distance with a learned weight.

Abboud et al., "Shortest Path Networks for Graph Property Prediction", LoG 2022, arXiv 2206.01003.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import Architecture, BenchmarkSpec, GraphBatch, PositionalEncoder, Representation
from graphbench.encodings import ShortestPaths
from graphbench.errors import check_range
from graphbench.nn import Categorical, NodeEncoder, NormName, make_norm, node_pairs, sum_neighbours


def distance_pairs(batch: GraphBatch, max_distance: int) -> Tensor:
    """List the pairs of nodes (u, i) at distances d from 1 to k, as sources u and targets `(d - 1) T + i`.

    Args:
        batch: T nodes, with the distances of `ShortestPaths(k + 1)`.
        max_distance: k.

    Returns:
        `[2, pairs]`.

    Examples:
        >>> from graphbench.testing import encode, tiny_spec, tiny_table
        >>> graphs = encode(tiny_table(tiny_spec(), sizes=[2]), [ShortestPaths(3)])
        >>> distance_pairs(graphs.batch([0]), 2).tolist()
        [[0, 1], [1, 0]]
    """
    distance = batch.shortest_path_distance
    near = ((distance >= 1) & (distance <= max_distance)).nonzero().squeeze(1)
    source, target = (end[near] for end in node_pairs(batch, distance.shape[0]))
    return torch.stack([source, target + (distance[near].to(target.dtype) - 1) * batch.num_nodes])


class ShellLayer(nn.Module):
    """GIN over all nodes within k steps.

        x'_i = MLP((1 + eps) x_i + sum_d w_d sum_{u at distance d} x_u),    w = softmax(a),  a learned `[k]`

    with the MLP `ReLU Norm W2 ReLU Norm W1`.

    Args:
        dim: width of the nodes.
        max_distance: k.
        eps: a number, not learned.
        norm: batch, layer or none.

    Examples:
        >>> layer = ShellLayer(8, max_distance=1)
        >>> layer(torch.randn(2, 8), torch.tensor([[0, 1], [1, 0]])).shape
        torch.Size([2, 8])
    """

    def __init__(self, dim: int, max_distance: int, eps: float = 0.0, norm: NormName = "batch") -> None:
        super().__init__()
        self.eps = eps
        self.shell_logits = nn.Parameter(torch.randn(max_distance))
        self.mlp = nn.Sequential(
            nn.Linear(dim, dim), make_norm(norm, dim), nn.ReLU(), nn.Linear(dim, dim), make_norm(norm, dim), nn.ReLU()
        )

    def forward(self, x: Tensor, pairs: Tensor) -> Tensor:
        """Return nodes `[T, dim]` from nodes and `distance_pairs`."""
        # One weight per distance for all channels (the paper's alpha): all distances are one sum into k rows per node,
        # including those without pairs in a batch, so the compiled program is the same.
        weights = self.shell_logits.softmax(0).to(x.dtype)
        distances, num_nodes = len(weights), x.shape[0]
        sums = sum_neighbours(F.pad(x, (0, 0, 0, (distances - 1) * num_nodes)), pairs)
        mixed = (1 + self.eps) * x + (weights @ sums.view(distances, -1)).view_as(x)
        out: Tensor = self.mlp(mixed)
        return out


class SPN(Architecture):
    """SPN (Abboud et al., LoG 2022), without edge features as in its first form; see `ShellLayer`.

    Distances follow the direction of edges: a node receives from nodes with a path to it. The paper sums linear
    read-outs of all depths, which equals one linear read-out of `all_layers`.

    Time and memory: `B L (N d^2 + N^2 d)`, `B (L N d + N^2 d)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the nodes.
        num_layers: layers.
        max_distance: k.
        eps: weight of a node's own vector minus 1, not learned.
        dropout: probability of dropout after every layer.
        norm: batch, layer or none, inside the MLPs.
        residual: add each layer's input to its output.
        all_layers: the head reads the input of every layer and the last output, a width of
            `hidden_dim (num_layers + 1)`.
        positional_encoders: outputs are concatenated to the node features.
        categorical: how categorical features enter: xavier_uniform, normal or one_hot.

    Raises:
        BadInput: an option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = SPN(tiny_spec(), hidden_dim=16, num_layers=2)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        num_layers: int = 5,
        max_distance: int = 5,
        eps: float = 0.0,
        dropout: float = 0.0,
        norm: NormName = "batch",
        residual: bool = False,
        all_layers: bool = False,
        positional_encoders: list[PositionalEncoder] | None = None,
        categorical: Categorical = "xavier_uniform",
    ) -> None:
        super().__init__(spec, hidden_dim * (num_layers + 1) if all_layers else hidden_dim)
        check_range("max_distance", max_distance, at_least=1, whole=True)
        check_range("eps", eps, at_least=-1, below=float("inf"))
        self.node_encoder = NodeEncoder(spec, hidden_dim, positional_encoders or (), categorical)
        self.layers = nn.ModuleList(ShellLayer(hidden_dim, max_distance, eps, norm) for _ in range(num_layers))
        self.max_distance, self.dropout = max_distance, nn.Dropout(dropout)
        self.residual, self.all_layers = residual, all_layers
        # The largest stored distance represents all larger ones: k + 1 separates them from k.
        self.encodings = (ShortestPaths(max_distance + 1),)

    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """List the pairs of nodes at each distance."""
        return {"distance_pairs": distance_pairs(batch, self.max_distance)}

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, dim]`."""
        x = self.node_encoder(batch)
        depths = [x]
        for layer in self.layers:
            new = self.dropout(layer(x, batch["distance_pairs"]))
            x = x + new if self.residual else new
            depths.append(x)
        return Representation(node=torch.cat(depths, dim=-1) if self.all_layers else x)
