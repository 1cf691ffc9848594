"""The base of message passing baselines: encoders, and a stack of layers on nodes and edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from graphbench import Architecture, BenchmarkSpec, GraphBatch, PositionalEncoder, Representation
from graphbench.contracts import NodeState, NodeStep
from graphbench.nn import Categorical, ConvLayer, EdgeEncoder, GatedGCNLayer, NodeEncoder, count_arriving

#: Computes, from `edge_index`, the number of nodes and the dtype of their vectors, the edges and a number or vector for
#: each; with `arriving`, as in `gcn_edges`, those of a part of a graph.
MakeEdges = Callable[..., tuple[Tensor, Tensor | None]]


class MessagePassingNetwork(Architecture):
    """Encoders and a stack of layers `(x, edge_index, edge) -> (x, edge)`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of nodes and edges.
        num_layers: layers.
        make_layer: creates one layer.
        positional_encoders: outputs are concatenated to the node features, which get the remaining width.
        categorical: how categorical features enter.
        reads_edges: the layers read edge vectors.
        edge_features: pass the benchmark's edge features to those layers; False: one learned row for all edges.
        all_layers: the representation concatenates the input of every layer and the last output, with width
            `hidden_dim (num_layers + 1)`.
        make_edges: computes the edges for all layers; None: the edges of the batch.

    Raises:
        BadInput: there is no layer.
    """

    #: Whether `make_edges` or `ends` gives every node a loop.
    self_loops: bool = True

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int,
        num_layers: int,
        make_layer: Callable[[], nn.Module],
        positional_encoders: Sequence[PositionalEncoder] | None,
        categorical: Categorical,
        reads_edges: bool = False,
        edge_features: bool = True,
        all_layers: bool = False,
        make_edges: MakeEdges | None = None,
    ) -> None:
        super().__init__(spec, hidden_dim * (num_layers + 1) if all_layers else hidden_dim)
        self.node_encoder = NodeEncoder(spec, hidden_dim, positional_encoders or (), categorical)
        self.edge_encoder: nn.Module | None = None
        if reads_edges:
            self.edge_encoder = EdgeEncoder(spec, hidden_dim, categorical, edge_features)
            self.edge_dim = hidden_dim
        self.layers = nn.ModuleList(make_layer() for _ in range(num_layers))
        self.all_layers, self.make_edges = all_layers, make_edges

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, dim]`, and edges `[num_edges, hidden_dim]` if the layers read them."""
        x = self.node_encoder(batch)
        index, edge = self.ends(batch), self.edge_encoder(batch) if self.edge_encoder is not None else None
        # Once for all layers: self-loops and degrees depend only on the edges.
        if self.make_edges is not None:
            index, edge = self.make_edges(index, x.shape[0], x.dtype)
        depths = [x]
        for layer in self.layers:
            x, edge = layer(x, index, edge)
            depths.append(x)
        return Representation(
            node=torch.cat(depths, dim=-1) if self.all_layers else x,
            edge=None if self.edge_encoder is None else edge,
        )

    def node_steps(self) -> Sequence[NodeStep]:
        """Return steps: encode nodes, count degrees if edges are weighted by them, then one step for each layer."""
        if any(isinstance(module, GatedGCNLayer) for module in self.modules()):
            return ()  # edges also have states
        steps: list[NodeStep] = [self._first_step]
        if self.make_edges is not None:
            steps.append(self._degree_step)
        steps.extend(partial(self._layer_step, layer) for layer in self.layers)
        if self.all_layers:
            steps.append(lambda _, state: {"x": state["depths"]})
        return steps

    def _first_step(self, batch: GraphBatch, state: NodeState) -> NodeState:
        x = self.node_encoder(batch)
        return {"x": x, "depths": x} if self.all_layers else {"x": x}

    def _degree_step(self, batch: GraphBatch, state: NodeState) -> NodeState:
        return {"arriving": count_arriving(self.ends(batch), state["x"].shape[0], self.self_loops)}

    def _layer_step(self, layer: nn.Module, batch: GraphBatch, state: NodeState) -> NodeState:
        x, index = state["x"], self.ends(batch)
        edge = self.edge_encoder(batch) if self.edge_encoder is not None else None
        if self.make_edges is not None:
            index, edge = self.make_edges(index, x.shape[0], x.dtype, arriving=state["arriving"])
        if isinstance(layer, ConvLayer):
            x, _ = layer(x, index, edge, num_targets=int(batch.asked.sum()))
        else:
            x, _ = layer(x, index, edge)
        return {"x": x, "depths": torch.cat([state["depths"][: len(x)], x], dim=-1)} if self.all_layers else {"x": x}

    def ends(self, batch: GraphBatch) -> Tensor:
        """Return the edges along which messages are sent, sources and targets `[2, num_edges]`."""
        return batch.edge_index
