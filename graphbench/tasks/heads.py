"""Heads of the tasks: which part of a representation is read, and the MLP on it."""

from __future__ import annotations

from torch import Tensor, nn

from graphbench.contracts.architecture import Representation
from graphbench.contracts.table import GraphBatch
from graphbench.nn.heads import HeadConfig, Pooling


class GraphHead(nn.Module):
    """One output a graph: from the graph representation if there is one, else from pooled nodes."""

    def __init__(self, dim: int, output_dim: int, config: HeadConfig) -> None:
        super().__init__()
        self.pooling = Pooling(config.pooling)
        self.mlp = config.mlp(dim, output_dim)

    def forward(self, representation: Representation, batch: GraphBatch) -> Tensor:
        """`[num_graphs, output_dim]`."""
        graph = representation.graph
        if graph is None:
            graph = self.pooling(representation.node, batch.batch, batch.num_graphs)
        return self.mlp(graph)


class NodeHead(nn.Module):
    """One output a node."""

    def __init__(self, dim: int, output_dim: int, config: HeadConfig) -> None:
        super().__init__()
        self.mlp = config.mlp(dim, output_dim)

    def forward(self, representation: Representation, batch: GraphBatch) -> Tensor:
        """`[num_nodes, output_dim]`."""
        return self.mlp(representation.node)
