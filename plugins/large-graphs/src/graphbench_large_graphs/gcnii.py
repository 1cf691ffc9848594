"""GCNII: a deep graph convolution network whose layers keep a share of the input and start near the identity.

Chen et al., "Simple and Deep Graph Convolutional Networks", ICML 2020, arXiv 2007.02133.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import GCN2Conv

from graphbench import Architecture, BenchmarkSpec, GraphBatch, PositionalEncoder, Representation
from graphbench.contracts import NodeState, NodeStep
from graphbench.errors import check_range
from graphbench.nn import NodeEncoder, count_arriving, gcn_edges
from graphbench_large_graphs.inputs import InputFeatures


class GCNII(Architecture):
    """GCNII and GCNII* (Chen et al., ICML 2020), using PyG's `GCN2Conv`; defaults are for Cora.

    `x0 = ReLU(W Drop(features) + b)`, then in layer l `x = ReLU(((1 - a) A Drop(x) + a x0)((1 - b_l) I + b_l W_l))`,
    `b_l = log(theta / l + 1)`; A is the normalised adjacency matrix with self-loops. Dropout is also applied to the
    result. The runs of the Long Range Graph Benchmark have neither the ReLU and dropout of the input nor the identity:
    `theta` none, `input_map` false and an `alpha` of 0.2.

    Time and memory: `B L (N d^2 + E d)`, `B L (N + E) d`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the nodes.
        num_layers: layers.
        alpha: share a of the input in every layer.
        theta: the paper's lambda, the distance of layers from the identity; none: without the identity, `b_l = 1`.
        shared_weights: False is GCNII*, with separate maps for the input.
        dropout: probability of every dropout.
        layer_weight_decay: weight decay of the layers, if different from the optimizer's.
        positional_encoders: their outputs are concatenated to the node features.
        input_map: False: x0 is the concatenation of encoded features (embeddings of categories) and positions.

    Raises:
        BadInput: an option is out of range, or positions leave no room for features.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = GCNII(tiny_spec(), hidden_dim=16, num_layers=4)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 64,
        num_layers: int = 64,
        alpha: float = 0.1,
        theta: float | None = 0.5,
        shared_weights: bool = True,
        dropout: float = 0.6,
        layer_weight_decay: float | None = None,
        positional_encoders: list[PositionalEncoder] | None = None,
        input_map: bool = True,
    ) -> None:
        super().__init__(spec, hidden_dim)
        check_range("alpha", alpha, at_least=0, at_most=1)
        if theta is not None:
            check_range("theta", theta, above=0, below=math.inf)
        if layer_weight_decay is not None:
            check_range("layer_weight_decay", layer_weight_decay, at_least=0)
        self.inputs: InputFeatures | NodeEncoder
        self.input_map: nn.Linear | None = None
        if input_map:
            self.inputs = InputFeatures(spec, positional_encoders or ())
            self.input_map = nn.Linear(self.inputs.dim, hidden_dim)
        else:
            self.inputs = NodeEncoder(spec, hidden_dim, positional_encoders or ())
        self.layers = nn.ModuleList(
            # Without both theta and the layer number PyG uses b_l = 1: layers without the identity.
            GCN2Conv(hidden_dim, alpha, theta, None if theta is None else number, shared_weights, normalize=False)
            for number in range(1, num_layers + 1)
        )
        self.dropout, self.layer_weight_decay = nn.Dropout(dropout), layer_weight_decay

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]`."""
        # Every layer adds this x0, not its own input: at any depth a node keeps a share a of its features.
        start = x = self._start(batch)
        index, weight = gcn_edges(batch.edge_index, x.shape[0], x.dtype)
        for layer in self.layers:
            x = layer(self.dropout(x), start, index, weight).relu()
        return Representation(node=self.dropout(x))

    def _start(self, batch: GraphBatch) -> Tensor:
        """Return x0."""
        if self.input_map is None:
            start: Tensor = self.inputs(batch)
            return start
        return self.input_map(self.dropout(self.inputs(batch, self.input_map.weight.dtype))).relu()

    def node_steps(self) -> Sequence[NodeStep]:
        """Return steps: compute x0, count degrees, then one step for each layer."""
        return [self._first_step, self._degree_step, *(partial(self._layer_step, layer) for layer in self.layers)]

    def _first_step(self, batch: GraphBatch, state: NodeState) -> NodeState:
        start = self._start(batch)
        return {"x": start, "start": start}

    def _degree_step(self, batch: GraphBatch, state: NodeState) -> NodeState:
        return {"arriving": count_arriving(batch.edge_index, state["x"].shape[0])}

    def _layer_step(self, layer: nn.Module, batch: GraphBatch, state: NodeState) -> NodeState:
        x = state["x"]
        index, weight = gcn_edges(batch.edge_index, x.shape[0], x.dtype, arriving=state["arriving"])
        return {"x": layer(x, state["start"], index, weight).relu()}

    def parameter_groups(self) -> Sequence[dict[str, Any]]:
        """Group the layers if they have their own weight decay."""
        if self.layer_weight_decay is None:
            return ()
        # The released code decays the layers (wd1) separately from the input map and the head (wd2).
        return ({"params": list(self.layers.parameters()), "weight_decay": self.layer_weight_decay},)
