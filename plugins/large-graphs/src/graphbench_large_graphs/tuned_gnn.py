"""GCN, GAT and GraphSAGE with the linear residuals, norms and settings with which they match graph transformers.

Luo et al., "Classic GNNs are Strong Baselines: Reassessing GNNs for Node Classification", NeurIPS 2024,
arXiv 2406.08993.

Legend: T nodes of all graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, SAGEConv
from torch_geometric.utils import add_remaining_self_loops

from graphbench import Architecture, BenchmarkSpec, GraphBatch, PositionalEncoder, Representation
from graphbench.contracts import NodeState, NodeStep
from graphbench.errors import check_choice, check_divides
from graphbench.nn import GCNConvolution, NormName, count_arriving, gcn_edges, make_norm
from graphbench_large_graphs.inputs import InputFeatures

LayerName = Literal["GCN", "GAT", "GraphSAGE"]


class TunedLayer(nn.Module):
    """`Drop(ReLU(Norm(conv(x) + W x + b)))`; the residual `W x + b` is optional.

    Args:
        layer: GCN, GAT (without bias, heads concatenated) or GraphSAGE (mean).
        in_dim: input width.
        dim: output width.
        num_heads: heads of GAT.
        dropout: probability of dropout.
        norm: layer, batch or none.
        residual: add the linear map of the input.

    Examples:
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> TunedLayer("GAT", 5, 8, 2, 0.5, "batch", residual=True)(torch.randn(3, 5), edge_index).shape
        torch.Size([3, 8])
    """

    def __init__(
        self, layer: LayerName, in_dim: int, dim: int, num_heads: int, dropout: float, norm: NormName, residual: bool
    ) -> None:
        super().__init__()
        self.conv: nn.Module
        if layer == "GCN":
            self.conv = GCNConvolution(in_dim, dim, normalize=False)
        elif layer == "GAT":
            # Without bias, as in the authors' code: it would duplicate that of the residual map or the norm.
            self.conv = GATConv(in_dim, dim // num_heads, num_heads, add_self_loops=False, bias=False)
        else:
            self.conv = SAGEConv(in_dim, dim)
        self.residual = nn.Linear(in_dim, dim) if residual else None
        self.norm = make_norm(norm, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, edge_index: Tensor, weight: Tensor | None = None) -> Tensor:
        """Map nodes `[T, in_dim]` to `[T, dim]`; edges include self-loops, with the weights of `gcn_edges` for GCN."""
        new = self.conv(x, edge_index) if weight is None else self.conv(x, edge_index, weight)
        if self.residual is not None:
            new = new + self.residual(x)
        return self.dropout(self.norm(new).relu())


class TunedGNN(Architecture):
    """GCN, GAT or GraphSAGE as re-tuned by Luo et al. (NeurIPS 2024); defaults are for GCN on roman-empire.

    All layers, including GraphSAGE, use self-loops, as in the authors' runs. `graphbench-baselines` has GCN, GAT and
    GraphSAGE with plain residuals, and in `GNNPlus` layers re-tuned for whole graphs, with feed-forward networks.

    Time and memory: `B L (N d^2 + (N + E) (d + H))`, `B L (N + E) (d + H)`.

    Args:
        spec: the benchmark's description.
        layer: GCN, GAT or GraphSAGE.
        hidden_dim: width of the nodes.
        num_layers: layers, see `TunedLayer`.
        num_heads: heads of GAT, concatenated; must divide `hidden_dim`.
        dropout: probability of every dropout.
        norm: layer, batch or none.
        residual: add a linear map of each layer's input.
        input_map: a linear map, then dropout, before the first layer; False: that layer reads the raw features.
        jumping: represent a node by the sum of all layers' outputs.
        positional_encoders: their outputs are concatenated to the node features.

    Raises:
        BadInput: an option is unknown or out of range, or GAT's heads do not divide `hidden_dim`.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = TunedGNN(tiny_spec(), layer="GraphSAGE", hidden_dim=16, num_layers=2, input_map=False)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        layer: LayerName = "GCN",
        hidden_dim: int = 512,
        num_layers: int = 9,
        num_heads: int = 1,
        dropout: float = 0.5,
        norm: NormName = "batch",
        residual: bool = True,
        input_map: bool = True,
        jumping: bool = False,
        positional_encoders: list[PositionalEncoder] | None = None,
    ) -> None:
        super().__init__(spec, hidden_dim)
        check_choice("layer", layer, get_args(LayerName))
        check_divides("num_heads", num_heads, "hidden_dim", hidden_dim)
        self.inputs = InputFeatures(spec, positional_encoders or ())
        self.input_map = nn.Linear(self.inputs.dim, hidden_dim) if input_map else None
        first = hidden_dim if input_map else self.inputs.dim
        self.layers = nn.ModuleList(
            TunedLayer(layer, hidden_dim if number else first, hidden_dim, num_heads, dropout, norm, residual)
            for number in range(num_layers)
        )
        self.dropout, self.jumping, self.weighted = nn.Dropout(dropout), jumping, layer == "GCN"

    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """Give every node one self-loop."""
        # `gcn_edges` adds the loops of GCN with their weights.
        if self.weighted:
            return {}
        return {"looped_edges": add_remaining_self_loops(batch.edge_index, num_nodes=batch.num_nodes)[0]}

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]`."""
        # Features do not determine the precision here, and `input_map` may be absent.
        x = self.inputs(batch, next(self.parameters()).dtype)
        if self.input_map is not None:
            x = self.dropout(self.input_map(x))
        weight = None
        if self.weighted:
            edge_index, weight = gcn_edges(batch.edge_index, x.shape[0], x.dtype)
        else:
            edge_index = batch.looped_edges
        states = []
        for layer in self.layers:
            x = layer(x, edge_index, weight)
            states.append(x)
        return Representation(node=torch.stack(states).sum(0) if self.jumping else x)

    def node_steps(self) -> Sequence[NodeStep]:
        """Return steps: map the features, count degrees for GCN, then one step for each layer."""
        steps: list[NodeStep] = [self._first_step]
        if self.weighted:
            steps.append(lambda batch, state: {"arriving": count_arriving(batch.edge_index, state["x"].shape[0])})
        steps.extend(partial(self._layer_step, layer) for layer in self.layers)
        if self.jumping:
            steps.append(lambda _, state: {"x": state["sum"]})
        return steps

    def _first_step(self, batch: GraphBatch, state: NodeState) -> NodeState:
        x = self.inputs(batch, next(self.parameters()).dtype)
        x = x if self.input_map is None else self.dropout(self.input_map(x))
        return {"x": x, "sum": x.new_zeros(x.shape[0], self.dim)} if self.jumping else {"x": x}

    def _layer_step(self, layer: nn.Module, batch: GraphBatch, state: NodeState) -> NodeState:
        x, weight = state["x"], None
        if self.weighted:
            index, weight = gcn_edges(batch.edge_index, x.shape[0], x.dtype, arriving=state["arriving"])
        else:
            index = batch.looped_edges
        x = layer(x, index, weight)
        return {"x": x, "sum": state["sum"] + x} if self.jumping else {"x": x}
